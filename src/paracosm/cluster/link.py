"""A link: how long a message holds the ports at both ends, and when it is there."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Literal

from paracosm.errors import InputError

__all__ = ["LOCAL", "Link"]


@dataclass(frozen=True)
class Link:
    """A channel from one node to another.

    A message of `size` bytes takes `overhead + latency + size / bandwidth` seconds. By default both
    ports are held for all of it, as in Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze
    Gradient Staleness Effect". On a `pipelined` link the latency passes after the ports are free
    again, so that the next message can follow at once, as on a real network.

    Args:
        bandwidth: bytes/s, above 0.
        latency: seconds from the first byte sent to the first byte received.
        overhead: seconds that each message costs its ports, whatever its size.
        duplex: "full", or "half" where a port either sends or receives.
        pipelined: whether latency overlaps with the next message.

    Raises:
        InputError: a value that is out of range.
    """

    bandwidth: float = inf
    latency: float = 0.0
    overhead: float = 0.0
    duplex: Literal["full", "half"] = "full"
    pipelined: bool = False

    def __post_init__(self) -> None:
        if not self.bandwidth > 0:
            raise InputError(f"link: bandwidth must be above 0, not {self.bandwidth}")
        for name, value in (("latency", self.latency), ("overhead", self.overhead)):
            if not (value >= 0 and isfinite(value)):
                raise InputError(f"link: {name} must be finite and 0 or more, not {value}")
        if self.duplex not in ("full", "half"):
            raise InputError(f'link: duplex must be full or half, not "{self.duplex}"')

    def occupancy(self, size: float) -> float:
        """Return for how many seconds a message of `size` bytes holds the ports at both ends."""
        held = self.overhead if self.pipelined else self.overhead + self.latency
        return held + size / self.bandwidth

    def propagation(self, size: float) -> float:
        """Return the seconds from the release of the ports until the message is there."""
        return self.latency if self.pipelined else 0.0

    def transfer_time(self, size: float) -> float:
        """Return the seconds that a message of `size` bytes takes when nothing is in its way."""
        return self.overhead + self.latency + size / self.bandwidth

    def exchange_time(self, size: float) -> float:
        """Return the seconds in which every node sends a message of `size` bytes and gets one.

        With half duplex a port has the two one after the other.
        """
        before = self.occupancy(size) if self.duplex == "half" else 0.0
        return before + self.transfer_time(size)

    @staticmethod
    def constant(seconds: float) -> Link:
        """Return the link on which every message takes `seconds`, whatever its size."""
        return Link(latency=seconds)


# Between two roles on one node: nothing is sent.
LOCAL = Link()
