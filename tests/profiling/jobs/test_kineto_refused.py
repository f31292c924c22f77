"""Kineto traces that no job profile can be made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kineto_by_hand import (
    Event,
    backward,
    forward,
    gradient,
    kernel,
    mark,
    span,
    step_of,
    without,
    written,
)

from paracosm.errors import InputError
from paracosm.profiling.jobs.kineto import job_profile_of_trace

REFUSED: dict[str, tuple[list[Event], dict[str, Any], str]] = {
    "ranks": (
        step_of(0, 0),
        {"distributedInfo": {"rank": 1, "world_size": 4}},
        "rank 1 of a job of 4 ranks, which communicates already: record one process",
    ),
    "collective": (
        [*step_of(0, 0), span("nccl:all_reduce", 81, 1)],
        {},
        "nccl:all_reduce: the job communicates already",
    ),
    "gloo": ([*step_of(0, 0), span("gloo:all_reduce", 81, 1)], {}, "communicates already"),
    "devices": (
        [
            *step_of(0, 0),
            kernel("a", 1, 1, 1),
            {**kernel("b", 1, 1, 2), "args": {"device": 1, "stream": 7, "correlation": 2}},
        ],
        {},
        "it computes on devices 0, 1: record one process",
    ),
    "no training": (
        without(step_of(0, 0), "Accumulate"),
        {},
        r"no gradients \(torch::autograd::AccumulateGrad\): .* ProfilerActivity.CPU",
    ),
    "no marks": (
        without([*step_of(0, 0), *step_of(1, 100)], "ProfilerStep"),
        {},
        r"where its steps begin is not marked \(no ProfilerStep\): call profiler.step\(\)",
    ),
    "gradients outside the marks": (
        [*without(step_of(0, 0), "ProfilerStep"), *without(step_of(1, 200), "Accumulate")],
        {},
        "none of the 1 steps that are marked has gradients",
    ),
    "optimizer first": (
        [*without(step_of(0, 0), "Optimizer"), mark("Optimizer.step#SGD.step", 1, 2)],
        {},
        "step 0: the optimizer runs before the last gradient is there",
    ),
    "two losses": (
        [
            *step_of(0, 0),
            forward("aten::third", 85.1, 0.1, 90, [4, 2], [7, 2]),
            backward(85.3, 0.1, 90),
            *gradient(85.5, 0.1, [7, 2]),
        ],
        {},
        "step 0 has 2 backward passes, of 2 and 1 gradients that differ",
    ),
    "batches in pieces of a step each": (
        [*without(step_of(0, 0), "Optimizer"), *step_of(1, 100)],
        {},
        "1 of 2 steps have the optimizer's: call profiler.step",
    ),
    "no type": (
        [
            *without(step_of(0, 0), "Accumulate"),
            *gradient(60, 10, [5, 3], "what"),
            *gradient(80, 5, [3, 2], "what"),
        ],
        {},
        "how large the parameters are is not recorded",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    events, header, message = REFUSED[name]
    path = written(tmp_path, events, **header)
    with pytest.raises(InputError, match=message) as error:
        job_profile_of_trace(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
