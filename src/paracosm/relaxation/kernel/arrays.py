"""What the compiled loop works on: plain arrays in named tuples, which Numba reads as they are."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paracosm.arrays import Bools, Codes, Floats, Ints
from paracosm.timing.compiled import Draws

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
RAISED = 11  # a compiled function raised an exception
GROW = 8  # a processor's slot is too small for its rows
GO_ON = -1

# Who notices convergence.
IDEAL = 0  # an observer who sees the residual at every instant, at no cost
PROCESSOR = 1  # a processor that does nothing else (Algorithm 3)
LOCAL = 2  # the sum of local residuals, each contributed every k-th update (Algorithm 4)
TREE = 3  # the same sum, which each passes on to its parent in a binary tree
SNAPSHOT = 4  # the sum for one vector, whose blocks the processors record when they are asked

# What a link carries.
HALO, SUM, REQUEST, RECORD = range(4)

# What a processor has done for the snapshot that is under way, or for the next one.
IDLE, ASKED, RECORDED = range(3)

# Which block a processor updates next.
FIXED, IN_TURN, AT_RANDOM = range(3)

# What happened besides relaxations.
FAULT, ROLLBACK, CHECKPOINT = range(3)

# What the loop does next.
START, NEXT, GATHER, READ, WRITE = range(5)

# What messages are entered for, and rollbacks.
MOVE, SEND, RECEIVE, EXCHANGE_ROWS = range(4)
SAVE, WATCH, ROLL_BACK = range(3)

# What the loop is entered for.
PLAY, BEGIN, SCHEDULE, OBSERVE, SAMPLE, MARK_FAULT, REBUILD, EXCHANGE, FRESH_RESIDUAL = range(9)

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
    FAILED_PROCESSOR,  # the processor whose duration is wrong
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
    REACHED,  # when the residual was first small enough, where it is not the ideal test; or -1
    GAUGES,
) = range(19)


class Rules(NamedTuple):
    """What stays the same during a run."""

    method: int
    omega: float  # relaxation factor of local solves
    momentum: float
    mix_every: int  # updates of a processor between two mixtures
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
    time_slice: float  # how long a thread keeps its core; 0: each has one of its own
    cores: int
    threads: int  # that take turns on them
    phases: int  # durations that make one update
    joint: bool  # all phases from one uniform number
    detect: int  # IDEAL, PROCESSOR, LOCAL, TREE or SNAPSHOT
    every: int  # updates between two contributions to the sum of local residuals, or two snapshots
    linked: bool  # there are messages: of distributed memory, or of snapshots
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


class Matrix(NamedTuple):
    """The columns of A (CSC), or the stencil that stands for them, and the right-hand side.

    A relaxation of row i changes x_i, and so the residual of every row in *column* i.
    """

    pointer: Ints  # these three are empty when the stencil is used
    row: NDArray[np.uint32]
    data: Floats
    b: Floats
    gain: Floats  # what a residual is multiplied with to give the step, shape (n,)
    shape: Ints  # of the grid, (nz, ny, nx); zeros when there is none
    offsets: Ints  # of the stencil's points, shape (k, 3)
    coefficients: Floats  # of the stencil's points; empty when the columns are used


class Blocks(NamedTuple):
    """Block k holds the rows `rows[pointer[k]:pointer[k + 1]]`."""

    pointer: Ints
    rows: Ints


class Factors(NamedTuple):
    """LU factors of every block's own part of A, for local solves: P A_kk Q = L U.

    L (without its unit diagonal) and U (without its diagonal, whose inverse is apart) by columns,
    all blocks behind each other; `offset[k]` is the position of block k in the arrays over rows.
    """

    offset: Ints
    lower_pointer: Ints
    lower_index: Codes
    lower_data: Floats
    upper_pointer: Ints
    upper_index: Codes
    upper_data: Floats
    inverse_pivot: Floats
    row_order: Ints
    column_order: Ints


class Iterate(NamedTuple):
    """The iterate and what follows from it; all of shape (n,) but for the last three."""

    x: Floats
    residual: Floats  # b - A x, kept up to date by every relaxation
    previous: Floats  # the iterate one update of the row ago (momentum only, else empty)
    work: Floats  # scratch of Gauss-Seidel sweeps and local solves, as `stamp`
    stamp: Ints
    solution: Floats  # empty when it is not known, or not asked for
    past: Floats  # values and steps of the last updates to be mixed, shape (2, window + 1, n)
    basis: Floats  # and their differences, orthogonalised, of one block, shape (2, window, n)
    pairs: Ints  # how many each processor has had, shape (p,)


class Clock(NamedTuple):
    """Who updates next: a tournament tree; of two at the same instant the lower number wins.

    `winner[1]` comes first, at `key[1]`. The leaves `key[P:]` (P a power of two) are the instants
    of the processors themselves, infinite for those that never come.
    """

    key: Floats  # the instant of the winner below each node, shape (2 P,)
    winner: Codes  # who that is
    begun: Floats  # when the update in flight began, shape (P,)


class Flight(NamedTuple):
    """The updates in flight, by processor."""

    slot: Ints  # where its values begin in `values` and `chosen`, shape (p + 1,)
    values: Floats  # the new ones, computed and not yet written
    chosen: Ints  # the rows they belong to, where these are not a whole block
    size: Ints  # how many rows, or -1 for the whole block
    block: Ints
    read_at: Ints  # how many updates had been written when the processor read
    updates: Ints  # how many it has written
    stale: Bools  # whether it ignores what it reads (a fault)
    given: Floats  # the next duration, where a Python function says it; NaN when it is used up
    due: Ints  # the processors that are due at this instant
    copying: Bools  # whether it has still to read, of updates that have phases
    end: Floats  # when the update is complete


class Rows(NamedTuple):
    """The rows of A (CSR), for update functions of the user's: the names of SciPy's attributes."""

    indptr: Ints
    indices: Codes
    data: Floats


def rows_of(A: Any) -> Rows:
    """Return the rows of a CSR matrix, as a copy that update functions cannot change."""
    parts = A.indptr.astype(np.int64), A.indices.astype(np.int32), A.data.copy()
    return Rows(*map(read_only, parts))


def read_only(array: Any) -> Any:
    """Return a view that nobody can write to: neither Python nor, by its type, compiled code."""
    view = array.view()
    view.flags.writeable = False
    return view


class Halos(NamedTuple):
    """Distributed memory: what each processor knows of the others' rows, and what is under way.

    A *link* leads from a processor to one that reads some of its rows. `have` holds the newest
    values that arrived on each link; a link carries one message at a time, and while it does, the
    newest values wait in `waiting` (older ones that wait are replaced). Messages under way stay in
    buffers, `capacity` for each link, until their receiver reads.
    """

    pointer: Ints  # rows of A (CSR)
    source: Ints  # whose columns are rows of x (0 or more) or, as -1 - place, places in `have`
    recorded_source: Ints  # the same for recorded values; empty without snapshots
    data: Floats  # empty of a map
    residual: Floats  # of each row as its own processor knows it, shape (n,); scratch
    have: Floats  # values on all links, one link behind the other
    link: Ints  # link k's values are at `link[k]:link[k + 1]`
    rows: Ints  # that they are values of; -1: a sum of squared local residuals, a request
    kind: Ints  # of each link: HALO, SUM, REQUEST or RECORD
    out_pointer: Ints  # links by sender
    out: Ints
    into_pointer: Ints  # links by receiver
    into: Ints
    occupancy: Floats  # how long a message holds its link, on the processors' clock
    latency: Floats  # how long it takes besides; both of links that share nothing
    jitter: Ints  # row of the table of distributions that adds to the latency, or -1
    streams: NDArray[np.uint64]  # keys of each link's random numbers
    ordered: Bools  # whether no message arrives before an older one; shape (1,)
    ticks: Floats  # ticks in a second, or 1; shape (1,)
    free_at: Floats  # when each link is free again; infinite while it shares ports
    waiting: Floats  # values that wait for their link
    wait_count: Ints  # updates written when they were, -1 where nothing waits
    payload: Floats  # the values under way, shape (capacity, values)
    buffer: Ints  # which row of `payload` each message uses, shape (links, capacity)
    arrival: Floats  # when each message is there, shape (links, capacity)
    number: Ints  # its place in the order of sending, shape (links, capacity)
    news: Ints  # how many updates had been written, shape (links, capacity)
    under_way: Ints  # messages on each link
    fullest: Ints  # the most there ever were
    sent: Ints  # messages that left on each link
    version: Ints  # number of the newest that arrived
    missed: Ints  # updates written at the oldest news that has not arrived; -1: none
    last_arrival: Floats  # of any message on each link


class Ports(NamedTuple):
    """What messages share, of links that share something."""

    traffic: Any  # who is under way (`network.compiled`); a message has the number of its link
    route: Ints  # of each link; -1 where nothing is shared
    demand: Floats  # of a message on each link: bytes, or picoseconds
    propagation: Ints  # picoseconds from the end of a transfer until the message is there
    unsettled: Ints  # picosecond whose requests have no rate yet; -1: none; shape (1,)


class Tally(NamedTuple):
    """Counts: staleness by `2^bin_shift` updates a bin; local residuals, squared, -1 for none."""

    staleness: Ints  # shape (bins,); the last one holds everything beyond
    offered: Floats  # each processor's local residual when it last read; in a tree its subtree's
    contribution: Floats  # what of it is in the sum of all, or sent to the parent, shape (p,)
    local: Floats  # as `offered`, for checkpoint policies
    stage: Ints  # IDLE, ASKED or RECORDED, shape (p,)
    snapshots: Ints  # how many each processor has passed on, shape (p,)
    recorded: Floats  # the vector that they record, shape (n,), or empty
    busy: Floats  # how long the updates of each processor take that have begun, shape (p + 1,)


class Checkpoint(NamedTuple):
    """The iterate that a rollback returns to, shape (n,), or empty, and its residual."""

    x: Floats
    residual: Floats  # of a map, whose residual only its caller can compute anew; else empty


class History(NamedTuple):
    """The residual as the run went: (virtual time, relaxations, residual, error) a row."""

    rows: Floats
    marks: Floats


class Spans(NamedTuple):
    """The first updates, one a row: processor, and begin, copied, computed, end."""

    processor: Codes
    times: Floats


class Apart(NamedTuple):
    """Addresses of what is compiled only for runs that need it; 0 for others (`loop.py`)."""

    values: int  # new values by sweeps, local solves or mixtures
    messages: int
    rollbacks: int


class State(NamedTuple):
    """Everything that the loop works on: `s` in its functions, by reference."""

    rules: Rules
    matrix: Matrix
    rows_of_a: Rows  # for update functions of the user's, empty without a compiled one
    blocks: Blocks
    factors: Factors
    iterate: Iterate
    clock: Clock
    flight: Flight
    tally: Tally
    halos: Halos
    ports: Ports | None  # None where messages share nothing
    checkpoint: Checkpoint
    history: History
    spans: Spans
    draws: Draws
    phase_rows: Ints  # which of `draws` each processor's phases draw from, (p + 1, phases)
    streams: NDArray[np.uint64]  # keys of each processor's durations, shape (p + 1,)
    choices: NDArray[np.uint64]  # and of its choices of rows; the last is the residual processor's
    counters: Ints
    gauges: Floats
    update: Any  # compiled functions of the user's, or ones that are never called
    pattern: Any
    time: Any
    apart: Apart
