"""Making the replay of a static job small: tasks become chains, and ranks classes. Both exact.

Tasks that can only follow one another become one chain:

    compute        a - b - c - d - e            [a b c] - [d e]
         \\                         \\
    communication           r - s                     [r] - [s]

With in-order lanes, c follows b whatever the durations are, unless c waits for another lane as
well. Dependencies implied by others are dropped first: a task that waits for r need not wait for c.
What a task follows, through lanes and dependencies, is one row of every lane (a vector clock:
Mattern, "Virtual Time and Global States of Distributed Systems", 1989).

Of equal ranks, which must behave alike, only one is replayed. Two are equal if they run the same
program at the same speed and meet equal ranks, in the same roles. The coarsest such partition is
found by refining: ranks are coloured by program and speed, then by the colours that they
communicate with, until no colour splits (1-dimensional Weisfeiler-Leman). All ranks of a colour
then arrive everywhere at the same instants.

    rank     0   1   2   3              0 and 1 are equal, 2 and 3 are equal
    stage    0   0   1   1       ->     0 sends to 2, as 1 does to 3; 0 meets 1, as 2 meets 3
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from paracosm.arrays import Bools, Codes, Ints, distinct_rows
from paracosm.compiled import compiled_whole, shaped
from paracosm.jobs.job import KINDS, Job, Program

TASK = KINDS.index("task")


@dataclass(frozen=True, eq=False)
class Chains:
    """The c chains of a program's n tasks, by lane and in order there."""

    rows: Ints  # n rows, those of one chain consecutive
    first: Ints  # c + 1 offsets into `rows`
    lane: Codes  # c lanes
    of_lane: Ints  # offsets of each lane's chains, one more than lanes
    # kind, role: c, those of the only task of a chain that communicates; "task" and -1 otherwise
    kind: Codes
    role: Codes
    ordinal: Ints  # c numbers: how many calls in the same role come before
    # offsets, dependencies: CSR of chains that must have ended, those that follow from others left
    # out
    offsets: Ints
    dependencies: Ints

    def __len__(self) -> int:
        return len(self.lane)


def contract(program: Program, lanes: int) -> Chains:
    """Return the chains of a program in which every task has one of so many in-order lanes."""
    n = len(program)
    kept = np.zeros(len(program.dependencies), dtype=np.bool_)
    follows = np.zeros(n, dtype=np.bool_)
    _reduce(
        program.lane,
        program.kind,
        program.offsets,
        program.dependencies,
        np.full((n, lanes), -1, dtype=np.int64),
        np.full(lanes, -1, dtype=np.int64),
        kept,
        follows,
        np.zeros(n, dtype=np.bool_),
    )
    rows = np.argsort(program.lane, kind="stable").astype(np.int64)
    starts = np.flatnonzero(~follows[rows])
    first = np.append(starts, n).astype(np.int64)
    head = rows[starts]
    chain_of = np.empty(n, dtype=np.int64)
    chain_of[rows] = np.cumsum(~follows[rows]) - 1
    lane, role = program.lane[head], program.role[head]
    offsets, dependencies = _between(program, kept, chain_of, len(starts))
    return Chains(
        rows=rows,
        first=first,
        lane=lane,
        of_lane=np.searchsorted(lane, np.arange(lanes + 1)).astype(np.int64),
        kind=program.kind[head],
        role=role,
        ordinal=_ordinals(role, head),
        offsets=offsets,
        dependencies=dependencies,
    )


def _between(program: Program, kept: Bools, chain_of: Ints, chains: int) -> tuple[Ints, Ints]:
    """Return CSR dependencies of chains; only the first task of a chain has any that are kept."""
    counts = np.diff(program.offsets)
    waiting = chain_of[np.repeat(np.arange(len(program)), counts)[kept]]
    awaited = chain_of[program.dependencies[kept]]
    order = np.lexsort((awaited, waiting))
    lengths = np.bincount(waiting, minlength=chains)
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64), awaited[order]


def _ordinals(role: Codes, head: Ints) -> Ints:
    order = np.lexsort((head, role))
    ordinal = np.empty(len(role), dtype=np.int64)
    ordinal[order] = np.arange(len(role)) - np.searchsorted(role[order], role[order])
    return ordinal


