"""When the emulated ranks enter a collective."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Floats, Ints
from paracosm.emulation.config import EmulateConfig, RandomDelay, parse_random_delay
from paracosm.emulation.group_cache import GroupCache
from paracosm.errors import InputError
from paracosm.rng import EmulationStream, sequence
from paracosm.timing import Constant, Distribution
from paracosm.timing.distribution import inside

_MOST_AT_A_TIME = 64  # collectives in flight


def peers_of(config: EmulateConfig, rank: int, seed: int) -> Peers:
    world = config.world
    jitter: DrawnJitter | MeasuredJitter | None = None
    if config.compute_jitter == "measured":
        jitter = MeasuredJitter(RankRng(seed, (EmulationStream.JITTER,)), world)
    elif config.compute_jitter is not None:
        drawn = config.compute_jitter.distribution
        jitter = DrawnJitter(drawn, RankRng(seed, (EmulationStream.JITTER,)), world)
    late = []
    for change in config.changes("workers"):
        if change.what != "late":
            continue
        ranks = change.numbers(world)
        for own in config.rank:
            if own in ranks:
                raise change.error(
                    f"rank {own} is real, it comes when its script comes; only emulated ranks can "
                    "be late"
                )
        text = change.added if isinstance(change.added, str) else f"{change.added!r}s"
        try:
            late.append((ranks, parse_random_delay(text).distribution))
        except InputError as error:
            raise change.error(str(error)) from None
    factors = time_factors(config)
    # A real rank whose computing takes no time is alone with that only if all are
    relative = factors / factors[rank] if factors[rank] > 0 else np.ones(world)
    return Peers(world, {rank, *config.rank}, seed, config.skew, jitter, relative, late)


def time_factors(config: EmulateConfig) -> Floats:
    """Return how many times as long each rank computes as measured here, shape (world,).

    It is the slowness of its node, and what changes of its computing make of that.

    Raises:
        InputError: that of a real rank would change, where its script takes its real time.
    """
    cluster = config.resolve_cluster()
    speeds = np.ones(config.world)
    if cluster is not None:
        speeds = np.array([node.speed for node in cluster.nodes[: config.world]])
    factors = 1 / speeds
    for rank in config.rank:
        if speeds[rank] != 1 and not config.is_composed:
            raise InputError(
                f"cluster: speed: worker {rank} is real and computes at this machine's speed, "
                f"which is 1, not {speeds[rank]:g}"
            )
    for change in config.changes("workers"):
        if change.what != "compute":
            continue
        ranks = change.numbers(config.world)
        real = [rank for rank in config.rank if rank in ranks]
        if real and not config.is_composed:
            raise change.error(
                f"rank {real[0]} is real, it computes as fast as this machine does; only emulated "
                "ranks can be made stragglers, or leave --live, --nccl and --mode wire out"
            )
        if real and not change.factor and len(ranks) < config.world:
            raise change.error(
                f"rank {real[0]} is real, and how long others compute is known by it: "
                "compute: none is for all of them"
            )
        factors[ranks.start : ranks.stop] *= change.factor
    return factors


@dataclass(frozen=True)
class _Collective:
    number: int
    computed: float
    jitter: Floats | None


class Peers:
    """The emulated ranks: how much later than a real rank they enter its collectives.

    When a wait of the real rank ends, all ranks are taken to be together. From then on a peer
    computes as the real rank does, except for

    - a straggler's factor, on all that the real rank has computed since that wait;
    - a straggler's lateness, once per iteration: until a wait has followed a collective of which
      both were members;
    - jitter, once for each stretch between waits;
    - skew, once for each collective.

    Calls with the same `asked` are about one collective. A straggler that shares no process group
    with the real rank has no effect: indirect waiting is not modelled. The same calls in the same
    order get the same draws, and a rank's draws do not depend on the size of the world.
    """

    def __init__(
        self,
        world: int,  # ranks of the job
        real: set[int],  # those that are not emulated
        seed: int,
        skew: RandomDelay | None,
        jitter: DrawnJitter | MeasuredJitter | None,
        factors: Floats,  # by rank, how many times as long it computes as the real rank
        late: Sequence[tuple[range, Distribution]],  # a draw once in an iteration; they add up
    ) -> None:
        self._skew = skew
        self._jitter = jitter
        rngs = (RankRng(seed, (EmulationStream.LATE, i)) for i in range(len(late)))
        self._lates = [(*each, rng) for each, rng in zip(late, rngs, strict=True)]
        self._has_stragglers = bool(late) or bool(np.any(factors != 1))
        self._emulated = GroupCache(
            lambda members: np.array([rank for rank in members if rank not in real], np.int64)
        )
        self._skews = RankRng(seed, (EmulationStream.SKEW,))
        self._stretch = self._iteration = self._count = 0
        self._collectives: dict[float, _Collective] = {}  # the last, by when they were asked for
        self._together: float | None = None
        self._slower = factors - 1  # seconds for each second that the real rank computes
        self._late = np.zeros(world)
        self._met = np.zeros(world, dtype=np.bool_)
        self._draw_late()

    def resumed(self, now: float) -> None:
        self._together = now
        self._stretch += 1
        if self._has_stragglers:
            self._late[self._met] = 0.0
            self._met[:] = False

    def iteration_ended(self, now: float) -> None:
        self._iteration += 1
        if self._jitter is not None:
            self._jitter.iteration_ended()
        if self._has_stragglers:
            self._met[:] = False
            self._draw_late()

    @property
    def may_be_late(self) -> bool:
        return self._skew is not None or self._jitter is not None or self._has_stragglers

    def entered(self, kind: str, members: Sequence[int], peer: int, asked: float) -> float:
        """Return when the last member that the real rank waits for has entered, or the rank itself.

        A message is sent whether or not its receiver is ready; `peer` is a message's sender.
        """
        if kind == "send" or len(members) == 1:
            return asked
        come = self.entry(peer, asked) if kind == "recv" else self.last_entry(members, asked)
        return max(asked, come)

    def last_entry(self, members: Sequence[int], asked: float) -> float:
        if not self.may_be_late:
            return asked
        ranks = self._emulated.of(members)
        if not len(ranks):
            return asked
        return asked + float(np.max(self._lateness(ranks, asked)))

    def entry(self, peer: int, asked: float) -> float:
        """Return when one peer (-1: any) enters what the real rank asked for at `asked`."""
        return asked if peer < 0 else self.last_entry((peer,), asked)

    def _lateness(self, ranks: Ints, asked: float) -> Floats:
        collective = self._collectives.get(asked) or self._begin(asked)
        late = np.zeros(len(ranks))
        if self._has_stragglers:
            late += self._slower[ranks] * collective.computed + self._late[ranks]
            self._met[ranks] = True
        if collective.jitter is not None:
            late += collective.jitter[ranks]
        if self._skew is not None:
            delay = self._skew.distribution
            if isinstance(delay, Constant):
                late += self._skew.sign * delay.value
            else:
                late += self._skew.sign * self._skews.of(delay, collective.number, ranks)
        return late

    def _begin(self, asked: float) -> _Collective:
        if self._together is None:
            self._together = asked
        computed = max(asked - self._together, 0.0)
        jitter = None if self._jitter is None else self._jitter.late(self._stretch, computed)
        if len(self._collectives) >= _MOST_AT_A_TIME:
            del self._collectives[next(iter(self._collectives))]
        self._count += 1
        self._collectives[asked] = collective = _Collective(self._count, computed, jitter)
        return collective

    def _draw_late(self) -> None:
        self._late[:] = 0.0
        for ranks, distribution, rng in self._lates:
            numbers = np.arange(ranks.start, ranks.stop)
            self._late[numbers] += rng.of(distribution, self._iteration, numbers)


_LEAST, _MOST = 2, 32  # iterations that a measured jitter draws from


class DrawnJitter:
    """Each rank computes longer than the real one by a draw from `distribution`."""

    def __init__(self, distribution: Distribution, rng: RankRng, world: int) -> None:
        self._distribution = distribution
        self._rng = rng
        self._ranks = np.arange(world)
        self._stretch = -1
        self._late: Floats | None = None

    def late(self, stretch: int, computed: float) -> Floats | None:
        """Return the seconds by rank, drawn once per stretch between waits of the real rank."""
        if stretch != self._stretch:
            self._late = self._rng.of(self._distribution, stretch, self._ranks)
            self._stretch = stretch
        return self._late

    def iteration_ended(self) -> None:
        """All iterations are alike."""


class MeasuredJitter:
    """Each rank computes a stretch as the real one did in one of its recent iterations.

    The real rank's own deviation from its typical time is subtracted: where it is late itself, the
    others are not. Stretches are matched by their place in the iteration; which iteration a rank
    follows is drawn once per stretch. The first iteration, which warms up, is ignored; until two
    others are known nobody is late.
    """

    def __init__(self, rng: RankRng, world: int) -> None:
        self._rng = rng
        self._world = world
        self._stretch = -1
        self._uniform = np.empty(0)
        self._past: list[deque[float]] = []  # by place in the iteration
        self._computed: list[float] | None = None  # in this iteration; None in the first

    def late(self, stretch: int, computed: float) -> Floats | None:
        """Return the seconds by rank, which may be negative; None until enough is known."""
        if self._computed is None:
            return None
        place = len(self._computed)
        self._computed.append(computed)
        if place >= len(self._past) or len(self._past[place]) < _LEAST:
            return None
        if stretch != self._stretch:
            self._uniform = self._rng.uniform(stretch, self._world)
            self._stretch = stretch
        past = np.array(self._past[place])
        return np.asarray(past[(self._uniform * len(past)).astype(np.intp)] - computed)

    def iteration_ended(self) -> None:
        for place, computed in enumerate(self._computed or ()):
            if place == len(self._past):
                self._past.append(deque(maxlen=_MOST))
            self._past[place].append(computed)
        self._computed = []


@dataclass(frozen=True)
class RankRng:
    """A source of one uniform number for each rank on each occasion.

    Counter-based (Philox; Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), so
    that occasions are independent; a rank's number is its place in the occasion's sequence.
    """

    seed: int
    source: tuple[int, ...]  # what the numbers are for: two sources share none

    def uniform(self, occasion: int, ranks: int) -> Floats:
        philox = np.random.Philox(counter=[0, occasion, 0, 0], key=self._key)
        return inside(np.random.Generator(philox).random(ranks))

    def of(self, distribution: Distribution, occasion: int, ranks: Ints) -> Floats:
        return distribution.from_uniform(self.uniform(occasion, int(ranks.max()) + 1)[ranks])

    @cached_property
    def _key(self) -> npt.NDArray[Any]:
        return sequence(self.seed, *self.source).generate_state(2, np.uint64)
