"""From a run as it is specified to the arrays that the loop works on."""

from __future__ import annotations

from math import ceil, inf, log2
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from paracosm.arrays import Ints
from paracosm.errors import InputError
from paracosm.network.clock import LAST_INSTANT
from paracosm.relaxation.config import By
from paracosm.relaxation.kernel import arrays as k
from paracosm.relaxation.kernel.arrays import (
    Blocks,
    Checkpoint,
    Factors,
    Flight,
    History,
    Iterate,
    Matrix,
    Rows,
    Rules,
    Spans,
    State,
    Tally,
    rows_of,
)
from paracosm.relaxation.kernel.blocks import JACOBI, MIX, MOMENTUM, SOLVE, SWEEP, USER
from paracosm.relaxation.kernel.functions import UserFunctions
from paracosm.relaxation.kernel.halo import halo_links, no_links
from paracosm.relaxation.kernel.tournament_tree import new_clock
from paracosm.relaxation.methods import (
    SOR,
    Anderson,
    BlockJacobi,
    Coordinate,
    GaussSeidel,
    Jacobi,
    Richardson,
    SecondOrderRichardson,
    checked_gain,
)
from paracosm.relaxation.partition import Pattern
from paracosm.relaxation.spec import RunSpec
from paracosm.rng import RelaxationStream, stream_keys
from paracosm.timing.compiled import Draws, tabulate

if TYPE_CHECKING:
    from scipy.sparse import csr_array


CHOICE_OF = {"fixed": k.FIXED, "cyclic": k.IN_TURN, "random": k.AT_RANDOM}

SAMPLES = 4096  # rows of the history: between half of it and all of it are used
MARKS = 10_000
BINS = 1024


def prepare(spec: RunSpec, functions: UserFunctions) -> State:
    """Return everything that a run works on at time 0, before any processor has begun."""
    problem, pattern, processors = spec.problem, spec.pattern, spec.processors
    n = problem.n
    method = spec.method
    momentum = method.beta if isinstance(method, SecondOrderRichardson) else 0.0
    shape = (method.window, n) if isinstance(method, Anderson) else (0, 0)
    blocks = blocks_of(pattern)
    draws, phase_rows = _draws(spec)
    counters, gauges = np.zeros(k.COUNTERS, np.int64), np.zeros(k.GAUGES)
    gauges[k.NEXT_CHECKPOINT] = inf if spec.config.checkpoint is None else _interval(spec)
    gauges[k.SEEN] = gauges[k.REACHED] = -1.0
    gauges[k.ERROR_AGAIN] = inf
    gauges[k.SAMPLE_EVERY] = max(1.0, n / 16)
    flight = _flight(spec, blocks)
    halos, ports = no_links(), None
    if spec.cluster is not None or spec.config.detect.by == "snapshot":
        jitter = -1 if spec.config.latency_jitter is None else len(draws.kind) - 1
        halos, ports = halo_links(spec, jitter)
    # On the processors' clock, what the network's picoseconds can count.
    last_instant = inf if ports is None else (LAST_INSTANT * 1e-12 - 1.0) * spec.ticks
    return State(
        rules=_rules(spec, functions, momentum, last_instant),
        matrix=_matrix(spec),
        rows_of_a=_rows(spec, functions),
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
            past=np.zeros((2, shape[0] + 1, shape[1])),
            basis=np.zeros((2, *shape)),
            pairs=np.zeros(processors, np.int64),
        ),
        clock=new_clock(processors + 1),
        flight=flight,
        tally=Tally(
            np.zeros(BINS, np.int64),
            np.full(processors + 1, -1.0),
            np.full(processors, -1.0),
            np.full(processors, -1.0),
            np.zeros(processors, np.int64),
            np.zeros(processors, np.int64),
            np.zeros(n if spec.config.detect.by == "snapshot" else 0),
            np.zeros(processors + 1),
        ),
        halos=halos,
        ports=ports,
        checkpoint=Checkpoint(
            np.zeros(0) if spec.config.checkpoint is None else problem.x0.copy(),
            np.zeros(0 if spec.config.checkpoint is None or problem.map is None else n),
        ),
        history=History(np.zeros((SAMPLES, 4)), np.zeros((MARKS, 4))),
        spans=Spans(np.zeros(spec.config.timeline, np.int32), np.zeros((spec.config.timeline, 4))),
        draws=draws,
        phase_rows=phase_rows,
        streams=stream_keys(spec.seed, RelaxationStream.TIMES, processors + 1),
        choices=stream_keys(spec.seed, RelaxationStream.CHOICES, processors + 1),
        counters=counters,
        gauges=gauges,
        update=functions.update,
        pattern=functions.choose,
        time=functions.time,
        apart=k.Apart(0, 0, 0),
    )


