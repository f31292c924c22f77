"""Which way gloo cut a vector for its ring, from what a real member posts.

The messages of a ring all-reduce do not say how long the vector is. Mostly it follows from the
length of the segments; where it does not (few elements, or more than 1 MiB for each rank) it shows
in what the real member posts before it waits. So such an operation is played one message at a time
when it is seen first, and remembered.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from paracosm.emulation.wire.schedules.segments import LONGEST, Layout, Progress, candidates

__all__ = ["LARGEST", "Learning", "Remembered", "Standing"]

LARGEST = 128
"""Members up to which layouts with empty segments are told apart."""

_QUIET = 2e-3  # seconds without a message after which a member is taken to wait
_QUIET_LARGE = 5e-3  # where it adds up a megabyte in between
_PATIENCE = 20  # times as long before a layout is given up for what was not posted


@dataclass(frozen=True, slots=True)
class Standing:
    """What a real member has done so far.

    Attributes:
        posted: receives and sends that it has posted.
        done: how many of them are done.
    """

    posted: tuple[int, int]
    done: tuple[int, int]


class Learning:
    """The layouts that explain what real members have posted so far.

    Args:
        world: members of the group.
        members: the real ones; both neighbours of each are emulated.
        length: bytes of a segment.

    Attributes:
        released, accepted: by member, how many of its receives may be answered, and of its sends
            be accepted, by now.
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
        """The likeliest layout."""
        return self._left[0].layout

    @property
    def is_certain(self) -> bool:
        """Whether no other layout is left."""
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
        """Return whether they have posted just that."""
        return all(
            self._progress[member].posted(*one.done) == one.posted
            for member, one in standings.items()
        )

    def covers(self, standings: Mapping[int, Standing]) -> bool:
        """Return whether they have posted nothing beyond that."""
        return all(
            all(map(operator.ge, self._progress[member].posted(*one.done), one.posted))
            for member, one in standings.items()
        )


class Remembered:
    """The layouts of a group's operations, by the length of their segments and what was before."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, int], Layout | None] = {}
        self._before: object = None

    def recall(self, length: int) -> tuple[tuple[object, int], Layout | None]:
        """Return the key of the operation that begins, and its layout where it is known."""
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
