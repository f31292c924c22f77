"""What the emulator knows of a process group."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from paracosm.emulation.wire.connection import Connection
from paracosm.emulation.wire.hops import Hops
from paracosm.emulation.wire.learning import Remembered
from paracosm.emulation.wire.operations import Operation
from paracosm.emulation.wire.pair import WireGroup

__all__ = ["GroupState"]


@dataclass(eq=False)
class GroupState:
    """A process group with real members.

    Attributes:
        group: as the rendezvous knows it.
        members: global ranks by rank in the group.
        hops: the times of messages among emulated members.
        remembered: how earlier vectors were cut.
        connections: that are open.
        operations: under way, by slot.
        over: slots of the last operations that ended.
        numbers: collectives so far, by real member.
    """

    group: WireGroup
    members: Sequence[int]
    hops: Hops
    remembered: Remembered = field(default_factory=Remembered)
    connections: set[Connection] = field(default_factory=set)
    operations: dict[int, Operation] = field(default_factory=dict)
    over: deque[int] = field(default_factory=lambda: deque(maxlen=64))
    numbers: dict[int, int] = field(default_factory=dict)

    def next_number(self, real: int) -> int:
        """Return the number of a real member's next collective."""
        number = self.numbers.get(real, 0)
        self.numbers[real] = number + 1
        return number
