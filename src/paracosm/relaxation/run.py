"""Run a configuration, or the arguments of `relax`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.arrays import refuse_masked
from paracosm.errors import InputError
from paracosm.faults.checkpoint import advice
from paracosm.relaxation.config import Function, RelaxConfig
from paracosm.relaxation.methods import Method, method_divides, parse_method
from paracosm.relaxation.result import RelaxationResult, summarise
from paracosm.relaxation.spec import RunSpec, check_spec, spec_of
from paracosm.relaxation.synchronous_baseline import baseline_spec, compare
from paracosm.results import RelaxationSummary
from paracosm.results.kind import with_unchanged
from paracosm.results.metrics import MetricSink
from paracosm.results.summaries import RelaxationTwin
from paracosm.timeline import Labels, Timeline
from paracosm.validation import validated

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from paracosm.arrays import Floats
    from paracosm.relaxation.problems import Problem
    from paracosm.relaxation.simulate import Progress
    from paracosm.relaxation.spectrum import SpectralRadius


def relax(
    A: Any,
    b: ArrayLike | None = None,
    x0: ArrayLike | None = None,
    *,
    solution: ArrayLike | None = None,
    seed: int = 0,
    progress: Function | None = None,
    **fields: Any,
) -> RelaxationResult:
    """Solve A x = b by relaxation on processors that do not wait for each other.

    All other arguments are the fields of `RelaxConfig`, which are the flags of `paracosm relax`:
    method, read, processors, pattern, synchronous, barrier, time, speeds, scale_factor, memory, the
    fields of links, cluster, latency_jitter, order, what_if, tolerance, norm, relative,
    error_tolerance, max_time, max_sweeps, detect, fault, checkpoint, matrix_free, timeline.

    The three functions of Coleman, Jensen and Sosonkina (section 4) are `method`, `pattern` and
    `time`; each is a name, an object of this package, or a function of your own. One compiled with
    `numba.njit` runs at the full speed of the simulator, a plain one is called from it:

    - `method`: `(x, rows, A, b, out)` writes the new values of `rows`, shape (k,), to `out`, shape
      (k,). `A` has the arrays `indptr`, `indices` and `data` of its rows.
    - `pattern`: `(processor, update, u)` returns the rows of a processor's next update; u is a
      random number, uniform in (0, 1). Also a Pattern, or a list of blocks of rows.
    - `time`: `(processor, update, u)` returns seconds.

    `cluster` may be a `Cluster`, whose i-th worker is processor i.

    Args:
        A: SciPy sparse or dense matrix of shape (n, n), or a Problem.
        b: right-hand side, shape (n,); by default as the Problem has it, or uniform random.
        x0: first iterate, shape (n,); zeros by default.
        solution: the solution, shape (n,), where it is known.
        seed: of all random streams.
        progress: called some ten times a second; see `simulate.Progress`.

    Raises:
        InputError: an argument is invalid.
    """
    problem = _problem_of(A, b, x0, solution, fields.get("method", "jacobi"))
    config = validated(RelaxConfig, {"problem": problem, **fields}, "relax")
    return solve(spec_of(config, seed), progress)


def relax_map(
    G: Function,
    x0: ArrayLike,
    *,
    reads: Any = None,
    norm: float | str = 2,
    cluster: Any = None,
    fault: Any = (),
    checkpoint: Any = None,
    solution: ArrayLike | None = None,
    seed: int = 0,
    progress: Function | None = None,
    **fields: Any,
) -> RelaxationResult:
    """Iterate x = G(x), any map, on processors that do not wait for each other.

    Args:
        G: `(x, rows, out)` writes G's components `rows`, shape (k,), at x, shape (n,), to `out`,
            shape (k,); compiled by `numba.njit`, or plain Python.
        x0: first iterate, shape (n,).
        reads: which components G reads, for distributed memory: a sparse or dense matrix of shape
            (n, n) whose entry (i, j) is not 0 where component i of G depends on x_j. G finds the
            values that have arrived there, and the newest ones of all other components.
        norm: of G(x) - x, which the tolerance limits, and of the error: 2 or "inf".
        cluster: a cluster file or a `Cluster`, whose i-th worker is processor i; with it, or with
            the fields of links, memory is distributed.
        fault: faults in x, in messages (halo) and of processors, as in `docs/faults.md`.
        checkpoint: the policy: "alpha=2, omega=10s".
        solution: the fixed point, shape (n,), where it is known.

    The residual is G(x) - x. While the iteration runs, that of each component is known from its
    last update; a rollback restores it with x. Convergence is confirmed with G computed anew for
    all. The other arguments are those of `relax`, without a method.

    Raises:
        InputError: an argument is invalid.
    """
    from scipy.sparse import csr_array

    from paracosm.relaxation.problems import Problem

    if not callable(G):
        raise InputError(f"G: give a function of x, rows and out, not {G!r}")
    first = _vector("x0", x0)
    n = first.size
    known = None if solution is None else _vector("solution", solution)
    if known is not None and known.size != n:
        raise InputError(f"solution: {known.size} numbers for {n} components")
    try:
        pattern = csr_array((n, n)) if reads is None else csr_array(reads, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("reads: give a matrix of numbers") from None
    if pattern.shape != (n, n):
        raise InputError(f"reads: a matrix of shape {pattern.shape} for {n} components")
    problem = Problem("map", pattern, np.zeros(n), first, known, map=G)
    arguments = {
        "norm": norm,
        "cluster": cluster,
        "fault": fault,
        "checkpoint": checkpoint,
        **fields,
    }
    config = validated(RelaxConfig, {"problem": problem, **arguments}, "relax_map")
    if reads is not None and config.memory == "shared":
        raise InputError("reads: no effect in shared memory: leave it out, or give a network")
    return solve(spec_of(config, seed), progress)


def _vector(name: str, values: Any) -> Floats:
    refuse_masked(values, name)
    try:
        vector = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a vector of numbers") from None
    if vector.ndim != 1 or vector.size == 0 or not np.isfinite(vector).all():
        raise InputError(f"{name} must be a vector of finite numbers")
    return vector


def _problem_of(A: Any, b: Any, x0: Any, solution: Any, method: Any) -> Problem:
    from paracosm.relaxation.problems import Problem, problem_from

    if not isinstance(A, Problem):
        divides = isinstance(method, str | Method) and method_divides(parse_method(method))
        return problem_from(A, b, x0, solution=solution, divides_by_diagonal=divides)
    changes = {"b": b, "x0": x0, "solution": solution}
    arguments = {key: value for key, value in changes.items() if value is not None}
    if not arguments:
        return A
    return problem_from(
        A.A, arguments.get("b", A.b), arguments.get("x0", A.x0), solution=solution, name=A.name
    )


RunProgress = Callable[[int, float | None], None]


@dataclass(frozen=True)
class RelaxationRun:
    """The result of a run."""

    summary: RelaxationSummary
    timeline: Timeline | None  # the first updates; None when they were not recorded
    metrics: MetricSink | None  # the sink that recorded the metrics
    result: RelaxationResult


@np.errstate(over="ignore", invalid="ignore")  # of numbers near the largest or the smallest
def run_relaxation(
    config: RelaxConfig,
    seed: int = 0,
    metrics: MetricSink | None = None,
    progress: RunProgress | None = None,
    announce: Callable[[str], None] | None = None,
) -> RelaxationRun:
    """Simulate an asynchronous iteration; with changes (`what_if`), the unchanged one too.

    Its synchronous baseline comes last, unless `baseline` says otherwise: see `baseline_spec`.

    Args:
        config: the configuration.
        seed: of all random streams.
        metrics: records the residual during the run, and the updates of each processor at the end.
        progress: called some ten times a second with the relaxations so far and the virtual time.
        announce: called before the run with a sentence on the spectral radius.

    Raises:
        InputError: the configuration cannot be used.
    """
    run = _run(spec_of(config, seed), metrics, progress, announce)
    plain = config.model_copy(update={"what_if": (), "timeline": 0, "baseline": False})
    summary = with_unchanged(
        run.summary,
        config.what_if,
        lambda: run_relaxation(plain, seed, progress=progress).summary,
        _compared,
    )
    return replace(run, summary=summary)


_COMPARED = ("status", "virtual_time", "sweeps", "relaxations", "residual")


def _compared(unchanged: RelaxationSummary) -> dict[str, Any]:
    """Return what is kept of the unchanged run."""
    energy = {} if unchanged.energy is None else {"energy": unchanged.energy}
    return {key: unchanged[key] for key in _COMPARED} | energy


def _run(
    spec: RunSpec,
    metrics: MetricSink | None,
    progress: RunProgress | None,
    announce: Callable[[str], None] | None,
) -> RelaxationRun:
    from paracosm.compiled import compiling_announced
    from paracosm.relaxation.spectrum import spectrum_of

    check_spec(spec)  # before what takes long
    radius = spectrum_of(spec)
    if announce is not None and radius is not None:
        announce(radius.sentence)
    policy = spec.config.checkpoint
    if announce is not None and policy is not None:
        warning = advice(policy, _expected_time(spec, radius))
        if warning is not None:
            announce(warning)
    started = time.perf_counter()

    last = -1

    def observed(virtual_time: float, relaxations: int, rows: Any) -> None:
        nonlocal last
        if metrics is not None and len(rows):
            _put_history(metrics, rows, time.perf_counter() - started)
            last = int(rows[-1, 1])
        if progress is not None:
            progress(relaxations, virtual_time)

    def compiling() -> None:
        if announce is not None:
            announce("compiling the simulator, once on this machine: some ten seconds")

    with compiling_announced(compiling):
        result = solve(spec, observed)
    if metrics is not None:
        _put_end(metrics, result, last, time.perf_counter() - started)
    baseline = _baseline(spec, result, metrics, progress)
    summary = replace(summarise(spec, result, radius), twin=baseline)
    return RelaxationRun(summary, _timeline(spec, result), metrics, result)


def _expected_time(spec: RunSpec, radius: SpectralRadius | None) -> float | None:
    """Return about how long the run takes without faults: each sweep reduces x by rho(|C|)."""
    config, problem = spec.config, spec.problem
    rho = None if radius is None else radius.value
    if config.tolerance is None or rho is None or not 0 < rho < 1:
        return config.max_time
    order = 2 if config.norm == 2 else np.inf
    first = 1.0 if config.relative else np.linalg.norm(problem.b - problem.A @ problem.x0, order)
    if not first > config.tolerance > 0:
        return config.max_time
    sweeps = np.log(config.tolerance / first) / np.log(rho)
    update = spec.times.mean(spec.processors)
    return min(float(sweeps) * update, spec.max_time) if update else config.max_time


def _baseline(
    spec: RunSpec,
    result: RelaxationResult,
    metrics: MetricSink | None,
    progress: RunProgress | None,
) -> RelaxationTwin | None:
    """Run the synchronous baseline, if there is one: its residual is a metric of its own."""
    other = None if result.status == "interrupted" else baseline_spec(spec, result)
    if other is None:
        return None

    def pulse(virtual_time: float, relaxations: int, _rows: Any) -> None:
        if progress is not None:
            progress(result.relaxations + relaxations, virtual_time)

    baseline = solve(other, pulse)
    if baseline.status == "interrupted":
        return None
    if metrics is not None:
        steps = np.rint(baseline.sweeps * baseline.x.size).astype(int)
        rows = zip(
            baseline.times.tolist(), steps.tolist(), baseline.residuals.tolist(), strict=True
        )
        for virtual_time, step, residual in rows:
            wall = result.wall_time + baseline.wall_time
            metrics.metric(virtual_time, wall, "twin", "synchronous_residual", residual, step)
    return compare(result, baseline)


def _put_history(metrics: MetricSink, rows: Any, wall_time: float) -> None:
    for virtual_time, relaxations, residual, error in rows.tolist():
        metrics.metric(virtual_time, wall_time, "observer", "residual", residual, int(relaxations))
        if error == error:
            metrics.metric(virtual_time, wall_time, "observer", "error", error, int(relaxations))


def _put_end(metrics: MetricSink, result: RelaxationResult, last: int, wall_time: float) -> None:
    n = result.x.size
    steps = np.rint(result.sweeps * n)
    rows = np.stack([result.times, steps, result.residuals, result.errors], axis=1)
    _put_history(metrics, rows[steps > last], wall_time)
    for mark in result.marks:
        metrics.metric(mark.time, wall_time, "observer", mark.what, mark.residual, mark.relaxations)
    for processor, updates in enumerate(result.updates.tolist()):
        where = result.virtual_time, wall_time, f"processor{processor}"
        metrics.metric(*where, "updates", updates, result.relaxations)


def _timeline(spec: RunSpec, result: RelaxationResult) -> Timeline | None:
    """Return the recorded spans of "compute" and, if synchronous, "wait"; None without any."""
    spans = result.spans
    if spans.processor.size == 0:
        return None
    # When the processor's update before this one ended; its own begin for the first one.
    order = np.argsort(spans.processor, kind="stable")
    again = np.diff(spans.processor[order], prepend=-1) == 0
    before = spans.begin.copy()
    before[order[again]] = spans.end[order[np.flatnonzero(again) - 1]]
    if spec.times.phases == 3:
        names = ["barrier", "copy", "compute", "update"]
        ends = [spans.begin, spans.copied, spans.computed, spans.end]
    else:
        names, ends = ["barrier", "relax"], [spans.begin, spans.end]
    shown = np.ones((len(before), len(ends)), dtype=bool)
    shown[:, 0] = (before < spans.begin) & (spec.barrier is not None)
    kinds = np.arange(len(ends))
    timeline = Timeline()
    timeline.extend(
        Labels(
            spans.processor[:, None],
            [*(f"processor{processor}" for processor in range(spec.processors)), "residual"],
        ),
        Labels(np.minimum(kinds, 1), ["wait", "compute"]),
        Labels(kinds, names),
        np.column_stack([before, *ends[:-1]]),
        np.column_stack(ends),
        where=shown,
    )
    return timeline


def solve(spec: RunSpec, progress: Progress | None = None) -> RelaxationResult:
    """Simulate `spec`; where faults strike at random before convergence, without them first."""
    from paracosm.relaxation.simulate import simulate

    check_spec(spec)
    if spec.horizon is not None or not any(fault.needs_horizon for fault in spec.config.fault):
        return simulate(spec, progress)

    def pulse(virtual_time: float, relaxations: int, rows: Any) -> None:
        if progress is not None:
            progress(virtual_time, relaxations, rows[:0])

    plain = simulate(spec.changed(fault=(), checkpoint=None, timeline=0), pulse)
    if plain.status == "interrupted":
        return plain
    if plain.status == "diverged":
        raise InputError(
            "a fault at a random time strikes before convergence, and this iteration diverges "
            'without any fault: give bounds, such as "at random(0s, 100s)"'
        )
    struck = simulate(replace(spec, horizon=plain.virtual_time), progress)
    return replace(struck, fault_free_time=plain.virtual_time)
