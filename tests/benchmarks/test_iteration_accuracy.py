"""A measured iteration beside what is predicted of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from in_situ import time_in_situ
from iteration_accuracy import accuracy

from paracosm.errors import InputError
from paracosm.graphs.capture import CaptureOptions
from paracosm.profiling import ModelProfile, Settings, profile_model

OPTIONS = CaptureOptions(model="mlp", batch=4)


@pytest.fixture(scope="module")
def done() -> ModelProfile:
    return profile_model(OPTIONS, Settings(budget=1.0), in_situ=time_in_situ)


def test_the_accuracy_of_a_model_adds_up(done: ModelProfile) -> None:
    result = accuracy(done)
    assert done.iteration is not None
    own = {t.op: t.duration for t in done.profile.timings if t.cache == "cold"}
    by_hand = sum(own[done.graph.ops[code]] for code in done.graph.op)
    assert result.own == pytest.approx(by_hand)
    assert result.measured == pytest.approx(done.iteration.duration)
    assert result.gaps is not None
    assert result.caches is not None
    assert result.own + result.gaps + result.caches == pytest.approx(result.measured)
    assert result.held_out is None


def test_held_out_shapes_are_estimated_from_others(done: ModelProfile) -> None:
    other = profile_model(CaptureOptions(model="mlp", batch=6), Settings(budget=1.0))
    result = accuracy(done, other.profile.timings)
    assert result.held_out is not None
    assert result.interval is not None
    assert result.interval[0] < result.held_out < result.interval[1]
    assert result.per_op is not None
    assert result.per_op > 0


def test_an_iteration_of_a_gpu_is_refused(done: ModelProfile) -> None:
    """Its host runs ahead: the sum of the ops is not the time of the iteration."""
    environment = replace(done.profile.environment, device="cuda")
    on_gpu = replace(done, profile=replace(done.profile, environment=environment))
    with pytest.raises(InputError, match="on a CPU, not on a GPU"):
        accuracy(on_gpu)


def test_without_iterations_there_is_nothing_to_compare() -> None:
    done = profile_model(OPTIONS, Settings(budget=0.0), iterations=False)
    assert done.iteration is None
    with pytest.raises(ValueError, match="no iteration was measured"):
        accuracy(done)
