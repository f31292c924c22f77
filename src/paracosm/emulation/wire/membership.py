"""Who the members of one gloo group are, as far as the store shows it."""

from __future__ import annotations

from dataclasses import dataclass, field

from paracosm.emulation.wire.gloo_address import AddressError, GlooAddress, read_address
from paracosm.emulation.wire.pair import WireGroup
from paracosm.emulation.wire.store_keys import is_device_group

__all__ = ["Membership"]


@dataclass
class Membership:
    """What is known of a group.

    Only the size of a group is in the store, not whose ranks its members have: with one real rank,
    it is that whose address comes; several are known where the members are (the default group, or
    told), else those count that come in time.

    Attributes:
        name: prefix of the group in the store.
        members: global ranks, in the order of the group; empty where nobody knows.
        real: global ranks that are real.
        deadline: instant at which no other real rank is awaited (`time.monotonic`).
        values: what each real rank has written, by its rank in the group.
        addresses: the same, read.
        served: ranks in the group of the emulated members, once their addresses are written.
        written: that address.
        connected: the values for which the emulated members have been connected, by real rank.
    """

    name: str
    members: tuple[int, ...]
    real: tuple[int, ...]
    deadline: float
    values: dict[int, bytes] = field(default_factory=dict)
    addresses: dict[int, GlooAddress] = field(default_factory=dict)
    served: frozenset[int] = frozenset()
    written: bytes = b""
    connected: dict[int, bytes] = field(default_factory=dict)

    @property
    def size(self) -> int | None:
        """How many members there are; None where nobody knows."""
        if self.members:
            return len(self.members)
        return max((len(each.connections) for each in self.addresses.values()), default=0) or None

    def is_settled(self, now: float) -> bool:
        """Return whether it is known which members are real, and one of them has come."""
        if not self.addresses:
            return False
        return bool(self.members) or len(self.addresses) == len(self.real) or now > self.deadline

    def real_members(self) -> tuple[int, ...]:
        """Return the ranks in the group of the real members, when `is_settled`."""
        if self.members:
            real = set(self.real)
            return tuple(i for i, member in enumerate(self.members) if member in real)
        return tuple(sorted(self.addresses))

    def wire_group(self, size: int) -> WireGroup:
        """Return the group as its connections know it."""
        return WireGroup(self.name, size, self.real_members(), self.members)

    def awaits(self) -> list[int]:
        """Return the real ranks for whose present address there are no connections yet."""
        return [rank for rank, value in self.values.items() if self.connected.get(rank) != value]

    def watched(self) -> list[int]:
        """Return the ranks in the group whose addresses may change.

        They are the real ones, and all where the real ones are only those that came in time.
        """
        guessed = not self.members and len(self.real) > 1
        return [*self.values, *(sorted(self.served) if guessed else ())]

    def learn(self, rank: int, value: bytes) -> bool:
        """Take up what is written for a member; return whether that is news.

        Raises:
            AddressError: gloo writes its addresses in another way than is expected, or this is of
                a real rank that came too late.
        """
        if rank in self.served:
            if value != self.written:
                raise AddressError(
                    f"a real rank came late to group {self.name} as rank {rank}, which had been "
                    "taken for emulated: a plan tells who the members are"
                )
            return False
        if self.values.get(rank) == value:
            return False
        try:
            address = read_address(value)
        except AddressError as problem:
            if not is_device_group(self.name):
                return False  # somebody's own numbered keys
            raise AddressError(
                f"the address of rank {rank} of group {self.name} is not as gloo of PyTorch 2.13 "
                f"writes it: {problem}"
            ) from None
        self.values[rank], self.addresses[rank] = value, address
        return True
