"""What a communication model says of one collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["FREE", "IN", "OUT", "Communication", "Cost", "directions"]

OUT, IN = " out", " in"
"""What the name of a link ends with where one of its two directions is meant."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The time of one collective once all members have come to it.

    Attributes:
        fixed: seconds that pass whatever else is on the links: latencies, added delays.
        busy: seconds for which it holds a link that it does not share at that time: bytes over
            bandwidth.
        link: which link of the rank that is; collectives on one link take turns for `busy`. A
            message may hold one direction only, "nic out" or "nic in", of a link "nic".
    """

    fixed: float
    busy: float
    link: str = ""


FREE = Cost(0.0, 0.0)


def directions(link: str) -> tuple[str, ...]:
    """Return the directions that a link is, or the one that it names."""
    return (link,) if link.endswith((OUT, IN)) else (link + OUT, link + IN)


class Communication(Protocol):
    """How long communication takes: the plug-in of the paper's section 2.1."""

    def cost(self, kind: str, members: Sequence[int], size: int, rank: int, peer: int) -> Cost:
        """Return what a collective costs as `rank` sees it.

        Args:
            kind: one of `records.COLLECTIVES`.
            members: global ranks of the group, in its order.
            size: bytes, as `records.Collective.size` counts them.
            rank: global rank of the real rank.
            peer: global rank of the root or the other end; -1 where there is none.
        """

    def hop(self, source: int, target: int, size: int) -> float:
        """Return the seconds of one message between two global ranks on an idle link."""

    def added(self, kind: str) -> float:
        """Return the seconds that what-ifs add to every collective of a kind (within `cost`)."""
