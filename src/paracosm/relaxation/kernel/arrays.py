"""What the compiled loop works on: plain arrays in named tuples, which Numba reads as they are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paracosm.timing.compiled import Draws

__all__ = [
    "Blocks",
    "Checkpoint",
    "Clock",
    "Factors",
    "Flight",
    "Halos",
    "History",
    "Iterate",
    "Matrix",
    "Ports",
    "Rows",
    "Rules",
    "Spans",
    "State",
    "Tally",
]


# Numba takes module constants as they are; enumerations cost it types that do not unify.


# Why the loop came back.
DETECTED = 0  # the stopping rule says converged; not confirmed yet
DIVERGED = 1  # the residual is too large, infinite or not a number
PAUSED = 2  # nothing more happens up to the time that was asked for
SLICE = 3  # as many relaxations as were asked for
CALL_ROWS = 4  # a Python function has to say which rows those who are due update next
CALL_VALUES = 5  # Python functions have to say new values, or durations
BAD_TIME = 6  # a duration is zero, negative or infinite
EXHAUSTED = 7  # a duration is not a number: a recording has come to its end, or a function's fault
BAD_ROWS = 9  # a compiled pattern function returned rows that are none
TOO_LATE = 10  # beyond the clock of the network
GROW = 8  # a processor's slot is too small for its rows
GO_ON = -1

# Who notices convergence.
IDEAL = 0  # an observer who sees the residual at every instant, at no cost
PROCESSOR = 1  # a processor that does nothing else (Algorithm 3)
LOCAL = 2  # the sum of local residuals, each contributed every k-th update (Algorithm 4)

# Which block a processor updates next.
FIXED, IN_TURN, AT_RANDOM = range(3)

# What happened besides relaxations.
FAULT, ROLLBACK, CHECKPOINT = range(3)

# What the loop does next.
START, NEXT, GATHER, READ, WRITE = range(5)

# The whole numbers of a run.
(
    STAGE,
    DUE,  # processors in `flight.due`
    POSITION,  # of them have begun their next update
    STARTING,  # they are everybody, and nobody has updated yet
    UPDATES,  # written, by all processors
    RELAXATIONS,
    SPANS,
    SAMPLES,
    MARKS,
    CHECKPOINTS,
    ROLLBACKS,
    STALEST,
    CULPRIT,  # the processor whose duration is wrong
    WITNESS,  # a row whose residual is too large
    ERROR_WITNESS,
    VERDICT,  # at this instant: the residual processor found it small enough, or 0 has updated
    COUNTERS,
) = range(17)

# The real numbers of a run.
(
    NOW,  # the newest instant, on the processors' clock
    SHIFT,  # what checkpoints and restores have cost; virtual time is NOW + SHIFT
    SQUARE,  # squared 2-norm of the residual
    KEPT,  # the same after the instant before
    SUM_AGAIN,  # below this square, sum it anew
    RAISE_AT,  # above this square, raise the limits below which it is computed anew
    FRESH_AGAIN,  # below this square, compute the residual anew
    NEXT_CHECKPOINT,  # infinite: none
    NEXT_SAMPLE,
    SAMPLE_EVERY,
    STALENESS,  # sum over all updates
    SEEN,  # norm that the residual processor saw at its last read
    ERROR,  # squared 2-norm of x - solution, where it is to be reached
    ERROR_AGAIN,  # below this, sum it anew
    LARGEST,  # square above which the iteration has diverged
    BAD,  # the duration that is wrong
    SLOWEST,  # duration between two barriers
    GAUGES,
) = range(18)


class Rules(NamedTuple):
    """What stays the same during a run."""

    method: int
    omega: float  # relaxation factor of local solves
    momentum: float
    at_start: bool  # read at the start of an update; otherwise at its completion
    after_copy: bool  # read when the first phase of an update, the copy, is complete
    barrier: float  # what a barrier costs, of a synchronous iteration; negative: asynchronous
    processors: int
    choice: int  # FIXED, IN_TURN or AT_RANDOM
    coordinates: int  # components of the block to choose at random; 0: all
    compiled_values: bool  # a compiled function of the user's says the new values
    compiled_rows: bool  # one says which rows
    compiled_time: bool  # one says how long
    python_rows: bool  # a Python function says which rows
    python_values: bool  # Python functions say values or durations
    distributed: bool  # what others wrote arrives in messages
    last_instant: float  # of the processors' clock that the network can count
    ticks: float  # ticks in a second; 0: time is continuous
    phases: int  # durations that make one update
    joint: bool  # all phases from one uniform number
    detect: int  # IDEAL, PROCESSOR or LOCAL
    every: int  # updates between two contributions to the sum of local residuals
    limit: float  # residual norm to reach; negative: never
    infinity: bool  # the norm is the largest component, not the Euclidean one
    error_limit: float  # norm of the error to reach; negative: never
    alpha: float  # roll back when the residual grew by more; 0: never
    interval: float  # time between checkpoints
    own_block: bool  # roll back blocks, not everything
    component: bool  # every processor watches its own rows
    cost: float  # seconds of a checkpoint
    restore: float  # seconds of a rollback
    bin_shift: int  # a bin of the staleness histogram is 2^shift wide


Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class Matrix(NamedTuple):
    """The columns of A (CSC), or the stencil that stands for them, and the right-hand side.

    A relaxation of row i changes x_i, and so the residual of every row in *column* i.

    Attributes:
        pointer, row, data: the columns; empty when the stencil is used.
        b: right-hand side, shape (n,).
        gain: what a residual is multiplied with to give the step, shape (n,): omega / a_ii for
            Jacobi and SOR, omega for Richardson.
        shape: of the grid, (nz, ny, nx); zeros when there is none.
        offsets: of the stencil's points, shape (k, 3).
        coefficients: of the stencil's points, shape (k,); empty when the columns are used.
    """

    pointer: Integers
    row: NDArray[np.uint32]
    data: Floats
    b: Floats
    gain: Floats
    shape: Integers
    offsets: Integers
    coefficients: Floats


class Blocks(NamedTuple):
    """Block k holds the rows `rows[pointer[k]:pointer[k + 1]]`."""

    pointer: Integers
    rows: Integers


class Factors(NamedTuple):
    """LU factors of every block's own part of A, for local solves: P A_kk Q = L U.

    L (without its unit diagonal) and U (without its diagonal, whose inverse is apart) by columns,
    all blocks behind each other; `offset[k]` is the position of block k in the arrays over rows.
    """

    offset: Integers
    lower_pointer: Integers
    lower_index: NDArray[np.int32]
    lower_data: Floats
    upper_pointer: Integers
    upper_index: NDArray[np.int32]
    upper_data: Floats
    inverse_pivot: Floats
    row_order: Integers
    column_order: Integers


class Iterate(NamedTuple):
    """The iterate and what follows from it; all of shape (n,).

    Attributes:
        x: the iterate.
        residual: b - A x, kept up to date by every relaxation.
        previous: the iterate one update of the row ago (momentum only, else empty).
        work, stamp: scratch of Gauss-Seidel sweeps and local solves.
        solution: the known solution (empty when it is not known, or not asked for).
    """

    x: Floats
    residual: Floats
    previous: Floats
    work: Floats
    stamp: Integers
    solution: Floats


class Clock(NamedTuple):
    """Who updates next: a winner tree over the processors' next instants.

    `winner[1]` is the processor that comes first, at `key[1]`; of two who come at the same instant
    the one of lower number wins. To give a processor its next instant costs O(log p), and reads one
    rival a level, which lies beside.

    Attributes:
        key: the instant of the winner below each node, shape (2 P,), P a power of two; the leaves
            `key[P:]` are the processors' own instants, infinite for those that never come.
        winner: who that is, shape (2 P,).
        begun: when the update in flight began, shape (P,).
    """

    key: Floats
    winner: NDArray[np.int32]
    begun: Floats


class Flight(NamedTuple):
    """The updates in flight.

    Attributes:
        slot: where each processor's values begin in `values` and `chosen`, shape (p + 1,).
        values: the new values, computed and not yet written.
        chosen: the rows they belong to, where these are not a whole block.
        size: how many rows, or -1 for the whole block.
        block: the block, or -1 where `chosen` was filled by a Python function.
        read_at: how many updates had been written when the processor read.
        updates: how many updates each processor has written.
        stale: whether the processor ignores what it reads (a fault).
        given: the next duration, where a Python function says it; NaN when it is used up.
        due: the processors that are due at this instant.
        copying, end: whether the processor has still to read, and when its update is complete; of
            updates that have phases.
    """

    slot: Integers
    values: Floats
    chosen: Integers
    size: Integers
    block: Integers
    read_at: Integers
    updates: Integers
    stale: NDArray[np.bool_]
    given: Floats
    due: Integers
    copying: NDArray[np.bool_]
    end: Floats


class Rows(NamedTuple):
    """The rows of A (CSR), for update functions of the user's: the names of SciPy's attributes."""

    indptr: Integers
    indices: NDArray[np.int32]
    data: Floats


class Halos(NamedTuple):
    """Distributed memory: what each processor knows of the others' rows, and what is under way.

    A *link* leads from a processor to one that reads some of its rows. `have` holds the newest
    values that arrived on each link; a link carries one message at a time, and while it does, the
    newest values wait in `waiting` (older ones that wait are replaced). Messages under way stay in
    buffers, `capacity` for each link, until their receiver reads.

    Attributes:
        pointer, source, data: rows of A whose columns are rows of x (0 or more) or, as -1 - place,
            places in `have`; in CSR.
        residual: the residual of each row as its own processor knows it, shape (n,).
        have: values on all links, one link behind the other.
        link: link k's values are at `link[k]:link[k + 1]`.
        rows: the rows that they are values of.
        out_pointer, out: links by sender; `into_pointer`, `into`: links by receiver.
        occupancy, latency: how long a message holds its link, and takes besides, on the
            processors' clock; of links that share nothing.
        jitter: row of the table of distributions that adds to the latency, or -1.
        streams: keys of each link's random numbers.
        ordered: whether a message never arrives before an older one; shape (1,).
        ticks: ticks in a second, or 1; shape (1,).
        free_at: when each link is free again; of a link that shares ports, infinite until then.
        waiting: values that wait for their link; `wait_count`: updates written when they were,
            -1 where nothing waits.
        payload: the values under way, shape (capacity, values).
        buffer: which row of `payload` each message uses, shape (links, capacity).
        arrival, number, news: of each message: when it is there, its place in the order of
            sending, and how many updates had been written; shape (links, capacity).
        under_way: messages under way on each link; `fullest`: the most there ever were.
        sent: messages that left on each link; `version`: number of the newest that arrived.
        missed: updates written when the sender wrote the oldest news that has not arrived; -1:
            nothing is missing.
        last_arrival: of any message on each link.
    """

    pointer: Integers
    source: Integers
    data: Floats
    residual: Floats
    have: Floats
    link: Integers
    rows: Integers
    out_pointer: Integers
    out: Integers
    into_pointer: Integers
    into: Integers
    occupancy: Floats
    latency: Floats
    jitter: Integers
    streams: NDArray[np.uint64]
    ordered: NDArray[np.bool_]
    ticks: Floats
    free_at: Floats
    waiting: Floats
    wait_count: Integers
    payload: Floats
    buffer: Integers
    arrival: Floats
    number: Integers
    news: Integers
    under_way: Integers
    fullest: Integers
    sent: Integers
    version: Integers
    missed: Integers
    last_arrival: Floats


class Ports(NamedTuple):
    """What messages share, of links that share something.

    Attributes:
        traffic: who is under way (`network.compiled`); a message has the number of its link.
        route: of each link; -1 where nothing is shared.
        demand: of a message on each link: bytes, or picoseconds.
        propagation: picoseconds from the end of a transfer until the message is there.
        unsettled: the instant whose requests have no rate yet, picoseconds; -1: none; shape (1,).
    """

    traffic: Any
    route: Integers
    demand: Floats
    propagation: Integers
    unsettled: Integers


class Tally(NamedTuple):
    """Counts: staleness by `width` updates a bin; local residuals as last contributed.

    Attributes:
        staleness: shape (bins,); the last one holds everything beyond.
        offered: each processor's local residual (squared) when it last read; -1 for none.
        contribution: what of it is in the sum of all, shape (p,).
        local: each processor's local residual (squared) when it last read, for checkpoint policies.
    """

    staleness: Integers
    offered: Floats
    contribution: Floats
    local: Floats


class Checkpoint(NamedTuple):
    """The iterate that a rollback returns to, shape (n,), or empty."""

    x: Floats


class History(NamedTuple):
    """The residual as the run went: (virtual time, relaxations, residual, error) a row."""

    rows: Floats
    marks: Floats


class Spans(NamedTuple):
    """The first updates, one a row: processor, and begin, copied, computed, end."""

    processor: NDArray[np.int32]
    times: Floats


class State(NamedTuple):
    """Everything that the loop works on: `s` in its functions.

    Attributes:
        rules: what stays the same during a run.
        ports: of distributed memory (`Ports`); None where messages share nothing.
        rows_of_a: for update functions of the user's, empty without a compiled one.
        draws, phase_rows: the distributions, and which of them each processor's phases draw from,
            shape (p + 1, phases); the last row is the residual processor's.
        streams, choices: keys of each processor's streams of random numbers, shape (p + 1,).
        counters, gauges: the run's own numbers, named in `scalars.py`.
        update, pattern, time: compiled functions of the user's, or ones that are never called.
    """

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
    ports: Any
    checkpoint: Checkpoint
    history: History
    spans: Spans
    draws: Draws
    phase_rows: Integers
    streams: NDArray[np.uint64]
    choices: NDArray[np.uint64]
    counters: Integers
    gauges: Floats
    update: Any
    pattern: Any
    time: Any
