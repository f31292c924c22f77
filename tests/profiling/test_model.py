"""A model's ops and its real iterations, profiled together."""

from __future__ import annotations

import pytest
import torch

from paracosm.graphs import fingerprint
from paracosm.graphs.capture import CaptureOptions, capture, training_step
from paracosm.profiling import ModelProfile, ProfileDatabase, Settings, profile_model
from paracosm.profiling.clock import HostClock
from paracosm.profiling.in_situ import time_in_situ

OPTIONS = CaptureOptions(model="mlp", batch=4)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> ModelProfile:
    path = tmp_path_factory.mktemp("model") / "profiles.db"
    with ProfileDatabase.open(path, create=True) as database:
        done = profile_model(OPTIONS, Settings(budget=1.0), database, in_situ=True)
        assert {t.key for t in database.timings()} == {t.key for t in done.profile.timings}
        assert [i.key for i in database.iterations(fingerprint(done.graph))] == [done.iteration.key]  # type: ignore[union-attr]
    return done


def test_every_op_of_the_step_is_timed_in_both_cache_states(done: ModelProfile) -> None:
    assert done.profile.refused == {}
    assert {(t.op, t.cache) for t in done.profile.timings} == {
        (op, cache) for op in done.graph.ops for cache in ("cold", "warm")
    }


def test_real_iterations_are_measured_with_their_spread(done: ModelProfile) -> None:
    assert done.iteration is not None
    assert done.iteration.model == "mlp, batch 4"
    assert done.iteration.time.count >= 3
    assert done.iteration.time.minimum == min(done.samples)


def test_ops_are_timed_in_place_in_the_order_of_the_graph() -> None:
    graph = capture(OPTIONS)
    step = training_step(OPTIONS)
    step.run()
    names, seconds = time_in_situ(step.run, HostClock())
    assert list(names) == [graph.ops[code].name for code in graph.op]
    assert len(seconds) == len(names)
    assert all(time > 0 for time in seconds)


def test_autograd_is_on_in_iterations_and_off_for_ops() -> None:
    before = torch.is_grad_enabled()
    done = profile_model(OPTIONS, Settings(budget=0.0))
    assert len(done.samples) > 0
    assert torch.is_grad_enabled() == before
