"""Exact contraction of a program: tasks that can only follow one another become one chain.

    compute        a - b - c - d - e            [a b c] - [d e]
                           \\                          \
    communication           r - s                     [r] - [s]

Where lanes run in order, c follows b whatever the durations are, unless c waits for another lane as
well. Dependencies that follow from others are dropped first: a task that waits for r need not wait
for c. What a task is known to come after, through lanes and dependencies, is one row of every lane
(a vector clock: Mattern, "Virtual Time and Global States of Distributed Systems", 1989).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.compiled import compiled
from paracosm.jobs import KINDS, Program

__all__ = ["Chains", "contract"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

TASK = KINDS.index("task")


@dataclass(frozen=True, eq=False)
class Chains:
    """The c chains of a program's n tasks, lane by lane and in order there.

    Attributes:
        rows: n rows, those of one chain beside each other.
        first: c + 1 offsets into `rows`.
        lane: c lanes.
        of_lane: offsets of each lane's chains, one more than lanes.
        kind, role: c, those of the only task of a chain that communicates; "task" and -1 otherwise.
        ordinal: c numbers: how many calls in the same role come before.
        offsets, dependencies: CSR of chains that must have ended, those that follow from others
            left out.
    """

    rows: Ints
    first: Ints
    lane: Codes
    of_lane: Ints
    kind: Codes
    role: Codes
    ordinal: Ints
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


def _between(
    program: Program, kept: npt.NDArray[np.bool_], chain_of: Ints, chains: int
) -> tuple[Ints, Ints]:
    """Return CSR dependencies of chains; only the first task of a chain has any that are kept."""
    counts = np.diff(program.offsets)
    waiting = chain_of[np.repeat(np.arange(len(program)), counts)[kept]]
    awaited = chain_of[program.dependencies[kept]]
    order = np.lexsort((awaited, waiting))
    lengths = np.bincount(waiting, minlength=chains)
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64), awaited[order]


def _ordinals(role: Codes, head: Ints) -> Ints:
    """Return for every chain how many calls in the same role come before in the program."""
    order = np.lexsort((head, role))
    ordinal = np.empty(len(role), dtype=np.int64)
    ordinal[order] = np.arange(len(role)) - np.searchsorted(role[order], role[order])
    return ordinal


@compiled
def _reduce(
    lane: Any,
    kind: Any,
    offsets: Any,
    dependencies: Any,
    clock: Any,
    newest: Any,
    kept: Any,
    follows: Any,
) -> None:
    """Find dependencies that no others imply, and tasks that only follow the one before.

    Args:
        lane, kind, offsets, dependencies: of the program.
        clock: n x lanes: the last row of each lane that has ended before a task begins (filled).
        newest: the last row of every lane so far; all -1.
        kept: one boolean for each dependency, all false (filled).
        follows: n booleans, all false: in one chain with the task before on its lane (filled).
    """
    lanes = newest.size
    ends_chain = np.zeros(lane.size, dtype=np.bool_)
    for row in range(lane.size):
        own = lane[row]
        before = newest[own]
        if before >= 0:
            for each in range(lanes):
                clock[row, each] = clock[before, each]
            clock[row, own] = before
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
        newest[own] = row
    newest[:] = -1
    for row in range(lane.size):
        own = lane[row]
        before = newest[own]
        if before >= 0 and ends_chain[before]:
            follows[row] = False
        newest[own] = row
