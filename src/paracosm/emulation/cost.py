"""The cost of one collective, which communication models return, also a user's own."""

from __future__ import annotations

from dataclasses import dataclass

OUT, IN = " out", " in"
"""Endings of a link's name that mean one of its two directions."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The time of one collective once all members have entered: `fixed` + `busy` + `after`."""

    fixed: float  # seconds that pass first, whatever is on the links: latencies, added delays
    # Seconds of a link: bytes over bandwidth, overheads, and latencies where these hold the link
    busy: float
    # Which link of the rank: "nic" for both directions, "nic out" or "nic in"; "" if none is shared
    link: str = ""
    after: float = 0.0  # seconds that pass then, in which a message holds no link
    own: str = ""  # the link of a message's two ends, where that is slower than `link`
    share: float = 1.0  # of `link` that it has when alone there; less over a slower link of its own
    # Of `link`, in bytes/s, or of `own` where there is none; packets need it, other rules do not
    bandwidth: float | None = None


FREE = Cost(0.0, 0.0)


def directions(link: str) -> tuple[str, ...]:
    """Return both directions of a link, or the one that it names; none of no link."""
    if not link:
        return ()
    return (link,) if link.endswith((OUT, IN)) else (link + OUT, link + IN)
