"""From a request to the arrays that the loop works on."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError
from paracosm.relaxation.kernel.arrays import (
    Blocks,
    Checkpoint,
    Clock,
    Factors,
    Flight,
    Halos,
    History,
    Iterate,
    Matrix,
    Rows,
    Spans,
    State,
    Tally,
)
from paracosm.relaxation.kernel.blocks import JACOBI, MOMENTUM, SOLVE, SWEEP, USER
from paracosm.relaxation.kernel.factors import block_factors, no_factors
from paracosm.relaxation.kernel.functions import UserFunctions
from paracosm.relaxation.kernel.links import halo_links, no_links
from paracosm.relaxation.kernel.scalars import (
    AT_RANDOM,
    COUNTERS,
    ERROR_AGAIN,
    FIXED,
    GAUGES,
    IDEAL,
    IN_TURN,
    LOCAL,
    NEXT_CHECKPOINT,
    PROCESSOR,
    SAMPLE_EVERY,
    SEEN,
    Rules,
)
from paracosm.relaxation.kernel.tree import new_clock
from paracosm.relaxation.methods import (
    SOR,
    BlockJacobi,
    Coordinate,
    GaussSeidel,
    Jacobi,
    Richardson,
    SecondOrderRichardson,
    method_gain,
)
from paracosm.relaxation.patterns import Pattern
from paracosm.relaxation.request import Request
from paracosm.timing.compiled import Draws, stream_keys, tabulate

__all__ = ["CHOICE_OF", "Arrays", "blocks_of", "prepare", "reads_after_copy", "slots_for"]

CHOICE_OF = {"fixed": FIXED, "cyclic": IN_TURN, "random": AT_RANDOM}

# Purposes of random streams.
TIMES, CHOICES, MESSAGES = 1, 2, 3
SAMPLES = 4096  # rows of the history: between half of it and all of it are used
MARKS = 10_000
BINS = 1024


@dataclass
class Arrays:
    """Everything the loop works on, in parts that can be replaced."""

    rules: Rules
    matrix: Matrix
    rows_of_a: Rows
    blocks: Blocks
    factors: Factors
    iterate: Iterate
    clock: Clock
    flight: Flight
    tally: Tally
    halos: Halos
    checkpoint: Checkpoint
    history: History
    spans: Spans
    draws: Draws
    phase_rows: NDArray[np.int64]
    streams: NDArray[np.uint64]
    choices: NDArray[np.uint64]
    counters: NDArray[np.int64]
    gauges: NDArray[np.float64]
    functions: UserFunctions

    def state(self) -> State:
        """Return all of it as the loop takes it."""
        f = self.functions
        return State(
            self.rules, self.matrix, self.rows_of_a, self.blocks, self.factors, self.iterate,
            self.clock, self.flight, self.tally, self.halos, self.checkpoint, self.history,
            self.spans, self.draws, self.phase_rows, self.streams, self.choices, self.counters,
            self.gauges, f.update, f.choose, f.time,
        )  # fmt: skip


def prepare(request: Request, functions: UserFunctions) -> Arrays:
    """Return the arrays of `request` at time 0, before any processor has begun.

    Raises:
        InputError: parts that do not go together, or a block whose own equations are singular.
    """
    problem, pattern, processors = request.problem, request.pattern, request.processors
    n = problem.n
    method = request.method
    momentum = method.beta if isinstance(method, SecondOrderRichardson) else 0.0
    blocks = blocks_of(pattern)
    draws, phase_rows = _draws(request)
    counters, gauges = np.zeros(COUNTERS, np.int64), np.zeros(GAUGES)
    gauges[NEXT_CHECKPOINT] = inf if request.checkpoint is None else _interval(request)
    gauges[SEEN] = -1.0
    gauges[ERROR_AGAIN] = inf
    gauges[SAMPLE_EVERY] = max(1.0, n / 16)
    flight = _flight(request, blocks)
    return Arrays(
        rules=_rules(request, functions, momentum),
        matrix=_matrix(request),
        rows_of_a=_rows(request, functions),
        blocks=blocks,
        factors=block_factors(problem.A, pattern)
        if isinstance(method, BlockJacobi)
        else no_factors(),
        iterate=Iterate(
            x=problem.x0.copy(),
            residual=np.zeros(n),
            previous=problem.x0.copy() if momentum else np.zeros(0),
            work=np.zeros(n),
            stamp=np.zeros(n, np.int64),
            solution=np.zeros(0) if problem.solution is None else problem.solution.copy(),
        ),
        clock=new_clock(processors + 1),
        flight=flight,
        tally=Tally(
            np.zeros(BINS, np.int64),
            np.full(processors + 1, -1.0),
            np.full(processors, -1.0),
            np.full(processors, -1.0),
        ),
        halos=no_links()
        if request.network is None
        else halo_links(
            problem,
            pattern,
            request.network,
            request.ticks or 1.0,
            -1 if request.network.jitter is None else len(draws.kind) - 1,
            request.seed,
            MESSAGES,
        ),
        checkpoint=Checkpoint(np.zeros(0) if request.checkpoint is None else problem.x0.copy()),
        history=History(np.zeros((SAMPLES, 4)), np.zeros((MARKS, 4))),
        spans=Spans(np.zeros(request.spans, np.int32), np.zeros((request.spans, 4))),
        draws=draws,
        phase_rows=phase_rows,
        streams=stream_keys(request.seed, TIMES, processors + 1),
        choices=stream_keys(request.seed, CHOICES, processors + 1),
        counters=counters,
        gauges=gauges,
        functions=functions,
    )


def reads_after_copy(request: Request) -> bool:
    """Say whether processors read at the end of a phase of its own."""
    return request.read == "start" and request.times.phases == 3 and request.barrier is None


def blocks_of(pattern: Pattern) -> Blocks:
    """Return the blocks of a pattern as the loop reads them."""
    return Blocks(pattern.pointer.astype(np.int64), pattern.rows.astype(np.int64))


def _rules(request: Request, functions: UserFunctions, momentum: float) -> Rules:
    method, stop, policy = request.method, request.stop, request.checkpoint
    kind = JACOBI
    if method is None:
        kind = USER
    elif momentum:
        kind = MOMENTUM
    elif isinstance(method, GaussSeidel | SOR):
        kind = SWEEP
    elif isinstance(method, BlockJacobi):
        kind = SOLVE
    tolerance = -1.0 if stop.tolerance is None else stop.tolerance
    # Numba compiles anew for every mixture of whole and real numbers.
    return Rules(
        method=kind,
        omega=1.0 if method is None or method.omega is None else float(method.omega),
        momentum=float(momentum),
        at_start=request.read == "start",
        after_copy=reads_after_copy(request),
        barrier=float(
            -1.0 if request.barrier is None else request.barrier * (request.ticks or 1.0)
        ),
        processors=int(request.processors),
        choice=CHOICE_OF[request.pattern.choice],
        coordinates=int(method.count if isinstance(method, Coordinate) else 0),
        compiled_values=functions.compiled_values,
        compiled_rows=functions.compiled_rows,
        compiled_time=functions.compiled_time,
        python_rows=functions.python_rows is not None,
        python_values=functions.python_values is not None or functions.python_time is not None,
        distributed=request.network is not None,
        ticks=float(request.ticks or 0.0),
        phases=int(request.times.phases),
        joint=request.times.joint,
        detect={"ideal": IDEAL, "processor": PROCESSOR, "local": LOCAL}[request.detection.by],
        every=int(request.detection.every),
        limit=float(tolerance),
        infinity=stop.norm != 2,
        error_limit=float(-1.0 if stop.error is None else stop.error),
        alpha=float(0.0 if policy is None else policy.alpha),
        interval=float(0.0 if policy is None else _interval(request)),
        own_block=policy is not None and policy.scope == "block",
        component=policy is not None and policy.monitor == "component",
        cost=float(0.0 if policy is None else policy.cost * (request.ticks or 1.0)),
        restore=float(0.0 if policy is None else policy.restore * (request.ticks or 1.0)),
        bin_shift=int(max(0, ceil(log2(8 * request.processors / BINS)))),
    )


def _rows(request: Request, functions: UserFunctions) -> Rows:
    """Return the rows of A, if somebody reads them."""
    if not functions.compiled_values:
        return Rows(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0))
    A = request.problem.A
    return Rows(A.indptr.astype(np.int64), A.indices.astype(np.int32), A.data.copy())


def _interval(request: Request) -> float:
    assert request.checkpoint is not None
    return request.checkpoint.omega * (request.ticks or 1.0)


def _matrix(request: Request) -> Matrix:
    problem, n = request.problem, request.problem.n
    gain = np.zeros(n) if request.method is None else method_gain(request.method, problem.A)
    nothing = np.zeros(0, np.int64)
    grid = np.zeros(3, np.int64), np.zeros((0, 3), np.int64), np.zeros(0)
    if request.fixed_point is not None:
        return Matrix(nothing, nothing.astype(np.uint32), np.zeros(0), problem.b, gain, *grid)
    if request.matrix_free:
        stencil = problem.stencil
        if stencil is None:
            raise InputError(f"{problem.name}: only grid problems are stencils; use the matrix")
        if not isinstance(request.method, _STENCIL_METHODS):
            raise InputError(f"matrix-free: {request.method} needs the matrix")
        missing = 3 - len(stencil.shape)
        shape = np.array((1,) * missing + tuple(stencil.shape), np.int64)
        offsets = np.pad(stencil.offsets, ((0, 0), (missing, 0))).astype(np.int64)
        coefficients = np.asarray(stencil.coefficients, np.float64)
        return Matrix(
            nothing, nothing.astype(np.uint32), np.zeros(0), problem.b.copy(), gain, shape,
            offsets, coefficients,
        )  # fmt: skip
    columns = problem.A.tocsc()
    columns.sort_indices()
    return Matrix(
        columns.indptr.astype(np.int64),
        columns.indices.astype(np.uint32),
        columns.data.astype(np.float64),
        problem.b.copy(),
        gain,
        *grid,
    )


_STENCIL_METHODS = (Jacobi, Richardson, SecondOrderRichardson, Coordinate)


def _flight(request: Request, blocks: Blocks) -> Flight:
    processors = request.processors
    capacity = slots_for(request, blocks)
    slot = np.concatenate([[0], np.cumsum(capacity)]).astype(np.int64)
    return Flight(
        slot=slot,
        values=np.zeros(slot[-1]),
        chosen=np.zeros(slot[-1], np.int64),
        size=np.full(processors, -1, np.int64),
        block=np.arange(processors, dtype=np.int64) % (blocks.pointer.size - 1),
        read_at=np.zeros(processors, np.int64),
        updates=np.zeros(processors + 1, np.int64),
        stale=np.zeros(processors, np.bool_),
        given=np.full(processors + 1, np.nan),
        due=np.zeros(processors + 1, np.int64),
        copying=np.zeros(processors + 1, np.bool_),
        end=np.zeros(processors + 1),
    )


def slots_for(request: Request, blocks: Blocks) -> NDArray[np.int64]:
    """Return room for how many rows each processor's update in flight needs, shape (p,)."""
    sizes = np.diff(blocks.pointer)
    processors = request.processors
    if request.pattern.choice == "fixed" and sizes.size == processors:
        capacity = sizes
    else:
        capacity = np.full(processors, sizes.max())
    if isinstance(request.method, Coordinate):
        capacity = np.maximum(capacity, request.method.count)
    return capacity


