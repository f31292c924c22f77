"""Where ranks that have run one after the other meet: the same collective, both ends of a message.

A rank stands for all that are like it. So the n-th collective of a group meets the n-th of the
groups that have as many members of each kind, in the order in which they were made, and the n-th
message from one kind of rank to another meets the n-th receipt there. It moves when all have come:
gloo announces a message before it sends it, and the receiver calls for it (gloo/transport/tcp).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from paracosm.arrays import Ints
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.cost import Cost
from paracosm.emulation.pipeline import Pipeline
from paracosm.emulation.ports import Ports, Span
from paracosm.emulation.records import MESSAGES, Collective, Group, PipelineStep


@dataclass(eq=False)
class Meeting:
    """One collective, or one message, that several ranks which have run take part in."""

    ranks: frozenset[int]  # those that ran and have to come
    alike: tuple[int, ...]  # members that are like the rank that asked
    what: Hashable  # of the messages between the two
    come: dict[int, float] = field(default_factory=dict)  # when the last of its kind came, by rank
    spans: list[Span] = field(default_factory=list)


class Meetings:
    """The links and comm workers of the ranks that have run, and what they do together."""

    def __init__(
        self,
        config: EmulateConfig,
        groups: Mapping[int, Sequence[Group]],  # of each rank that ran, in the order of making
        kind_of: Ints | None,  # the rank that each one is like, shape (world,); None of one alone
    ) -> None:
        self._ports = Ports(config.shared)
        self._kind_of = kind_of
        self._groups = {} if kind_of is None else _shared_groups(groups, kind_of)
        self._counts: Counter[Hashable] = Counter()
        self._open: dict[Hashable, Meeting] = {}
        self.moved = False  # whether ends of what is under way have changed

    def of(self, event: Collective, rank: int) -> Meeting | None:
        """Return what a rank takes part in by its next call; None where only its like do."""
        if self._kind_of is None:
            return None
        if event.kind in MESSAGES:
            other = int(self._kind_of[event.peer])
            if other == rank:
                return None
            ends = (rank, other) if event.kind == "send" else (other, rank)
            shared: _Shared = ("message", *ends), frozenset(ends), (rank,)
        else:
            shared = self._groups[rank, event.group]
        what, ranks, alike = shared
        if len(ranks) < 2:
            return None
        number = self._counts[rank, what]
        self._counts[rank, what] += 1
        met = self._open.setdefault((what, number), Meeting(ranks, alike, what))
        met.alike = alike
        return met

    def ask(
        self,
        event: Collective,
        rank: int,
        met: Meeting | None,
        now: float,
        entered: float,  # when the last of the emulated ranks that it waits for came
        cost: Cost,
        count: int,  # comm workers of the group
    ) -> Span:
        """Begin a collective or a message for one rank, and return its span."""
        self.moved = True
        is_message = event.kind in MESSAGES
        group = rank, event.group
        if met is None:
            pool = (*group, event.kind, event.peer) if is_message else group
            workers = 1 if is_message else count
            return self._ports.ask(group, pool, workers, now, entered, cost, rank)
        met.come[rank] = entered
        if not is_message:
            met.spans.append(self._ports.ask(group, group, count, now, inf, cost, rank))
        elif not met.spans:
            met.spans.append(self._ports.ask(met.what, met.what, 1, now, inf, cost, rank))
        else:
            self._ports.need(met.spans[0], rank, cost)
        span = met.spans[-1]
        if met.come.keys() == met.ranks:
            last = max(met.come.values())
            for each in met.spans:
                self._ports.enter(each, now, last)
        return span

    def begin_step(
        self, step: PipelineStep, pipelines: dict[tuple[int, ...], Pipeline], now: float
    ) -> None:
        """Begin a step of a rank's pipeline, if its other stages are emulated."""
        if self._kind_of is None:
            pipelines.setdefault(step.ranks, Pipeline(step, (step.rank,))).begin(step, now)


_Shared = tuple[Hashable, frozenset[int], tuple[int, ...]]
"""What tells a group among those of all ranks; which ranks that ran are in it; the own kind."""


def _shared_groups(
    groups: Mapping[int, Sequence[Group]], kind_of: Ints
) -> dict[tuple[int, str], _Shared]:
    shared: dict[tuple[int, str], _Shared] = {}
    for rank, made in groups.items():
        seen: Counter[Hashable] = Counter()
        for group in made:
            kinds = kind_of[list(group.members)]
            ranks, counts = np.unique(kinds, return_counts=True)
            members_by_kind = tuple(zip(ranks.tolist(), counts.tolist(), strict=True))
            alike = tuple(np.asarray(group.members)[kinds == rank].tolist())
            shared[rank, group.name] = (
                (members_by_kind, seen[members_by_kind]),
                frozenset(ranks.tolist()),
                alike,
            )
            seen[members_by_kind] += 1
    return shared
