"""How gloo's rings cut the vector that they reduce, and which messages a member has for it.

The vector of S bytes is cut into n segments for each of W ranks, n >= 2, of at most 1 MiB and of
the same length but for the last ones, which may be shorter or missing. Member r sends as message i
the segment (r + 1) n + i modulo n W, and receives (r + 2) n + i. An all-reduce has 2 (W - 1) n
messages: the first half adds up, the second half passes the sums round (gloo/allreduce.cc). The
ring of a reduce has W n - 2, of which those beyond (W - 1) n change nothing (gloo/reduce.cc).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

LONGEST = 1 << 20  # most bytes of a segment (gloo, AllreduceOptions::kMaxSegmentSize)


@dataclass(frozen=True, slots=True)
class Layout:
    world: int  # members of the group
    lag: int  # segments per rank
    present: int  # segments that are not empty
    count: int  # messages of a member each way, were no segment empty

    @property
    def is_full(self) -> bool:
        return self.present == self.lag * self.world

    @property
    def half(self) -> int:
        return (self.world - 1) * self.lag


@dataclass(frozen=True, slots=True)
class Messages:
    """What a member sends and receives: the indices `i` of the messages that are not empty."""

    sends: range | tuple[int, ...]  # indices, in order
    receives: range | tuple[int, ...]
    begun: int  # how many of `sends` are in the first half
    added: int  # how many of `receives` are


def layout_of(kind: str, world: int, size: int, element: int) -> tuple[Layout, int]:
    """Return how an all_reduce or reduce cuts `size` bytes, and the bytes of a segment."""
    longest = element * max(1, LONGEST // element)
    if kind == "reduce":
        length = _rounded_up(min(-(-size // (2 * world)), longest), element)
        lag = max(-(-size // (length * world)), 2)
        return Layout(world, lag, -(-size // length), world * lag - 2), length
    lag = max(-(-size // (longest * world)), 2)
    length = _rounded_up(-(-size // (world * lag)), element)
    return Layout(world, lag, -(-size // length), 2 * (world - 1) * lag), length


def _rounded_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@lru_cache(maxsize=256)
def messages_of(layout: Layout, member: int) -> Messages:
    everything = range(layout.count)
    if layout.is_full:
        return Messages(everything, everything, layout.half, layout.half)
    sends = _present(layout, (member + 1) * layout.lag)
    receives = _present(layout, (member + 2) * layout.lag)
    begun, added = (sum(i < layout.half for i in one) for one in (sends, receives))
    return Messages(sends, receives, begun, added)


def _present(layout: Layout, first: int) -> tuple[int, ...]:
    total = layout.lag * layout.world
    return tuple(i for i in range(layout.count) if (first + i) % total < layout.present)
