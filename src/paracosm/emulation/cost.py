"""What a communication model says of one collective: also for a model of your own."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FREE", "IN", "OUT", "Cost", "directions"]

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
