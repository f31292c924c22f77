"""Carry out what a configuration asks for, and say what it came to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.result import RelaxationResult
from paracosm.relaxation.solve import solve
from paracosm.relaxation.spec import RunSpec, spec_of
from paracosm.relaxation.summary import summarise
from paracosm.results import RelaxationSummary
from paracosm.timeline import Timeline

__all__ = ["MetricSink", "RelaxationRun", "run_relaxation"]

Progress = Callable[[int, float | None], None]


class MetricSink(Protocol):
    """What takes measurements: a run folder, or a list."""

    def metric(
        self, virtual_time: float, wall_time: float, node: str, name: str, value: float, step: int
    ) -> None:
        """Take one of them."""


@dataclass(frozen=True)
class RelaxationRun:
    """What a run came to.

    Attributes:
        summary: the key figures by the names that `summary.json` uses.
        timeline: the first updates; None when they were not recorded.
        metrics: the sink that took the measurements; None without one.
        result: all of it; None if the run was only checked.
    """

    summary: RelaxationSummary
    timeline: Timeline | None
    metrics: MetricSink | None
    result: RelaxationResult


def run_relaxation(
    config: RelaxConfig,
    seed: int = 0,
    metrics: MetricSink | None = None,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
) -> RelaxationRun:
    """Simulate an asynchronous iteration; with changes (`what_if`), the unchanged one first.

    Args:
        config: what to solve, how, and on which imagined processors.
        seed: decides everything that is random.
        metrics: takes the residual as it falls, and at the end the updates of each processor.
        progress: called some ten times a second with the relaxations so far and the virtual time.
        announce: told before the run what the spectral radius says about it.

    Raises:
        InputError: if the configuration cannot be used.
    """
    unchanged = None
    if config.what_if:
        plain = config.model_copy(update={"what_if": (), "timeline": 0})
        unchanged = run_relaxation(plain, seed, progress=progress).summary
    run = _run(spec_of(config, seed), metrics, progress, announce)
    if unchanged is None:
        return run
    changes = [str(change) for change in config.what_if]
    compared = {key: unchanged[key] for key in _COMPARED}
    return replace(run, summary=replace(run.summary, what_if=changes, unchanged=compared))


_COMPARED = ("status", "virtual_time", "sweeps", "relaxations", "residual")


def _run(
    spec: RunSpec,
    metrics: MetricSink | None,
    progress: Progress | None,
    announce: Callable[[str], None] | None,
) -> RelaxationRun:
    from paracosm.relaxation.kernel.compiled import is_on_disk
    from paracosm.relaxation.kernel.loop import advance
    from paracosm.relaxation.spectrum_of import spectrum_of
    from paracosm.relaxation.timeline_of import timeline_of

    radius = spectrum_of(spec)
    if announce is not None and radius is not None:
        announce(radius.sentence)
    if announce is not None and not is_on_disk(advance):
        announce("compiling the simulator, once on this machine: half a minute")
    started = time.perf_counter()

    last = -1

    def observed(virtual_time: float, relaxations: int, rows: Any) -> None:
        nonlocal last
        if metrics is not None and len(rows):
            _put_history(metrics, rows, time.perf_counter() - started)
            last = int(rows[-1, 1])
        if progress is not None:
            progress(relaxations, virtual_time)

    result = solve(spec, observed)
    if metrics is not None:
        _put_end(metrics, result, last, time.perf_counter() - started)
    summary = summarise(spec, result, radius)
    return RelaxationRun(summary, timeline_of(spec, result), metrics, result)


def _put_history(metrics: MetricSink, rows: Any, wall_time: float) -> None:
    for virtual_time, relaxations, residual, error in rows.tolist():
        metrics.metric(virtual_time, wall_time, "observer", "residual", residual, int(relaxations))
        if error == error:
            metrics.metric(virtual_time, wall_time, "observer", "error", error, int(relaxations))


def _put_end(metrics: MetricSink, result: RelaxationResult, last: int, wall_time: float) -> None:
    """Give the end of the history, what happened besides, and the updates of every processor."""
    n = result.x.size
    steps = np.rint(result.sweeps * n)
    rows = np.stack([result.times, steps, result.residuals, result.errors], axis=1)
    _put_history(metrics, rows[steps > last], wall_time)
    for mark in result.marks:
        metrics.metric(mark.time, wall_time, "observer", mark.what, mark.residual, mark.relaxations)
    for who, updates in enumerate(result.updates.tolist()):
        metrics.metric(
            result.virtual_time,
            wall_time,
            f"processor{who}",
            "updates",
            updates,
            result.relaxations,
        )
