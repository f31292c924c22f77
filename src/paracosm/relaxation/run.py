"""Carry out what a configuration asks for, and say what it came to."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Protocol

import numpy as np

from paracosm.errors import InputError
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.detection import parse_detection
from paracosm.relaxation.methods import gauss_seidel_of, method_divides
from paracosm.relaxation.problems import Problem, load_matrix, load_problem
from paracosm.relaxation.relax import network_of
from paracosm.relaxation.request import Request, Stop
from paracosm.relaxation.result import RelaxationResult
from paracosm.relaxation.solve import solve
from paracosm.relaxation.summary import summarise
from paracosm.relaxation.times import at_speeds, read_times
from paracosm.timeline import Timeline

__all__ = ["MetricSink", "RelaxationRun", "request_of", "run_relaxation"]

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

    summary: dict[str, Any]
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
    """Simulate an asynchronous iteration.

    Args:
        config: what to solve, how, and on which imagined processors.
        seed: decides everything that is random.
        metrics: takes the residual as it falls, and at the end the updates of each processor.
        progress: called some ten times a second with the relaxations so far and the virtual time.
        announce: told before the run what the spectral radius says about it.

    Raises:
        InputError: if the configuration cannot be used.
    """
    from paracosm.relaxation.kernel.compiled import is_on_disk
    from paracosm.relaxation.kernel.loop import advance
    from paracosm.relaxation.spectrum_of import spectrum_of
    from paracosm.relaxation.timeline_of import timeline_of

    request = request_of(config, seed)
    radius = spectrum_of(request)
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

    result = solve(request, observed)
    if metrics is not None:
        _put_end(metrics, result, last, time.perf_counter() - started)
    summary = summarise(request, result, radius)
    return RelaxationRun(summary, timeline_of(request, result), metrics, result)


def request_of(config: RelaxConfig, seed: int) -> Request:
    """Return what a configuration asks for, with files read and everything made.

    Raises:
        InputError: for what cannot be used.
    """
    from paracosm.relaxation.patterns import parse_patterns

    cluster = config.resolve_cluster()
    count = config.count(cluster)
    problem = _problem(config, seed)
    method, read = config.parsed_method(), config.read
    if read == "gauss-seidel":
        method, read = gauss_seidel_of(method), "completion"
    speeds = config.speed_of(count)
    if cluster is not None and config.cluster is not None:
        speeds = [node.speed for node in cluster.nodes[:count]]
    return Request(
        problem=problem,
        method=method,
        patterns=tuple(parse_patterns(config.pattern, problem, count, seed)),
        times=at_speeds(read_times(config.time, count), speeds),
        read=read,
        barrier=config.barrier if config.synchronous else None,
        ticks=config.scale_factor,
        detection=parse_detection(config.detect),
        stop=Stop(
            config.tolerance,
            2 if config.norm == 2 else inf,
            config.relative,
            config.error_tolerance,
            inf if config.max_time is None else config.max_time,
            config.max_sweeps * problem.n,
        ),
        network=network_of(cluster, config.jitter, config.order == "ordered")
        if cluster is not None and config.memory == "distributed"
        else None,
        faults=config.faults(),
        checkpoint=config.policy(),
        matrix_free=config.matrix_free,
        spans=config.timeline,
        seed=seed,
    )


def _problem(config: RelaxConfig, seed: int) -> Problem:
    if config.problem is not None:
        problem = load_problem(config.problem, config.rhs, config.start, seed)
    else:
        assert config.matrix is not None
        divides = method_divides(config.parsed_method())
        problem = load_matrix(
            config.matrix, config.rhs, config.start, seed, divides_by_diagonal=divides
        )
    if config.error_tolerance is None or problem.solution is not None:
        return problem
    from scipy.sparse.linalg import spsolve

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a singular matrix, which is said below
        solution = spsolve(problem.A.tocsc(), problem.b)
    if not np.isfinite(solution).all():
        raise InputError(
            f"error_tolerance: {problem.name} is singular: no solution to compare with"
        )
    return replace(problem, solution=solution)


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
