"""Timing many ops: shuffled passes over all of them, with speed probes in between.

Every pass visits every op that is not known well enough yet, in another order, so that a machine
that slows down for a second does not fall on one op alone. An op is done when its mean is known to
the wanted precision; a budget of time ends the rest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from paracosm.errors import InputError, require
from paracosm.graphs.op import Op
from paracosm.profiling.clock import clock_for
from paracosm.profiling.environment import Environment
from paracosm.profiling.here import environment_here, free_memory
from paracosm.profiling.pinning import own_random_numbers, pinned
from paracosm.profiling.probe import SpeedProbe
from paracosm.profiling.samples import CACHES, OpTiming, spread_of, typical

__all__ = ["Profile", "Progress", "Settings", "profile"]

Progress = Callable[[int, int], None]
"""Called after every visit with how many ops are done, and how many there are."""

LEAST, MOST = 5, 40  # visits of one op
PROBE_EVERY = 0.3  # seconds
STABLE = 0.01  # relative standard error


@dataclass(frozen=True)
class Settings:
    """How ops are timed.

    Attributes:
        device: "cpu" or "cuda".
        threads: of one op, on the CPU.
        caches: which of `CACHES`.
        precision: relative standard error of the mean at which an op is done.
        budget: seconds in all; every op is visited once whatever they are.
        memory: bytes that timing one op may take, with its two sets of arguments and its results;
            larger ops are refused. None for half of what is free.
        seed: of the order of visits and the values in tensors.
    """

    device: str = "cpu"
    threads: int = 1
    caches: tuple[str, ...] = CACHES
    precision: float = 0.01
    budget: float = 120.0
    memory: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.budget >= 0 or not self.precision > 0:
            raise InputError("give a budget of 0 s or more, and a precision above 0")
        if not self.caches or any(cache not in CACHES for cache in self.caches):
            raise InputError(f"caches are {' and '.join(CACHES)}, not {', '.join(self.caches)}")


@dataclass(frozen=True)
class Profile:
    """What was measured.

    Attributes:
        environment: where.
        timings: one entry for every op and cache state.
        refused: why an op has no timing, by op.
        probes: seconds of every speed probe, in the order of time.
        interrupted: whether Ctrl-C ended it.
    """

    environment: Environment
    timings: list[OpTiming]
    refused: Mapping[Op, str]
    probes: tuple[float, ...]
    interrupted: bool = False

    @property
    def stable(self) -> float:
        """Share of the timings whose mean has a standard error of less than 1 %; of one sample
        nobody knows it."""
        good = [t.time.count > 1 and t.time.standard_error < STABLE for t in self.timings]
        return sum(good) / len(good) if good else math.nan


def profile(
    ops: Sequence[Op],
    settings: Settings | None = None,
    source: str = "",
    keep: Callable[[list[OpTiming]], object] | None = None,
    progress: Progress | None = None,
    between: Callable[[], object] | None = None,
) -> Profile:
    """Time every distinct op on this machine.

    Args:
        ops: what to time; doubles are timed once.
        settings: how; see `Settings`.
        source: who asks, for the database: "model resnet50".
        keep: gets the timings that are done after every pass, so that little is lost if the program
            dies.
        progress: called after every visit.
        between: called before every visit and after the last one, with the process pinned as for
            the ops: real iterations, so that both meet the same machine.

    Raises:
        InputError: there is no such device here.
        MissingExtraError: PyTorch is not installed.
    """
    torch = require("torch", "torch", "profiling ops")
    settings = settings or Settings()
    environment = environment_here(settings.device, settings.threads)
    with (
        pinned(settings.device, settings.threads),
        own_random_numbers(settings.device, settings.seed),
        torch.no_grad(),
    ):
        run = _Run(ops, settings, environment, source, keep)
        interrupted = False
        try:
            run.measure(progress, between)
        except KeyboardInterrupt:
            interrupted = True
        finally:  # whatever else fails, what was measured is kept
            run.finish()
    return Profile(environment, run.timings, run.refused, tuple(run.probes), interrupted)


@dataclass
class _Samples:
    """What is known of one op so far: seconds by cache state, and the probes beside them."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    probes: list[float] = field(default_factory=list)

    def add(self, found: Mapping[str, float], probe: float) -> None:
        for cache, value in found.items():
            self.seconds.setdefault(cache, []).append(value)
        self.probes.append(probe)

    def known_to(self, precision: float) -> bool:
        spreads = [spread_of(typical(values)) for values in self.seconds.values()]
        return all(spread.standard_error < precision for spread in spreads)


