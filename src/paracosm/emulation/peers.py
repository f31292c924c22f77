"""When the emulated ranks come to a collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.draws import Draws
from paracosm.emulation.jitter import DrawnJitter, Jitter, MeasuredJitter
from paracosm.emulation.known_groups import KnownGroups
from paracosm.emulation.random_delay import parse_random_delay
from paracosm.emulation.what_if import Straggler, what_ifs_of, with_world
from paracosm.errors import InputError
from paracosm.timing import Constant, Distribution

__all__ = ["Peers", "Skew", "peers_of"]

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_SKEW, _JITTER, _LATE = range(3)  # sources of random numbers
_MOST_AT_A_TIME = 64  # collectives in flight


def peers_of(config: EmulateConfig, rank: int, seed: int) -> Peers:
    """Return when the emulated ranks of a job come, as the real rank `rank` sees it.

    Raises:
        InputError: a skew, a jitter or a what-if that cannot be read, or names a rank that is not
            emulated.
    """
    config = with_world(config)
    world = config.world
    jitter: Jitter | None = None
    if config.jitter == "measured":
        jitter = MeasuredJitter(Draws(seed, (_JITTER,)), world)
    elif config.jitter not in (None, "none"):
        drawn = _distribution("jitter", str(config.jitter))
        jitter = DrawnJitter(drawn, Draws(seed, (_JITTER,)), world)
    stragglers = [each for each in what_ifs_of(config) if isinstance(each, Straggler)]
    real = {rank, *config.rank}
    return Peers(world, real, seed, _skew(config.skew), jitter, stragglers)


@dataclass(frozen=True)
class Skew:
    """How much later than the real rank each peer comes; earlier where `sign` is -1."""

    distribution: Distribution
    sign: int = 1


@dataclass(frozen=True)
class _Collective:
    """What is the same for all members of one collective.

    Attributes:
        number: counts them.
        computed: seconds for which the real rank computed before it asked.
        jitter: seconds by which each rank is later for that; None for none.
    """

    number: int
    computed: float
    jitter: Array | None


class Peers:
    """The emulated ranks: how late they are for the collectives of a real rank.

    When a wait of the real rank ends all ranks are taken to be together. From then on a peer
    computes as the real rank does, but for

    - a straggler's factor, which counts for all that the real rank computed since that wait;
    - a straggler's lateness, once in an iteration: until a wait has followed on a collective that
      both were members of;
    - jitter, once for each stretch between waits;
    - skew, once for each collective.

    Calls with the same `asked` are about one collective. A straggler that shares no process group
    with the real rank has no effect: who waits for it is not followed.

    Args:
        world: ranks of the job.
        real: those that are not emulated.
        seed: of all that is drawn; the same calls in the same order get the same draws, and a
            rank's draws do not depend on the size of the world.
        skew: None for none.
        jitter: None for none.
        stragglers: they add up.
    """

    def __init__(
        self,
        world: int,
        real: set[int],
        seed: int,
        skew: Skew | None,
        jitter: Jitter | None,
        stragglers: Sequence[Straggler],
    ) -> None:
        self._skew = skew
        self._jitter = jitter
        self._stragglers = stragglers
        self._emulated = KnownGroups(
            lambda members: np.array([rank for rank in members if rank not in real], np.int64)
        )
        self._skews = Draws(seed, (_SKEW,))
        self._lates = [Draws(seed, (_LATE, number)) for number in range(len(stragglers))]
        self._stretch = self._iteration = self._count = 0
        self._collectives: dict[
            float, _Collective
        ] = {}  # the last ones, by when they were asked for
        self._together: float | None = None
        self._slower = np.zeros(world)  # seconds for each second that the real rank computes
        for each in stragglers:
            ranks = slice(each.ranks.start, each.ranks.stop)
            self._slower[ranks] = (1 + self._slower[ranks]) * each.factor - 1
        self._late = np.zeros(world)
        self._met = np.zeros(world, dtype=np.bool_)
        self._draw_late()

    def resumed(self, now: float) -> None:
        """Know that a wait of the real rank ended at `now`."""
        self._together = now
        self._stretch += 1
        if self._stragglers:
            self._late[self._met] = 0.0
            self._met[:] = False

    def iteration_ended(self, now: float) -> None:
        """Know that an iteration of the real rank ended at `now`."""
        self._iteration += 1
        if self._jitter is not None:
            self._jitter.iteration_ended()
        if self._stragglers:
            self._met[:] = False
            self._draw_late()

    def last_entry(self, members: Sequence[int], asked: float) -> float:
        """Return when the last emulated one of `members` comes to a collective.

        Args:
            members: global ranks of the process group.
            asked: when the real rank asked for the collective; the peers may come before that.
        """
        if self._skew is None and self._jitter is None and not self._stragglers:
            return asked
        ranks = self._emulated.of(members)
        if not len(ranks):
            return asked
        return asked + float(np.max(self._lateness(ranks, asked)))

    def entry(self, peer: int, asked: float) -> float:
        """Return when one peer comes to what the real rank asked for at `asked`; -1: anybody."""
        return asked if peer < 0 else self.last_entry((peer,), asked)

    def _lateness(self, ranks: Ints, asked: float) -> Array:
        """Return the seconds by which these ranks are later than the real one."""
        collective = self._collectives.get(asked) or self._begin(asked)
        late = np.zeros(len(ranks))
        if self._stragglers:
            late += self._slower[ranks] * collective.computed + self._late[ranks]
            self._met[ranks] = True
        if collective.jitter is not None:
            late += collective.jitter[ranks]
        if self._skew is not None:
            late += self._skewed(self._skew, ranks, collective.number)
        return late

    def _begin(self, asked: float) -> _Collective:
        """Draw what is drawn once for a collective."""
        if self._together is None:
            self._together = asked
        computed = max(asked - self._together, 0.0)
        jitter = None if self._jitter is None else self._jitter.late(self._stretch, computed)
        if len(self._collectives) >= _MOST_AT_A_TIME:
            del self._collectives[next(iter(self._collectives))]
        self._count += 1
        self._collectives[asked] = found = _Collective(self._count, computed, jitter)
        return found

    def _skewed(self, skew: Skew, ranks: Ints, collective: int) -> Array | float:
        if isinstance(skew.distribution, Constant):
            return skew.sign * skew.distribution.value
        return skew.sign * self._skews.of(skew.distribution, collective, ranks)

    def _draw_late(self) -> None:
        """Draw how late each straggler is in this iteration."""
        self._late[:] = 0.0
        for each, draws in zip(self._stragglers, self._lates, strict=True):
            if each.late is not None:
                ranks = np.arange(each.ranks.start, each.ranks.stop)
                self._late[ranks] += draws.of(each.late, self._iteration, ranks)


def _skew(text: str | None) -> Skew | None:
    """Read "50us", "-50us", "lognormal(50us, 0.5)"."""
    if text is None or text == "none":
        return None
    earlier = text.strip().startswith("-")
    return Skew(_distribution("skew", text.strip().removeprefix("-")), -1 if earlier else 1)


def _distribution(field: str, text: str) -> Distribution:
    try:
        return parse_random_delay(text)
    except InputError as error:
        raise InputError(f"{field}: {error}") from None
