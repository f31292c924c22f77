"""How the computing times of emulated ranks scatter."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paracosm.emulation.draws import Draws
from paracosm.timing import Distribution

__all__ = ["DrawnJitter", "Jitter", "MeasuredJitter"]

Array = npt.NDArray[np.float64]

_LEAST, _MOST = 2, 32  # iterations that a measured jitter draws from


class Jitter(Protocol):
    """How much later than the real rank each rank comes to a collective."""

    def late(self, stretch: int, computed: float) -> Array | None:
        """Return the seconds by rank, which may be negative; None while nothing is known.

        Args:
            stretch: counts the waits of the real rank: what is drawn is drawn once for each.
            computed: seconds for which the real rank computed since its last wait.
        """

    def iteration_ended(self) -> None:
        """Know that an iteration of the real rank has ended."""


class DrawnJitter:
    """Each rank computes longer than the real one by a draw of `distribution`."""

    def __init__(self, distribution: Distribution, draws: Draws, world: int) -> None:
        self._distribution = distribution
        self._draws = draws
        self._ranks = np.arange(world)
        self._stretch = -1
        self._late: Array | None = None

    def late(self, stretch: int, computed: float) -> Array | None:
        """Return the seconds of this stretch by rank."""
        if stretch != self._stretch:
            self._late = self._draws.of(self._distribution, stretch, self._ranks)
            self._stretch = stretch
        return self._late

    def iteration_ended(self) -> None:
        """Do nothing: all iterations are alike."""


class MeasuredJitter:
    """Each rank computes a stretch as the real one did in one of its last iterations.

    The real rank's own deviation from its typical time is no part of that: where it is itself late,
    the others are not. Collectives are recognised by their place in the iteration. Which iteration
    a rank follows is drawn once for each stretch. The first one, which warms up, counts for
    nothing; until two others are known nobody is late.
    """

    def __init__(self, draws: Draws, world: int) -> None:
        self._draws = draws
        self._world = world
        self._stretch = -1
        self._uniform = np.empty(0)
        self._past: list[deque[float]] = []  # by place in the iteration
        self._computed: list[float] | None = None  # in this iteration; None in the first

    def late(self, stretch: int, computed: float) -> Array | None:
        """Return the deviations of other iterations from this one, by rank."""
        if self._computed is None:
            return None
        place = len(self._computed)
        self._computed.append(computed)
        if place >= len(self._past) or len(self._past[place]) < _LEAST:
            return None
        if stretch != self._stretch:
            self._uniform = self._draws.uniform(stretch, self._world)
            self._stretch = stretch
        past = np.array(self._past[place])
        return np.asarray(past[(self._uniform * len(past)).astype(np.intp)] - computed)

    def iteration_ended(self) -> None:
        """Add what the real rank computed in this iteration to what is known."""
        for place, computed in enumerate(self._computed or ()):
            if place == len(self._past):
                self._past.append(deque(maxlen=_MOST))
            self._past[place].append(computed)
        self._computed = []
