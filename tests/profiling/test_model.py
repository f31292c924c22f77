"""A model's ops and its real iterations, profiled together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from in_situ import time_in_situ

from paracosm.errors import InputError
from paracosm.graphs.capture import CaptureOptions, capture, training_step
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments
from paracosm.graphs.summary import fingerprint, peak_memory
from paracosm.profiling import ModelProfile, ProfileDatabase, Settings, profile, profile_model
from paracosm.profiling.environment import HostClock

OPTIONS = CaptureOptions(model="mlp", batch=4)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> ModelProfile:
    path = tmp_path_factory.mktemp("model") / "profiles.db"
    with ProfileDatabase.open(path, create=True) as database:
        done = profile_model(OPTIONS, Settings(budget=1.0), database, in_situ=time_in_situ)
        assert {t.key for t in database.timings()} == {t.key for t in done.profile.timings}
        assert [i.key for i in database.iterations(fingerprint(done.graph))] == [done.iteration.key]  # type: ignore[union-attr]
    return done


def test_every_op_of_the_step_is_timed_in_both_cache_states(done: ModelProfile) -> None:
    assert done.profile.refused == {}
    assert {(t.op, t.cache) for t in done.profile.timings} == {
        (op, cache) for op in done.graph.ops for cache in ("cold", "warm")
    }


@pytest.mark.parametrize("model", ["lstm", pytest.param("gru", marks=pytest.mark.slow), "bag"])
def test_ops_with_buffers_and_sparse_gradients_are_all_timed(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "graphs")
    options = CaptureOptions(f"tiny_models:{model}", batch=2)
    done = profile_model(options, Settings(budget=0.5))
    assert done.profile.refused == {}
    assert len(done.profile.timings) == 2 * len(done.graph.ops)
    assert done.iteration is not None


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


def test_a_step_that_does_not_fit_the_memory_is_refused_before_it_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = peak_memory(capture(OPTIONS))
    monkeypatch.setattr("paracosm.profiling.profiler.free_memory", lambda device: needed - 1)
    monkeypatch.setattr("paracosm.graphs.capture.training_step", None)
    with pytest.raises(InputError, match=f"takes {needed:,} bytes .* --no-iterations"):
        profile_model(OPTIONS, Settings(budget=0.0))
    done = profile_model(OPTIONS, Settings(budget=0.0), iterations=False)
    assert done.iteration is None


def test_the_caller_s_random_numbers_go_on_as_if_nothing_had_been() -> None:
    before = torch.random.get_rng_state()
    profile_model(OPTIONS, Settings(budget=0.0))
    drops = Op("aten.bernoulli.default", encode_arguments([TensorArgument((9,), "float32")], {}))
    assert profile([drops], Settings(budget=0.0)).refused == {}
    assert torch.equal(torch.random.get_rng_state(), before)


def test_autograd_is_on_in_iterations_and_off_for_ops() -> None:
    before = torch.is_grad_enabled()
    done = profile_model(OPTIONS, Settings(budget=0.0))
    assert len(done.samples) > 0
    assert torch.is_grad_enabled() == before