@shaped(
    "n: lane kind follows ends_chain; n+1: offsets; edges: dependencies kept; n lanes: clock; "
    "lanes: newest"
)
@compiled_whole
def _reduce(
    lane: Any,
    kind: Any,
    offsets: Any,
    dependencies: Any,
    clock: Any,
    newest: Any,
    kept: Any,
    follows: Any,
    ends_chain: Any,
) -> None:
    """Find dependencies that no others imply, and tasks that only follow the one before.

    Filled: `clock`, n x lanes, the last row of each lane that has ended before a task begins;
    `kept`, for each dependency; `follows`, for each task, whether it is in one chain with the task
    before on its lane; `ends_chain`, whether others wait for it. `newest` holds the last row of
    every lane so far.
    """
    lanes = newest.size
    for row in range(lane.size):
        own_lane = lane[row]
        before = newest[own_lane]
        if before >= 0:
            for each in range(lanes):
                clock[row, each] = clock[before, each]
            clock[row, own_lane] = before
        waits = False
        for place in range(offsets[row + 1] - 1, offsets[row] - 1, -1):
            awaited = dependencies[place]
            other = lane[awaited]
            if clock[row, other] >= awaited:
                continue
            kept[place] = True
            waits = True
            ends_chain[awaited] = True
            for each in range(lanes):
                clock[row, each] = max(clock[row, each], clock[awaited, each])
            clock[row, other] = awaited
        follows[row] = before >= 0 and not waits and kind[row] == TASK and kind[before] == TASK
        newest[own_lane] = row
    for each in range(lanes):
        newest[each] = -1
    for row in range(lane.size):
        own_lane = lane[row]
        before = newest[own_lane]
        if before >= 0 and ends_chain[before]:
            follows[row] = False
        newest[own_lane] = row


class JoinedChains(NamedTuple):
    """Columns of `Chains` of P programs, one program after the other."""

    chains_before: Ints  # P + 1 offsets into the columns of chains
    rows_before: Ints  # P + 1 offsets into `rows`
    rows: Ints  # of the chains, counted from the program's first
    first: Ints  # offsets into the program's rows, one more than chains for each program
    of_lane: Ints  # P x (lanes + 1) offsets, counted from the program's first chain
    kind: Codes  # kind, role, ordinal: of the chains
    role: Codes
    ordinal: Ints
    offsets: Ints  # of all chains, into `dependencies`; one more than chains
    dependencies: Ints  # chains, counted from the program's first


def join_chains(chains: Sequence[Chains]) -> JoinedChains:
    counts = [np.diff(chain.offsets) for chain in chains]
    return JoinedChains(
        chains_before=offsets_of(len(chain) for chain in chains),
        rows_before=offsets_of(len(chain.rows) for chain in chains),
        rows=np.concatenate([chain.rows for chain in chains]),
        first=np.concatenate([chain.first for chain in chains]),
        of_lane=np.array([chain.of_lane for chain in chains]),
        kind=np.concatenate([chain.kind for chain in chains]),
        role=np.concatenate([chain.role for chain in chains]),
        ordinal=np.concatenate([chain.ordinal for chain in chains]),
        offsets=offsets_of(np.concatenate(counts)),
        dependencies=np.concatenate([chain.dependencies for chain in chains]),
    )


def offsets_of(lengths: Iterable[int]) -> Ints:
    """Return 0 and the running sums."""
    counts = lengths if isinstance(lengths, np.ndarray) else np.array(list(lengths), dtype=np.int64)
    return np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)))


@shaped("units: program; units+1: first_chain first_length")
@compiled_whole
def sum_chains(
    program: Any, first_chain: Any, first_length: Any, chains: Any, length: Any, total: Any
) -> None:
    """Add up the picoseconds, or another quantity, of the tasks of each chain into `total`."""
    for unit in range(program.size):
        own_program = program[unit]
        before, rows_before = chains.chains_before[own_program], chains.rows_before[own_program]
        for chain in range(chains.chains_before[own_program + 1] - before):
            offset = before + own_program + chain
            added = length[0] * 0
            for place in range(chains.first[offset], chains.first[offset + 1]):
                added += length[first_length[unit] + chains.rows[rows_before + place]]
            total[first_chain[unit] + chain] = added


