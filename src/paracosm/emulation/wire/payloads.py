"""What emulated ranks send to real ones, and how much it is, where a plan says so."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paracosm.emulation.backend.plan import Plan, PlannedGroup, load_plan
from paracosm.emulation.records import COLLECTIVES
from paracosm.emulation.wire.announcements import Vector
from paracosm.emulation.wire.connection import WireGroup
from paracosm.emulation.wire.segments import layout_of
from paracosm.emulation.wire.store import group_name
from paracosm.errors import InputError

_NUMBER = re.compile(r"\d+")


def load_payloads(plan: Path | None, world: int) -> Payloads:
    if plan is None:
        return Payloads(Plan(world, 0, {}, np.empty(0, np.uint8)))
    loaded = load_plan(plan)
    if loaded.world != world:
        raise InputError(
            f"{plan}: a plan of {loaded.world:,} ranks, but the world has {world:,}: write it again"
        )
    return Payloads(loaded)


class Payloads:
    """Recorded bytes by operation, cut to the messages that gloo asks for.

    The plan is of one rank, mostly rank 0; the other emulated ranks are taken to have given what
    that one gave. In a group that it was not a member of, they have given what it gave in its own
    group of the same kind: the last one before, of the same size.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sent: dict[tuple[str, int], npt.NDArray[np.intp]] = {}  # by group, ranks further on
        self._given: dict[tuple[str, int], int] = {}
        self._tags: dict[str, dict[int, int]] = {}

    @property
    def groups(self) -> dict[str, tuple[int, ...]]:
        return {name: each.members for name, each in self._plan.groups.items() if each.members}

    def of(
        self, group: WireGroup, kind: str, tag: int, sender: int, offset: int, length: int
    ) -> memoryview | None:
        """Return what `sender` sends, or None where the plan does not say.

        Messages between two ranks (send, recv) have no number of their own: each call takes the
        next that the plan's rank sent as many ranks away, to the next stage of a pipeline or to the
        one before.
        """
        planned = self._planned(group)
        if planned is None:
            return None
        if kind in ("send", "recv"):
            return self._next_sent(planned, group, sender, length)
        at = self._tag_index(planned).get(tag)
        if at is None or COLLECTIVES[planned.kind[at]] != kind:
            return None
        if kind in ("scatter", "all_to_all"):
            if len(group.real) != 1:
                return None  # which of the real members it is for, nobody says
            share = int(planned.length[at]) // group.size
            if offset + length > share:
                return None
            offset += group.real[0] * share
        return self._cut(planned, at, offset, length)

    def vector_of(self, group: WireGroup, kind: str, tag: int, segment: int) -> Vector | None:
        """Return what a reduction reduces, of which a message has `segment` bytes."""
        planned = self._planned(group)
        at = None if planned is None else self._tag_index(planned).get(tag)
        if planned is None or at is None:
            return None
        what = COLLECTIVES[planned.kind[at]]
        if what != kind and (what, kind) != ("reduce_scatter", "all_reduce"):
            return None
        size = int(planned.size[at]) // int(planned.tags[at])
        for element in (1, 2, 4, 8):
            if layout_of(kind, group.size, size, element)[1] == segment:
                return Vector(size, element, bytes(element))
        return None

    def _cut(self, planned: PlannedGroup, at: int, offset: int, length: int) -> memoryview | None:
        start = int(planned.start[at])
        if start < 0 or offset + length > int(planned.length[at]):
            return None
        return self._plan.data[start + offset : start + offset + length].data

    def _next_sent(
        self, planned: PlannedGroup, group: WireGroup, sender: int, length: int
    ) -> memoryview | None:
        if len(group.real) != 1:
            return None  # which of the real members it is for, nobody says
        away = (group.real[0] - sender) % group.size
        if (planned.name, away) not in self._sent:
            members = planned.members or tuple(range(group.size))
            to = members[(members.index(self._plan.rank) + away) % group.size]
            is_send = planned.kind == COLLECTIVES.index("send")
            self._sent[planned.name, away] = np.flatnonzero(is_send & (planned.peer == to))
        sends = self._sent[planned.name, away]
        number = self._given.get((group.name, sender), 0)
        self._given[group.name, sender] = number + 1
        if number >= len(sends) or int(planned.length[sends[number]]) != length:
            return None
        return self._cut(planned, int(sends[number]), 0, length)

    def _tag_index(self, planned: PlannedGroup) -> dict[int, int]:
        """Return the collective that each tag of gloo belongs to: tags count gloo's operations."""
        if planned.name not in self._tags:
            owner = np.repeat(np.arange(len(planned.tags)), planned.tags)
            self._tags[planned.name] = dict(enumerate(owner.tolist()))
        return self._tags[planned.name]

    def _planned(self, group: WireGroup) -> PlannedGroup | None:
        name = group_name(group.name)
        groups = self._plan.groups
        if name in groups:
            return groups[name]
        alike = [each for each in groups.values() if len(each.members) == group.size]
        return next((each for each in reversed(alike) if _is_before(each.name, name)), None)


def _is_before(planned: str, name: str) -> bool:
    """Whether a group may be older: names count up, or are hashes of the ranks."""
    if _NUMBER.fullmatch(name) and _NUMBER.fullmatch(planned):
        return 0 < int(planned) < int(name)
    return planned != "0" and not _NUMBER.fullmatch(name) and not _NUMBER.fullmatch(planned)