def _draws(request: Request) -> tuple[Draws, NDArray[np.int64]]:
    """Return the table of all distributions, and who draws from which."""
    times, processors = request.times, request.processors
    phases = times.phases
    distributions: list[Any] = [phase for update in times.updates for phase in update]
    rows = np.zeros((processors + 1, phases), np.int64)
    if len(times.updates) > 1:
        rows[:processors] = np.arange(processors * phases).reshape(processors, phases)
    elif times.updates:
        rows[:processors] = np.arange(phases)
    if request.detection.by == "processor":
        watcher = _watcher(request)
        rows[processors] = len(distributions) + np.arange(phases)
        distributions += watcher
    if request.network is not None and request.network.jitter is not None:
        distributions.append(request.network.jitter)
    table = tabulate(distributions)
    if table is None:
        raise InputError("time: a distribution of your own class: pass a function instead")
    return table, rows


def _watcher(request: Request) -> list[Any]:
    """Return the phases of the residual processor: as given, as measured, or as an update."""
    from paracosm.timing import Constant

    phases = request.times.phases
    if request.detection.time is not None:
        return [request.detection.time, *[Constant(0.0)] * (phases - 1)]
    if request.times.residual is not None:
        given = list(request.times.residual)
        return [*given, *[Constant(0.0)] * (phases - len(given))]
    if not request.times.updates:
        raise InputError("residual test: say how long the processor takes: processor(time=20ms)")
    return list(request.times.of(0))