class Folding(NamedTuple):
    """C classes of R ranks, and the communicators between classes."""

    class_of: Codes  # R indices of classes
    representative: Codes  # the first rank of each of C classes
    group: Codes  # C x roles indices of the communicators between classes; -1 for none
    entry: Ints  # C x roles indices into `members`; -1 for none
    members: Ints  # M entries: the class of a member, those of one communicator consecutive
    ranks: Ints  # M numbers: how many ranks of the communicator that member represents
    offsets: Ints  # offsets of each communicator's members


class _Entries(NamedTuple):
    """The members of communicators, one entry per rank and role, sorted by communicator."""

    rank: Ints
    role: Ints
    group: Ints


def fold_ranks(job: Job) -> Folding:
    """Return the coarsest classes of equal ranks."""
    entries = _entries(job)
    _, colour = distinct_rows(np.column_stack((job.program, job.speed.view(np.int64))))
    while True:
        marks = _group_marks(entries, colour, job)
        around = np.full(job.communicator.shape, -1, dtype=np.int64)
        around[entries.rank, entries.role] = marks[entries.group]
        _, finer = distinct_rows(np.column_stack((colour, around)))
        if finer.max(initial=-1) == colour.max(initial=-1):
            break
        colour = finer
    return _folding(job, entries, colour, marks)


def unfolded(job: Job) -> Folding:
    """Return every rank as a class of its own."""
    entries = _entries(job)
    numbers = np.arange(len(job.communicators), dtype=np.int64)
    return _folding(job, entries, np.arange(job.ranks), numbers)


def _entries(job: Job) -> _Entries:
    rank, role = np.nonzero(job.communicator >= 0)
    used = np.zeros((len(job.programs), len(job.roles)), dtype=np.bool_)
    for number, program in enumerate(job.programs):
        used[number, np.unique(program.role[program.role >= 0])] = True
    is_used = used[job.program[rank], role]
    rank, role = rank[is_used], role[is_used]
    group = job.communicator[rank, role].astype(np.int64)
    order = np.lexsort((role, rank, group))
    rank, role, group = rank[order], role[order], group[order]
    return _Entries(rank, role, group)


def _group_marks(entries: _Entries, colour: Ints, job: Job) -> Ints:
    """Return a number for each communicator: equal if colours meet in the same roles."""
    key = colour[entries.rank] * max(len(job.roles), 1) + entries.role
    order = np.lexsort((key, entries.group))
    sizes = np.bincount(entries.group, minlength=len(job.communicators))
    starts = np.concatenate(([0], np.cumsum(sizes)))
    marks = np.full(len(sizes), -1, dtype=np.int64)
    sorted_keys, given = key[order], 0
    for size in np.unique(sizes[sizes > 0]).tolist():
        groups = np.flatnonzero(sizes == size)
        rows = sorted_keys[starts[groups][:, None] + np.arange(size)]
        _, numbers = distinct_rows(rows)
        marks[groups] = numbers + given
        given += int(numbers.max()) + 1
    return marks


def _folding(job: Job, entries: _Entries, colour: Ints, marks: Ints) -> Folding:
    first_seen, class_of = _in_order(colour)
    roles = max(len(job.roles), 1)
    group, entry = np.full((2, len(first_seen), len(job.roles)), -1, dtype=np.int64)
    # One communicator represents all with equal marks; its members the equal ones in it.
    leaders, number = _in_order(marks[entries.group])
    is_same = entries.group == entries.group[leaders][number]
    mark, key = number[is_same], class_of[entries.rank[is_same]] * roles + entries.role[is_same]
    rows = np.column_stack((mark, key))
    first, of_pair = distinct_rows(rows)
    pairs, ranks = rows[first], np.bincount(of_pair)
    members, role = pairs[:, 1] // roles, pairs[:, 1] % roles
    group[members, role] = pairs[:, 0]
    entry[members, role] = np.arange(len(pairs))
    offsets = np.searchsorted(pairs[:, 0], np.arange(len(leaders) + 1))
    return Folding(
        class_of=class_of.astype(np.int32),
        representative=first_seen.astype(np.int32),
        group=group.astype(np.int32),
        entry=entry,
        members=members.astype(np.int64),
        ranks=ranks.astype(np.int64),
        offsets=offsets.astype(np.int64),
    )


def _in_order(values: Ints) -> tuple[Ints, Ints]:
    """Return the first place of each distinct value, and the number of each value by that."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(first), dtype=np.int64)
    place[order] = np.arange(len(first))
    return first[order], place[inverse.reshape(-1)]
