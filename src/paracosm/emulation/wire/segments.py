"""How gloo's ring all-reduce cuts its vector, and which messages a member has for it.

The vector of S bytes is cut into n segments for each of W ranks, n = max(2, ceil(ceil(S / 1 MiB) /
W)), of the same length but for the last ones, which may be shorter or missing (gloo/allreduce.cc).
Member r sends as message i the segment (r + 1) n + i modulo n W, and receives (r + 2) n + i, for i
from 0 to 2 (W - 1) n: the first half adds up, the second half passes the sums round.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

LONGEST = 1 << 20  # most bytes of a segment (gloo, AllreduceOptions::kMaxSegmentSize)
_ELEMENT = 8  # bytes of the longest element that gloo reduces
_MOST_LAG = 1 << 12  # segments per rank that are looked at: 4 GiB for each rank


@dataclass(frozen=True, slots=True)
class Layout:
    world: int  # members of the group
    lag: int  # segments per rank
    present: int  # segments that are not empty

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


def layout_of(world: int, size: int, element: int) -> tuple[Layout, int]:
    longest = element * max(1, LONGEST // element)
    count = max(-(-size // longest), 2 * world)
    count = -(-count // world) * world
    length = -(-size // count)
    length = -(-length // element) * element
    return Layout(world, count // world, -(-size // length)), length


def layout_of_segments(world: int, size: int, length: int) -> Layout | None:
    """Return how gloo cuts a vector of `size` bytes into segments of `length`, where it can."""
    for element in (1, 2, 4, 8):
        layout, found = layout_of(world, size, element)
        if found == length:
            return layout
    return None


@lru_cache(maxsize=256)
def messages_of(layout: Layout, member: int) -> Messages:
    everything = range(2 * layout.half)
    if layout.is_full:
        return Messages(everything, everything, layout.half, layout.half)
    sends = _present(layout, (member + 1) * layout.lag)
    receives = _present(layout, (member + 2) * layout.lag)
    begun, added = (sum(i < layout.half for i in one) for one in (sends, receives))
    return Messages(sends, receives, begun, added)


def _present(layout: Layout, first: int) -> tuple[int, ...]:
    total = layout.lag * layout.world
    return tuple(i for i in range(2 * layout.half) if (first + i) % total < layout.present)


def candidates(world: int, length: int) -> Iterator[Layout]:
    """Yield all layouts whose segments have `length` bytes, those without empty ones first.

    Three and more segments per rank have more than 1 - 1/n of 1 MiB each; segments are missing
    only where they have few elements.
    """
    most = _MOST_LAG if length >= LONGEST else min(_MOST_LAG, int(1 / (1 - length / LONGEST)) + 1)
    for lag in range(2, max(2, most) + 1):
        if lag == 2 or length > (1 - 1 / lag) * LONGEST - _ELEMENT:
            yield Layout(world, lag, world * lag)
    elements = max(1, length // _ELEMENT)
    fewest = (elements - 1) * 2 * world // elements + 1
    for present in range(2 * world - 1, fewest - 1, -1):
        yield Layout(world, 2, present)


def vector_size(layout: Layout, member: int, length: int, sent: int) -> int:
    """Return the bytes of the vector of which a member sent `sent` bytes.

    It sends all but its own segments, then all but those of the rank before it; what is sent grows
    with the vector's size, so that there is one answer.
    """
    chunk = layout.lag * length

    def sends(size: int) -> int:
        own = min(max(size - member * chunk, 0), chunk)
        before = min(max(size - (member - 1) % layout.world * chunk, 0), chunk)
        return 2 * size - own - before

    low, high = 0, max(sent, 1) * 2
    while low < high:
        middle = (low + high) // 2
        if sends(middle) < sent:
            low = middle + 1
        else:
            high = middle
    return low


class Progress:
    """Where a member is in its ring, by how much of what it posted is done.

    It posts message i of both directions once those of i - 2 are done, and begins the second half
    when all of the first is done.
    """

    __slots__ = ("_at", "_half", "_receives", "_sends", "layout")

    def __init__(self, layout: Layout, member: int) -> None:
        self.layout = layout
        self._half = layout.half
        self._at = 0
        total = layout.lag * layout.world

        def counted(first: int) -> list[int]:
            counts = [0]
            for i in range(2 * layout.half):
                counts.append(counts[-1] + ((first + i) % total < layout.present))
            return counts

        self._sends = counted((member + 1) * layout.lag)
        self._receives = counted((member + 2) * layout.lag)

    def posted(self, received: int, sent: int) -> tuple[int, int]:
        while self._at < 2 * self._half:
            needed = self._half if 0 <= self._at - self._half < 2 else max(0, self._at - 1)
            if self._receives[needed] > received or self._sends[needed] > sent:
                break
            self._at += 1
        return self._receives[self._at], self._sends[self._at]


LARGEST = 128  # members up to which layouts with empty segments are told apart
_QUIET = 2e-3  # seconds without a message after which a member is taken to wait
_QUIET_LARGE = 5e-3  # where it adds up a megabyte in between
_PATIENCE = 20  # times as long before a layout is given up for what was not posted


@dataclass(frozen=True, slots=True)
class Standing:
    """What a real member has done so far: receives and sends that it posted, and that are done."""

    posted: tuple[int, int]
    done: tuple[int, int]


class Learning:
    """The layouts that explain what real members have posted so far.

    The messages of a ring all-reduce do not say how long the vector is. Mostly it follows from the
    length of the segments; where it does not (few elements, or more than 1 MiB for each rank) it
    shows in what the real member posts before it waits. So such an operation is played one message
    at a time when it is seen first, and remembered. Both neighbours of each of the real `members`
    are emulated.
    """

    def __init__(self, world: int, members: Sequence[int], length: int) -> None:
        self._members = members
        found = candidates(world, length)
        if world > LARGEST:
            found = (layout for layout in found if layout.is_full)
        self._more: Iterator[Layout] = iter(())
        if length > LONGEST // 2:
            # All behave alike until the one with the fewest segments would begin its second half.
            self._more = found
            found = itertools.islice(found, 2)
        self._left = [_Explanation(layout, members) for layout in found]
        self._doubtful: list[_Explanation] = []
        self.released = dict.fromkeys(members, 0)
        self.accepted = dict.fromkeys(members, 0)
        self._quiet = _QUIET_LARGE if length > LONGEST // 2 else _QUIET
        self._is_patient = False

    @property
    def quiet(self) -> float:
        """Seconds without news after which `settle` is to be called."""
        return self._quiet * (_PATIENCE if self._is_patient else 1)

    @property
    def layout(self) -> Layout:
        return self._left[0].layout

    @property
    def is_certain(self) -> bool:
        return len(self._left) == 1

    def settle(self, standings: Mapping[int, Standing]) -> None:
        """Learn that all real members wait.

        Nobody posts more than its layout has. Less it may just not have posted yet, on a busy
        machine: before that decides, the members get a longer time.
        """
        possible = [one for one in self._doubtful if one.covers(standings)]
        fits = [one for one in self._left if one.fits(standings)]
        is_open = any(one.covers(standings) for one in self._left if one not in fits)
        if is_open and not self._is_patient:
            self._is_patient = True
            return
        self._is_patient = False
        self._doubtful = possible + [
            one for one in self._left if one not in fits and one.covers(standings)
        ]
        if not fits and self._doubtful:
            fits, self._doubtful = self._doubtful, []
        if fits:
            fewest = self._left[0]
            self._left = fits
            if fewest not in fits:
                more = itertools.islice(self._more, 1)
                self._left += [_Explanation(layout, self._members) for layout in more]
        for member, standing in standings.items():
            received, sent = standing.done
            self.released[member], self.accepted[member] = received + 1, sent + 1


class _Explanation:
    """What members would have posted if the vector were cut in some way."""

    def __init__(self, layout: Layout, members: Sequence[int]) -> None:
        self.layout = layout
        self._progress = {member: Progress(layout, member) for member in members}

    def fits(self, standings: Mapping[int, Standing]) -> bool:
        return all(
            self._progress[member].posted(*one.done) == one.posted
            for member, one in standings.items()
        )

    def covers(self, standings: Mapping[int, Standing]) -> bool:
        return all(
            all(map(operator.ge, self._progress[member].posted(*one.done), one.posted))
            for member, one in standings.items()
        )


class Remembered:
    def __init__(self) -> None:
        self._known: dict[tuple[object, int], Layout | None] = {}
        self._before: object = None

    def recall(self, length: int) -> tuple[tuple[object, int], Layout | None]:
        key = self._before, length
        return key, self._known.get(key)

    def learn(self, key: tuple[object, int], layout: Layout) -> None:
        """Remember; two answers for one key are forgotten for good."""
        self._before = key[1], layout
        if key not in self._known:
            self._known[key] = layout
        elif self._known[key] != layout:
            self._known[key] = None

    def forget(self, key: tuple[object, int]) -> None:
        """Take no operation of this key to be as an earlier one from now on."""
        self._known[key] = None
