"""Which ranks of a job are alike, found from what some of them have recorded.

A rank that exchanges messages with another one does not do what that one does, unless all ranks of
their group exchange the same (a ring, a halo); nor does the root of a collective do what the others
do. Members of a group whose collectives have no root are alike, and so are the ranks that have the
same place in groups that are shifts of one another, as those of a mesh are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from pathlib import Path

import numpy as np

from paracosm.arrays import Ints
from paracosm.emulation.rank.messages import awaited_rank
from paracosm.emulation.records import (
    MESSAGES,
    ROOTED,
    Collective,
    Group,
    Iteration,
    Record,
    Wait,
)
from paracosm.errors import InputError

MOST_KINDS = 64
"""Ranks that are run one after the other: the stages of a pipeline."""


def take_turns(
    first: Iterable[int],
    messages: Path,  # folder of what ranks tell those that are run later
    run: Callable[[int], bool],  # runs a rank; returns whether to go on
    others: Callable[[], set[int]],  # returns the ranks that are needed, as far as is known by now
) -> None:
    """Run ranks one after the other; one that waits for another one comes after it.

    Raises:
        InputError: more than `MOST_KINDS` would be run.
    """
    waiting = list(first)
    seen = set(waiting)
    while waiting:
        if len(seen) > MOST_KINDS:
            raise InputError(
                f"more than {MOST_KINDS} kinds of rank would be run one after the other: emulate a "
                "smaller world"
            )
        rank = waiting.pop(0)
        if not run(rank):
            return
        source = awaited_rank(messages, rank)
        if source is not None:
            seen.add(source)
            waiting = [source, rank, *(other for other in waiting if other != source)]
        else:
            more = others() - seen
            seen |= more
            waiting = sorted({*waiting, *more})


def missing_kinds(records: Sequence[Record], world: int) -> set[int]:
    """Return ranks that are like none of those that have recorded: their like is to be run next.

    Those that a recorded rank meets come before those of which nothing is known.
    """
    calls_of_ranks = _calls(records)
    ranks = {calls.rank for calls in calls_of_ranks}
    met = {rank for calls in calls_of_ranks for rank in calls.unlike} - ranks
    if met:
        return met
    unknown = np.flatnonzero(_known_kinds(calls_of_ranks, world) < 0)
    return {int(unknown[0])} if len(unknown) else set()


def met_by_messages(records: Sequence[Record]) -> dict[int, set[int]]:
    """Return the ranks of another kind that each recorded rank exchanges messages with."""
    return {calls.rank: calls.neighbours for calls in _calls(records)}


def kind_of_each(records: Sequence[Record], world: int) -> Ints:
    """Return the recorded rank that each of `world` ranks is like, shape (world,).

    A rank of which nothing is known is like the nearest recorded one before it.
    """
    calls_of_ranks = _calls(records)
    kinds = _known_kinds(calls_of_ranks, world)
    ranks = np.array(sorted(calls.rank for calls in calls_of_ranks), dtype=np.int64)
    before = np.maximum(np.searchsorted(ranks, np.arange(world), side="right") - 1, 0)
    return np.where(kinds < 0, ranks[before], kinds)


def groups_like(members: Sequence[int], world: int) -> Ints | None:
    """Return the groups into which shifts of one group divide the world, a row each, ascending.

    Such are the groups of a mesh: of 16 ranks, {0, 8} has beside it {1, 9}, ..., {7, 15}. None
    where shifts of the group do not cover the world without overlap.
    """
    shape = np.sort(np.asarray(members)) - min(members)
    free = np.ones(world, dtype=np.bool_)
    rows = []
    for start in range(world):
        if not free[start]:
            continue
        row = start + shape
        if row[-1] >= world or not free[row].all():
            return None
        free[row] = False
        rows.append(row)
    return np.array(rows, dtype=np.int64)


@dataclass(eq=False)
class _Calls:
    """What a rank asked of its groups in the iterations after the first, or in all of its run."""

    rank: int
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    # Collectives and waits, in the order of the rank
    events: list[tuple[float, Collective | Wait]] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)  # of its iterations

    @cached_property
    def counted(self) -> list[Collective | Wait]:
        since = min(self.ends) if len(self.ends) > 1 else -np.inf
        ordered = sorted(self.events, key=itemgetter(0))
        return [event for at, event in ordered if at >= since]

    @cached_property
    def collectives(self) -> list[Collective]:
        return [call for call in self.counted if isinstance(call, Collective)]

    @cached_property
    def staged(self) -> set[tuple[int, ...]]:
        """The groups in which places differ by the messages that they send and receive."""
        names = {collective.group for collective in self.collectives if collective.kind in MESSAGES}
        return {self.groups[name] for name in names if not self._is_exchange(name)}

    @cached_property
    def roots(self) -> dict[tuple[int, ...], set[int]]:
        """The roots of each group's collectives; none where these have no root."""
        by_members: dict[tuple[int, ...], set[int]] = {}
        for collective in self.collectives:
            if collective.kind not in MESSAGES:
                roots = by_members.setdefault(self.groups[collective.group], set())
                if collective.kind in ROOTED and collective.peer >= 0:
                    roots.add(collective.peer)
        return by_members

    @cached_property
    def neighbours(self) -> set[int]:
        """Ranks of another kind with which it exchanges messages."""
        return {
            collective.peer
            for collective in self.collectives
            if collective.kind in MESSAGES and self.groups[collective.group] in self.staged
        }

    @cached_property
    def unlike(self) -> set[int]:
        """Ranks that do something else than this one, of those that it meets."""
        ranks = set(self.neighbours)
        for members, roots in self.roots.items():
            if roots and self.rank not in roots:
                ranks |= roots
            elif roots:
                ranks |= set(sorted(set(members) - roots)[:1])
        return ranks - {self.rank}

    def _is_exchange(self, name: str) -> bool:
        """Whether all members may do the same: what goes d places on comes from d places back.

        A message is then sent before its like is waited for. Of a pair, where d places on are d
        places back, the first of two stages shows nothing else, so it counts as none.
        """
        members = self.groups[name]
        member, count = members.index(self.rank), len(members)
        sent: Counter[tuple[int, int]] = Counter()
        received: Counter[tuple[int, int]] = Counter()
        needs: dict[int, tuple[tuple[int, int], int]] = {}  # by the number of what is received
        for call in self.counted:
            if call.group != name:
                continue
            if isinstance(call, Wait):
                way, before = needs.get(call.number, ((0, 0), 0))
                if sent[way] < before:
                    return False
            elif call.kind in MESSAGES and call.peer in members:
                away = members.index(call.peer) - member
                if call.kind == "send":
                    sent[away % count, call.size] += 1
                else:
                    way = -away % count, call.size
                    received[way] += 1
                    needs[call.number] = way, received[way]
        return sent == received and all(2 * away % count for away, _ in sent)