def blocks_of(pattern: Pattern) -> Blocks:
    """Return the blocks of a pattern as the loop reads them."""
    return Blocks(pattern.pointer.astype(np.int64), pattern.rows.astype(np.int64))


def _rules(spec: RunSpec, functions: UserFunctions, momentum: float, last_instant: float) -> Rules:
    method, config, policy = spec.method, spec.config, spec.config.checkpoint
    kind = JACOBI
    if method is None:
        kind = USER
    elif momentum:
        kind = MOMENTUM
    elif isinstance(method, GaussSeidel | SOR):
        kind = SWEEP
    elif isinstance(method, BlockJacobi):
        kind = SOLVE
    elif isinstance(method, Anderson):
        kind = MIX
    tolerance = -1.0 if config.tolerance is None else config.tolerance
    # Numba compiles anew for every mixture of whole and real numbers.
    return Rules(
        method=kind,
        omega=1.0 if method is None or method.omega is None else float(method.omega),
        momentum=float(momentum),
        mix_every=int(method.every if isinstance(method, Anderson) else 1),
        at_start=spec.read == "start",
        after_copy=spec.reads_after_copy,
        barrier=float(-1.0 if spec.barrier is None else spec.barrier * spec.ticks),
        processors=int(spec.processors),
        choice=CHOICE_OF[spec.pattern.choice],
        coordinates=int(method.count if isinstance(method, Coordinate) else 0),
        compiled_values=functions.compiled_values,
        compiled_rows=functions.compiled_rows,
        compiled_time=functions.compiled_time,
        python_rows=functions.python_rows is not None,
        python_values=functions.python_values is not None or functions.python_time is not None,
        distributed=spec.cluster is not None,
        last_instant=float(last_instant),
        ticks=float(config.scale_factor or 0.0),
        time_slice=float(spec.time_slice * spec.ticks),
        cores=int(config.cores or 1),
        threads=int(spec.threads),
        phases=int(spec.times.phases),
        joint=spec.times.joint,
        detect=get_args(By).index(config.detect.by),  # as IDEAL, ..., SNAPSHOT
        every=int(config.detect.every),
        linked=spec.cluster is not None or config.detect.by == "snapshot",
        limit=float(tolerance),
        infinity=config.norm != 2,
        error_limit=float(-1.0 if config.error_tolerance is None else config.error_tolerance),
        alpha=float(0.0 if policy is None else policy.alpha),
        interval=float(0.0 if policy is None else _interval(spec)),
        own_block=policy is not None and policy.scope == "block",
        component=policy is not None and policy.monitor == "component",
        cost=float(0.0 if policy is None else policy.cost * spec.ticks),
        restore=float(0.0 if policy is None else policy.restore * spec.ticks),
        bin_shift=int(max(0, ceil(log2(8 * spec.processors / BINS)))),
    )


def _rows(spec: RunSpec, functions: UserFunctions) -> Rows:
    from scipy.sparse import csr_array

    return rows_of(spec.problem.A if functions.compiled_values else csr_array((0, 0)))


def _interval(spec: RunSpec) -> float:
    assert spec.config.checkpoint is not None
    return spec.config.checkpoint.omega * spec.ticks


def _matrix(spec: RunSpec) -> Matrix:
    problem, n = spec.problem, spec.problem.n
    gain = np.zeros(n) if spec.method is None else checked_gain(spec.method, problem.A)
    nothing = np.zeros(0, np.int64)
    grid = np.zeros(3, np.int64), np.zeros((0, 3), np.int64), np.zeros(0)
    if spec.problem.map is not None:
        return Matrix(nothing, nothing.astype(np.uint32), np.zeros(0), problem.b, gain, *grid)
    if spec.config.matrix_free:
        stencil = problem.stencil
        if stencil is None:
            raise InputError(f"{problem.name}: only grid problems are stencils; use the matrix")
        if not isinstance(spec.method, _STENCIL_METHODS):
            raise InputError(f"matrix-free: {spec.method} needs the matrix")
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


