"""Ranks that cannot but run alike, so that one of them need be replayed.

Two ranks are alike if they run the same program at the same speed and meet ranks that are alike, in
the same roles. The coarsest such partition is found by refining: ranks are coloured by program and
speed, then by the colours that they communicate with, until no colour splits (1-dimensional
Weisfeiler-Leman). All ranks of a colour then arrive everywhere at the same instants.

    rank     0   1   2   3              0 and 1 are alike, 2 and 3 are alike
    stage    0   0   1   1       ->     0 sends to 2, as 1 does to 3; 0 meets 1, as 2 meets 3
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.jobs import Job

__all__ = ["Folding", "fold_ranks", "unfolded"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Folding:
    """C classes of R ranks, and the communicators between classes.

    Attributes:
        class_of: R indices of classes.
        representative: the first rank of each of C classes.
        group: C x roles indices of the communicators between classes; -1 for none.
        entry: C x roles indices into `members`; -1 for none.
        members: M entries: the class of a member, those of one communicator beside each other.
        ranks: M numbers: how many ranks of the communicator that member stands for.
        offsets: offsets of each communicator's members.
    """

    class_of: Codes
    representative: Codes
    group: Codes
    entry: Ints
    members: Ints
    ranks: Ints
    offsets: Ints


@dataclass(frozen=True, eq=False)
class _Entries:
    """Who is in which communicator, one entry for each rank and role, sorted by communicator."""

    rank: Ints
    role: Ints
    group: Ints


def fold_ranks(job: Job) -> Folding:
    """Return the coarsest classes of alike ranks."""
    entries = _entries(job)
    colour = _numbered(np.column_stack((job.program, job.speed.view(np.int64))))
    while True:
        marks = _group_marks(entries, colour, job)
        around = np.full(job.communicator.shape, -1, dtype=np.int64)
        around[entries.rank, entries.role] = marks[entries.group]
        finer = _numbered(np.column_stack((colour, around)))
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
    used = _used(job)[job.program[rank], role]
    rank, role = rank[used], role[used]
    group = job.communicator[rank, role].astype(np.int64)
    order = np.lexsort((role, rank, group))
    rank, role, group = rank[order], role[order], group[order]
    return _Entries(rank, role, group)


def _used(job: Job) -> npt.NDArray[np.bool_]:
    used = np.zeros((len(job.programs), len(job.roles)), dtype=np.bool_)
    for number, program in enumerate(job.programs):
        used[number, np.unique(program.role[program.role >= 0])] = True
    return used


def _group_marks(entries: _Entries, colour: Ints, job: Job) -> Ints:
    """Return a number for each communicator: equal where colours meet in the same roles."""
    key = colour[entries.rank] * max(len(job.roles), 1) + entries.role
    order = np.lexsort((key, entries.group))
    sizes = np.bincount(entries.group, minlength=len(job.communicators))
    starts = np.concatenate(([0], np.cumsum(sizes)))
    marks = np.full(len(sizes), -1, dtype=np.int64)
    sorted_keys, given = key[order], 0
    for size in np.unique(sizes[sizes > 0]).tolist():
        groups = np.flatnonzero(sizes == size)
        rows = sorted_keys[starts[groups][:, None] + np.arange(size)]
        numbers = _numbered(rows)
        marks[groups] = numbers + given
        given += int(numbers.max()) + 1
    return marks


def _folding(job: Job, entries: _Entries, colour: Ints, marks: Ints) -> Folding:
    first_seen, class_of = _in_order(colour)
    roles = max(len(job.roles), 1)
    group, entry = np.full((2, len(first_seen), len(job.roles)), -1, dtype=np.int64)
    # One communicator stands for all that are marked alike; its members for alike ones in it.
    leaders, number = _in_order(marks[entries.group])
    own = entries.group == entries.group[leaders][number]
    mark, key = number[own], class_of[entries.rank[own]] * roles + entries.role[own]
    pairs, ranks = np.unique(np.column_stack((mark, key)), axis=0, return_counts=True)
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


def _numbered(rows: npt.NDArray[np.int64]) -> Ints:
    """Return a number for each row, the same for equal rows."""
    numbers = np.zeros(len(rows), dtype=np.int64)
    if rows.size:
        order = np.lexsort(rows.T)
        again = rows[order]
        numbers[order[1:]] = np.cumsum((again[1:] != again[:-1]).any(axis=1))
    return numbers


def _in_order(values: npt.NDArray[np.int64]) -> tuple[Ints, Ints]:
    """Return where each distinct value appears first, and the number of each value by that."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(first), dtype=np.int64)
    place[order] = np.arange(len(first))
    return first[order], place[inverse.reshape(-1)]