def _calls(records: Sequence[Record]) -> list[_Calls]:
    by_rank: dict[int, _Calls] = {}
    for record in records:
        if isinstance(record, Group | Collective | Wait | Iteration):
            calls = by_rank.setdefault(record.rank, _Calls(record.rank))
            match record:
                case Group():
                    calls.groups[record.name] = record.members
                case Iteration():
                    calls.ends.append(record.end)
                case Collective():
                    calls.events.append((record.asked, record))
                case Wait():
                    calls.events.append((record.begin, record))
    return list(by_rank.values())


def _known_kinds(calls_of_ranks: Sequence[_Calls], world: int) -> Ints:
    """Return the recorded rank that each rank is like, or -1."""
    kinds = np.full(world, -1, dtype=np.int64)
    for own in calls_of_ranks:
        kinds[own.rank] = own.rank
    for own in calls_of_ranks:
        for members in own.staged:
            rows = groups_like(members, world)
            if rows is None:
                continue
            for other in calls_of_ranks:
                if other.rank in members:
                    column = rows[:, sorted(members).index(other.rank)]
                    kinds[column[kinds[column] < 0]] = other.rank
    alike = [row for calls in calls_of_ranks for row in _alike(calls, world)]
    changed = True
    while changed:
        changed = False
        for row in alike:
            known = np.unique(kinds[row])
            if len(known) == 2 and known[0] < 0:
                kinds[row] = known[1]
                changed = True
    return kinds


def _alike(own: _Calls, world: int) -> list[Ints]:
    """Return sets of ranks that are alike where one of them is like only one recorded rank."""
    alike = []
    for members, roots in own.roots.items():
        rows = groups_like(members, world)
        whole = np.sort(np.asarray(members))
        rows = whole[np.newaxis] if rows is None else rows
        keep = ~np.isin(whole, sorted(roots))
        alike += [row[keep] for row in rows if keep.any()]
    for name in {collective.group for collective in own.collectives if collective.kind in MESSAGES}:
        members = own.groups[name]
        if members not in own.staged:
            rows = groups_like(members, world)
            alike += [np.asarray(members)] if rows is None else list(rows)
    return alike
