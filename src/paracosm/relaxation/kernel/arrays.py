"""What the compiled loop works on: plain arrays in named tuples, which Numba reads as they are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paracosm.relaxation.kernel.scalars import Rules
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
    "Spans",
    "State",
    "Tally",
]

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
