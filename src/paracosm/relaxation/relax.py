"""Relaxation x = G(x) on simulated processors: the functions that Python users call."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.errors import InputError, unknown
from paracosm.faults import parse_checkpoint, parse_faults
from paracosm.relaxation.detection import Detection, parse_detection
from paracosm.relaxation.methods import Method, gauss_seidel_of, method_divides, parse_method
from paracosm.relaxation.request import FixedPoint, Network, Read, Request, Stop
from paracosm.relaxation.solve import solve
from paracosm.relaxation.times import at_speeds, read_times
from paracosm.timing import parse_distribution

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from paracosm.cluster import Cluster
    from paracosm.faults import CheckpointPolicy
    from paracosm.relaxation.patterns import Pattern
    from paracosm.relaxation.problems import Problem
    from paracosm.relaxation.result import RelaxationResult

__all__ = ["network_of", "relax", "relax_map"]

Function = Callable[..., Any]


def relax(
    A: Any,
    b: ArrayLike | None = None,
    x0: ArrayLike | None = None,
    *,
    update: str | Method | Function = "jacobi",
    pattern: str | Pattern | Sequence[ArrayLike] | Function = "contiguous",
    time: Any = 1.0,
    processors: int | None = None,
    read: str = "start",
    synchronous: bool = False,
    barrier: float = 0.0,
    tolerance: float | None = 1e-6,
    norm: float = 2,
    relative: bool = False,
    error_tolerance: float | None = None,
    max_time: float = inf,
    max_sweeps: float = inf,
    detection: str | Detection = "ideal",
    scale_factor: float | None = None,
    solution: ArrayLike | None = None,
    cluster: Cluster | None = None,
    latency_jitter: Any = None,
    ordered: bool = True,
    faults: Any = None,
    checkpoint: str | CheckpointPolicy | None = None,
    matrix_free: bool = False,
    timeline_updates: int = 0,
    seed: int = 0,
    progress: Function | None = None,
) -> RelaxationResult:
    """Solve A x = b by relaxation on processors that do not wait for each other.

    The three functions of Coleman, Jensen and Sosonkina (section 4) are `update`, `pattern` and
    `time`; each is a name, an object of this package, or a function of your own. One compiled with
    `numba.njit` runs at the full speed of the simulator, a plain one is called from it.

    Args:
        A: SciPy sparse or dense matrix of shape (n, n), or a Problem.
        b: right-hand side, shape (n,); by default as the Problem has it, or uniform random.
        x0: first iterate, shape (n,); zeros by default.
        update: a method ("jacobi", "sor(1.5)", "block-jacobi", ...; `METHODS` has all), or a
            function `(x, rows, A, b, out)` that writes the new values of `rows`, shape (k,), to
            `out`, shape (k,). `A` has the arrays `indptr`, `indices` and `data` of its rows.
        pattern: which rows belong to whom: a name ("contiguous", "nonzeros", "graph", "cyclic",
            "random", "overlapping(rows=5)"; "contiguous; cyclic after 100s"), a Pattern, a list of
            blocks of rows, or a function `(processor, update, u)` that returns the rows of a
            processor's next update; u is a random number, uniform in (0, 1).
        time: how long an update takes, in seconds: a distribution or its string, one for each
            processor, a mapping of distributions for the phases copy, compute and update, a file
            that `paracosm relax measure` wrote, or a function `(processor, update, u)`.
        processors: how many; by default as many as the pattern or `time` says, or 1.
        read: "start": a processor computes from what it reads when its update begins (Definition
            1); "completion": from what it finds when its update ends (Algorithm 2, literally);
            "gauss-seidel": completion, and row after row within the block.
        synchronous: all wait for the slowest at a barrier, which costs `barrier` seconds.
        tolerance: norm of the residual to reach; None: none.
        norm: 2 or infinity.
        relative: whether `tolerance` is relative to the first residual.
        error_tolerance: norm of x - solution to reach, where `solution` is known.
        max_time: virtual time after which the iteration is stopped, seconds.
        max_sweeps: sweeps (n relaxations) after which it is stopped.
        detection: who notices: "ideal", "processor(time=20ms)" (Algorithm 3), "local(every=10)"
            (Algorithm 4).
        scale_factor: durations are multiplied with it and rounded to whole ticks, as in the paper.
        solution: the solution, shape (n,), where it is known.
        cluster: distributed memory: halo values travel over its links, processor i being its i-th
            worker, and its speeds divide the durations.
        latency_jitter: a distribution that adds to the latency of each message.
        ordered: whether messages of a link keep their order; if not, the latest still wins.
        faults: what goes wrong: "uniform(-100, 100) at random", or several.
        checkpoint: "alpha=2, omega=10": see `paracosm.faults`.
        matrix_free: use the stencil of a grid problem in place of its matrix.
        timeline_updates: how many updates `spans` keeps.
        seed: decides everything that is random.
        progress: called some ten times a second; see `simulate.Progress`.

    Raises:
        InputError: for what cannot be; one line.
    """
    problem = _problem(A, b, x0, solution, update)
    count = _count(processors, pattern, time, cluster)
    method, function, when = _update(update, read)
    speeds = [] if cluster is None else _speeds(cluster, count)
    if barrier and not synchronous:
        raise InputError("barrier: only a synchronous iteration has one")
    if latency_jitter is not None and cluster is None:
        raise InputError("latency_jitter: only messages have a latency; give a cluster")
    request = Request(
        problem=problem,
        method=method,
        patterns=_patterns(pattern, problem, count, seed),
        times=at_speeds(read_times(time, count), speeds),
        read=when,
        barrier=barrier if synchronous else None,
        ticks=scale_factor,
        detection=parse_detection(detection),
        stop=Stop(tolerance, norm, relative, error_tolerance, max_time, max_sweeps * problem.n),
        network=None if cluster is None else network_of(cluster, latency_jitter, ordered),
        faults=parse_faults(faults),
        checkpoint=None if checkpoint is None else parse_checkpoint(checkpoint),
        update=function,
        choose=pattern if callable(pattern) else None,
        matrix_free=matrix_free,
        spans=timeline_updates,
        seed=seed,
    )
    return solve(request, progress)


def relax_map(
    G: Function,
    x0: ArrayLike,
    *,
    pattern: str | Pattern | Sequence[ArrayLike] | Function = "contiguous",
    time: Any = 1.0,
    processors: int | None = None,
    tolerance: float | None = 1e-6,
    norm: float = 2,
    relative: bool = False,
    solution: ArrayLike | None = None,
    error_tolerance: float | None = None,
    max_time: float = inf,
    max_sweeps: float = inf,
    detection: str | Detection = "ideal",
    read: str = "start",
    synchronous: bool = False,
    barrier: float = 0.0,
    scale_factor: float | None = None,
    faults: Any = None,
    timeline_updates: int = 0,
    seed: int = 0,
    progress: Function | None = None,
) -> RelaxationResult:
    """Iterate x = G(x), any map, on processors that do not wait for each other.

    Args:
        G: `(x, rows, out)` writes G's components `rows`, shape (k,), at x, shape (n,), to `out`,
            shape (k,); compiled by `numba.njit`, or plain Python.
        x0: first iterate, shape (n,).

    The residual is G(x) - x. While the iteration runs, that of each component is known from its
    last update; convergence is confirmed with G computed anew for all. The other arguments are
    those of `relax`.

    Raises:
        InputError: for what cannot be; one line.
    """
    from scipy.sparse import csr_array

    from paracosm.relaxation.problems import Problem

    first = _vector("x0", x0)
    n = first.size
    known = None if solution is None else _vector("solution", solution)
    if known is not None and known.size != n:
        raise InputError(f"solution: {known.size} numbers for {n} components")
    problem = Problem("map", csr_array((n, n)), np.zeros(n), first, known)
    count = _count(processors, pattern, time, None)
    request = Request(
        problem=problem,
        method=None,
        patterns=_patterns(pattern, problem, count, seed),
        times=read_times(time, count),
        read=_read(read),
        barrier=barrier if synchronous else None,
        ticks=scale_factor,
        detection=parse_detection(detection),
        stop=Stop(tolerance, norm, relative, error_tolerance, max_time, max_sweeps * n),
        faults=parse_faults(faults),
        choose=pattern if callable(pattern) else None,
        fixed_point=FixedPoint(G),
        spans=timeline_updates,
        seed=seed,
    )
    return solve(request, progress)


def _vector(name: str, values: Any) -> NDArray[np.float64]:
    try:
        vector = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} has to be a vector of numbers") from None
    if vector.ndim != 1 or vector.size == 0 or not np.isfinite(vector).all():
        raise InputError(f"{name} has to be a vector of finite numbers")
    return vector


def network_of(cluster: Cluster, jitter: Any = None, ordered: bool = True) -> Network:
    """Return the network between the workers of a cluster; processor i is the i-th of them."""
    names = cluster.workers
    return Network(
        lambda source, target: cluster.link(names[source], names[target]),
        None if jitter is None else parse_distribution(jitter),
        ordered,
    )


def _problem(A: Any, b: Any, x0: Any, solution: Any, update: Any) -> Problem:
    from paracosm.relaxation.problems import Problem, problem_from

    if not isinstance(A, Problem):
        divides = not callable(update) and method_divides(parse_method(update))
        return problem_from(A, b, x0, solution=solution, divides_by_diagonal=divides)
    changes = {"b": b, "x0": x0, "solution": solution}
    given = {key: value for key, value in changes.items() if value is not None}
    if not given:
        return A
    return problem_from(
        A.A, given.get("b", A.b), given.get("x0", A.x0), solution=solution, name=A.name
    )


def _count(processors: int | None, pattern: Any, time: Any, cluster: Cluster | None) -> int:
    """Return the number of processors, as given or as one of the other arguments says."""
    if processors is not None:
        try:
            given = operator.index(processors)
        except TypeError:
            given = 0
        if given < 1:
            raise InputError(f"processors: a whole number from 1, not {processors!r}")
        return given
    if (count := getattr(pattern, "processors", None)) is not None:
        return int(count)
    if cluster is not None:
        return len(cluster.workers)
    for listed in (pattern, time):
        if isinstance(listed, Sequence) and not isinstance(listed, str):
            return len(listed)
    return 1


def _speeds(cluster: Cluster, count: int) -> list[float]:
    if count != (workers := len(cluster.workers)):
        raise InputError(f"cluster: it has {workers} workers for {count} processors")
    return [node.speed for node in cluster.nodes[:count]]


def _update(update: Any, read: str) -> tuple[Method | None, Function | None, Read]:
    if callable(update):
        if read == "gauss-seidel":
            raise InputError("read gauss-seidel: goes with a method, not with a function")
        return None, update, _read(read)
    method = parse_method(update)
    if read == "gauss-seidel":
        return gauss_seidel_of(method), None, "completion"
    return method, None, _read(read)


def _read(read: str) -> Read:
    if read == "start":
        return "start"
    if read == "completion":
        return "completion"
    raise unknown("read", read, ("start", "completion", "gauss-seidel"))


def _patterns(
    pattern: Any, problem: Problem, count: int, seed: int
) -> tuple[tuple[float, Pattern], ...]:
    from paracosm.relaxation.patterns import (
        Pattern,
        contiguous,
        parse_patterns,
        pattern_from_blocks,
    )

    if callable(pattern):
        return ((0.0, contiguous(problem.n, count)),)
    if isinstance(pattern, str):
        return tuple(parse_patterns(pattern, problem, count, seed))
    made = pattern
    if not isinstance(pattern, Pattern):
        made = pattern_from_blocks(list(pattern), problem.n)
    if made.processors != count:
        raise InputError(f"pattern: {made.processors} blocks for {count} processors")
    return ((0.0, made),)
