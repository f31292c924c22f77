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
    """The time of one collective once all members have come to it: `fixed` + `busy` + `after`.

    Attributes:
        fixed: seconds that pass first, whatever else is on the links: latencies, added delays.
        busy: seconds of a link that it needs: bytes over bandwidth, overheads, and latencies where
            these hold the link.
        link: which link of the rank that is, in both directions; a message needs one direction
            only, "nic out" or "nic in", of a link "nic". Empty where nothing is shared.
        after: seconds that pass then, in which a message holds no link.
        own: name of the link of the two ends of a message, where that is slower than `link`.
        share: of `link` that it has when alone there; less than 1 over a slower link of its own.
    """

    fixed: float
    busy: float
    link: str = ""
    after: float = 0.0
    own: str = ""
    share: float = 1.0


FREE = Cost(0.0, 0.0)


def directions(link: str) -> tuple[str, ...]:
    """Return the directions that a link is, or the one that it names; none of no link."""
    if not link:
        return ()
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

    def split(self, source: int, target: int, size: int) -> tuple[float, float]:
        """Return what one message between two global ranks takes on an idle link.

        Returns:
            The seconds in which it holds no link, and those in which it does.
        """

    def added(self, kind: str) -> float:
        """Return the seconds that what-ifs add to every collective of a kind (within `cost`)."""