class _Run:
    """The passes of one call of `profile`."""

    def __init__(
        self,
        ops: Sequence[Op],
        settings: Settings,
        environment: Environment,
        source: str,
        keep: Callable[[list[OpTiming]], object] | None,
    ) -> None:
        self.timings: list[OpTiming] = []
        self.refused: dict[Op, str] = {}
        self.probes: list[float] = []
        self._settings, self._environment = settings, environment
        self._source, self._keep = source, keep
        self._kept = 0
        self._open = {op: _Samples() for op in ops}
        self._total = len(self._open)
        self._clock = clock_for(settings.device, settings.threads)
        from paracosm.profiling.instantiate import memory_of  # PyTorch through and through
        from paracosm.profiling.measure import Bench

        self._bench, self._memory_of = Bench(settings.device, self._clock), memory_of
        self._probe = SpeedProbe(settings.device, self._clock)
        self._probed = -math.inf
        self._room = _room(settings)

    def measure(self, progress: Progress | None, between: Callable[[], object] | None) -> None:
        """Make passes until all is known or the budget is spent."""
        generator = np.random.default_rng(self._settings.seed)
        end = time.monotonic() + self._settings.budget
        for number in range(MOST):
            order = list(self._open)
            generator.shuffle(order)
            for op in order:
                if number > 0 and time.monotonic() > end:
                    break
                if between is not None:
                    between()
                self._visit(op, number)
                if progress is not None:
                    progress(self._total - len(self._open), self._total)
            self._hand_over()
            if not self._open or time.monotonic() > end:
                break
        if between is not None:
            between()

    def finish(self) -> None:
        """Keep what is known of ops that were not done."""
        for op in [op for op, samples in self._open.items() if samples.seconds]:
            self._done(op)
        self._hand_over()

    def _visit(self, op: Op, number: int) -> None:
        samples = self._open[op]
        seed = 2 * (number + MOST * self._settings.seed)
        try:
            self._require_room(op)
            found = self._bench.visit(op, self._settings.caches, seed)
        except Exception as error:  # whatever an op makes of arguments that were made up
            self._refuse(op, " ".join(str(error).split()) or type(error).__name__)
            return
        samples.add(found, self._speed())
        if number + 1 >= LEAST and samples.known_to(self._settings.precision):
            self._done(op)

    def _require_room(self, op: Op) -> None:
        needed = 2 * self._memory_of(op) + op.bytes_written
        if needed > self._room:
            raise InputError(f"timing it takes {needed:,} bytes of memory")

    def _speed(self) -> float:
        """Return what the speed probe last took; run it where that is a while ago."""
        now = time.monotonic()
        if now - self._probed > PROBE_EVERY:
            self.probes.append(self._probe())
            self._probed = now
        return self.probes[-1]

    def _refuse(self, op: Op, reason: str) -> None:
        del self._open[op]
        self.refused[op] = reason

    def _done(self, op: Op) -> None:
        samples = self._open.pop(op)
        timings = [
            OpTiming(
                op=op,
                environment=self._environment,
                cache=cache,
                time=spread_of(typical(values)),
                probe=float(np.median(samples.probes)),
                source=self._source,
                measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
            )
            for cache, values in samples.seconds.items()
        ]
        self.timings += timings

    def _hand_over(self) -> None:
        """Let the timings be kept that were not yet."""
        if self._keep is not None and len(self.timings) > self._kept:
            self._keep(self.timings[self._kept :])
        self._kept = len(self.timings)


def _room(settings: Settings) -> float:
    """Return the bytes of memory that timing one op may take."""
    if settings.memory is not None:
        return settings.memory
    free = free_memory(settings.device)
    return math.inf if free is None else free / 2