_STENCIL_METHODS = (Jacobi, Richardson, SecondOrderRichardson, Coordinate, Anderson)


def _flight(spec: RunSpec, blocks: Blocks) -> Flight:
    processors = spec.processors
    capacity = slots_for(spec, blocks)
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


def slots_for(spec: RunSpec, blocks: Blocks) -> Ints:
    """Return room for how many rows each processor's update in flight needs, shape (p,)."""
    sizes = np.diff(blocks.pointer)
    processors = spec.processors
    if spec.pattern.choice == "fixed" and sizes.size == processors:
        capacity = sizes
    else:
        capacity = np.full(processors, sizes.max())
    if isinstance(spec.method, Coordinate):
        capacity = np.maximum(capacity, spec.method.count)
    return capacity


def _draws(spec: RunSpec) -> tuple[Draws, Ints]:
    times, processors = spec.times, spec.processors
    phases = times.phases
    distributions: list[Any] = [phase for update in times.updates for phase in update]
    rows = np.zeros((processors + 1, phases), np.int64)
    if len(times.updates) > 1:
        rows[:processors] = np.arange(processors * phases).reshape(processors, phases)
    elif times.updates:
        rows[:processors] = np.arange(phases)
    if spec.config.detect.by == "processor":
        rows[processors] = len(distributions) + np.arange(phases)
        distributions += _watcher(spec)
    if spec.cluster is not None and spec.config.latency_jitter is not None:
        distributions.append(spec.config.latency_jitter)
    table = tabulate(distributions)
    if table is None:
        raise InputError("time: a distribution of your own class: pass a function instead")
    return table, rows


def _watcher(spec: RunSpec) -> list[Any]:
    """Return the phases of the residual processor: as given, as measured, or as an update."""
    from paracosm.timing import Constant

    phases = spec.times.phases
    if spec.config.detect.time is not None:
        return [spec.config.detect.time, *[Constant(0.0)] * (phases - 1)]
    if spec.times.residual is not None:
        distributions = list(spec.times.residual)
        return [*distributions, *[Constant(0.0)] * (phases - len(distributions))]
    if not spec.times.updates:
        raise InputError(
            "residual test: the processor's time is missing: write processor(time=20ms)"
        )
    return list(spec.times.of(0))


def no_factors() -> Factors:
    """Return the factors of no block at all."""
    whole, index, real = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0)
    return Factors(whole, whole, index, real, whole, index, real, real, whole, whole)


def block_factors(A: csr_array, pattern: Pattern) -> Factors:
    """Factorise every block's own part of A (SuperLU): P A_kk Q = L U."""
    from scipy.sparse.linalg import splu

    lower, upper, pivots, row_orders, column_orders = [], [], [], [], []
    for block in range(pattern.blocks):
        rows = pattern.block(block)
        try:
            factors = splu(A[rows][:, rows].tocsc())
        except RuntimeError:
            raise InputError(
                f"block-jacobi: the equations of block {block} alone are singular; "
                "choose another method or pattern"
            ) from None
        lower.append(_without_diagonal(factors.L.tocsc()))
        upper.append(_without_diagonal(factors.U.tocsc()))
        with np.errstate(over="ignore"):
            pivots.append(1.0 / factors.U.diagonal())
        if not np.isfinite(pivots[-1]).all():
            raise InputError(
                f"block-jacobi: the equations of block {block} have pivots so small that their "
                "reciprocals are infinite: scale A and b"
            )
        row_orders.append(factors.perm_r)
        column_orders.append(factors.perm_c)
    return Factors(
        pattern.pointer.astype(np.int64),
        *_stacked(lower),
        *_stacked(upper),
        np.concatenate(pivots),
        np.concatenate(row_orders).astype(np.int64),
        np.concatenate(column_orders).astype(np.int64),
    )


def _without_diagonal(triangle: Any) -> Any:
    from scipy.sparse import csc_array

    columns = csc_array(triangle, copy=True)
    columns.setdiag(0)
    columns.eliminate_zeros()
    columns.sort_indices()
    return columns


def _stacked(parts: list[Any]) -> tuple[Any, Any, Any]:
    """Return pointers, indices (within a block) and data of all blocks behind each other."""
    counts = np.concatenate([np.diff(part.indptr) for part in parts])
    pointer = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    index = np.concatenate([part.indices for part in parts]).astype(np.int32)
    return pointer, index, np.concatenate([part.data for part in parts])
