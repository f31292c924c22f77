"""The failure queue of a job, and virtual time across pauses of the engine's clock."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heapreplace, merge
from itertools import repeat
from math import inf
from typing import NamedTuple

from paracosm.errors import InputError
from paracosm.faults.models import Lose, Slow, Stop
from paracosm.faults.node_failures import node_failures
from paracosm.faults.strikes import Strike, strikes
from paracosm.rng import FailureStream, TrainingStream, generator
from paracosm.timeline import Timeline
from paracosm.training.availability import Availability, absences
from paracosm.training.failures.recovery import Failures

_MOST_HELD = 100_000  # failures in one pause


class Clock:
    """Virtual time in one life of a job: the engine's, and the pauses so far."""

    def __init__(self) -> None:
        self.begin(0.0)

    def begin(self, virtual: float) -> None:
        """Begin a life, on an engine at 0."""
        self._pauses: list[float] = []  # when on the engine's clock
        self._offsets = [virtual]

    def pause(self, engine: float, end: float) -> None:
        """Pause the engine until `end`, in virtual time."""
        self._pauses.append(engine)
        self._offsets.append(end - engine)

    def virtual(self, engine: float) -> float:
        """Return the virtual time of an engine instant, after all pauses."""
        return engine + self._offsets[-1]

    def engine(self, virtual: float) -> float:
        """Return the same of the engine; before 0 where that was before the life."""
        return virtual - self._offsets[-1]

    def begin_of(self, engine: float) -> float:
        """Return the virtual time at which something began: after a pause at that instant."""
        return engine + self._offsets[bisect_right(self._pauses, engine)]

    def end_of(self, engine: float) -> float:
        """Return the virtual time at which something ended: before a pause at that instant."""
        return engine + self._offsets[bisect_left(self._pauses, engine)]


class PlacedTimeline(Timeline):
    """A timeline that converts spans from the engine's clock to virtual time."""

    def __init__(self, inner: Timeline, clock: Clock, nodes: Sequence[str]) -> None:
        self.inner = inner
        self._clock = clock
        self._nodes = frozenset(nodes)

    @property
    def append(self) -> Callable[[tuple[str, str, str, float, float, int]], None]:
        return lambda span: self.span(*span)

    def span(
        self, node: str, resource: str, name: str, begin: float, end: float, flow: int = -1
    ) -> None:
        if node in self._nodes and begin < end:
            times = self._clock.begin_of(begin), self._clock.end_of(end)
            self.inner.span(node, resource, name, *times, flow)


class Failure(NamedTuple):
    """A node stops; seconds of virtual time."""

    time: float
    node: str
    back: float
    leaves: bool = False  # whether it leaves of its own accord instead of failing


class FailureQueue:
    """The failures of a job, by one or all of them at a time.

    Those at given times and random ones that stop the whole job come in virtual time, or at the end
    of the pause that holds them; random ones of single workers pass while the job works.
    """

    def __init__(
        self,
        failures: Failures,
        clock: Clock,
        workers: Sequence[str],
        servers: Sequence[str],
        seed: int,
        availability: Availability | None,  # of workers; None: they stay
    ) -> None:
        self._clock = clock
        self._restart = failures.restart
        self._servers = servers
        self._restarts = failures.recovery == "restart"
        gone = () if availability is None else absences(availability, workers)
        self._coming = merge(
            _at_virtual_times(failures, workers, servers, seed),
            (Failure(*absence, leaves=True) for absence in gone),
            key=lambda failure: failure.time,
        )
        self._next = next(self._coming)
        self._held: list[Failure] = []  # that came in a pause
        self._alone = _Alone(inf if self._restarts else failures.nodes.worker, workers, seed)

    def begin_life(self) -> None:
        """Start all workers at the beginning of the engine's clock."""
        self._alone.begin()

    def stops_job(self, failure: Failure) -> bool:
        """Whether the others cannot continue without the node."""
        return failure.node in self._servers or (self._restarts and not failure.leaves)

    def upcoming(self) -> Failure:
        """Return the next failure."""
        if self._held:
            return self._held[0]
        due, worker = self._alone.next
        alone = self._clock.virtual(due)
        if alone < self._next.time:
            return Failure(alone, worker, alone + self._restart)
        return self._next

    def take(self) -> Failure:
        """Remove and return the next failure."""
        failure = self.upcoming()
        if self._held:
            self._held.pop(0)
        elif failure is self._next:
            self._next = next(self._coming)
        else:
            self._alone.fail(self._restart)
        return failure

    def take_until(self, end: float) -> Failure | None:
        """Take the failures before `end`, the end of a pause, up to a failure of the whole job.

        Single workers that fail in a pause do so at its end.
        """
        while self._next.time < end:
            failure, self._next = self._next, next(self._coming)
            if self.stops_job(failure):
                return failure
            self._held.append(failure)
            if len(self._held) > _MOST_HELD:
                raise InputError(
                    f"the job makes no progress: nodes fail or leave more than {_MOST_HELD:,} "
                    "times while it saves or restarts: make failures rarer, or that shorter"
                )
        return None


def strikes_of(
    kind: type[Stop | Slow | Lose],
    failures: Failures,
    workers: Sequence[str],
    servers: Sequence[str],
    seed: int,
) -> Iterator[Strike]:
    """Yield the strikes of the configured faults of a kind; see `faults.strikes`."""
    faults = [
        (fault, generator(seed, TrainingStream.FAULTS, number))
        for number, fault in enumerate(failures.faults)
        if isinstance(fault.model, kind)
    ]
    return strikes(faults, workers, servers)


def _at_virtual_times(
    failures: Failures, workers: Sequence[str], servers: Sequence[str], seed: int
) -> Iterator[Failure]:
    """Yield the failures at given times and those of the whole job, ascending, without end."""
    names = {"worker": workers, "server": servers}
    together = len(workers) if failures.recovery == "restart" else 0
    random = (
        Failure(time, names[who.kind][who.index], time + failures.restart)
        for time, who in node_failures(failures.nodes, together, len(servers), seed)
    )
    stops = strikes_of(Stop, failures, workers, servers, seed)
    configured = (Failure(stop.time, stop.node, stop.end) for stop in stops)
    yield from merge(random, configured, key=lambda failure: failure.time)
    yield from repeat(Failure(inf, "", inf))


class _Alone:
    """Random failures of single workers that do not stop the job, on the engine's clock."""

    def __init__(self, mtbf: float, workers: Sequence[str], seed: int) -> None:
        self._mtbf = mtbf
        self._workers = workers if mtbf < inf else ()
        self._sources = [
            generator(seed, FailureStream.WORKERS, worker) for worker in range(len(self._workers))
        ]
        self._due: list[tuple[float, int]] = []

    def begin(self) -> None:
        self._due = [
            (source.exponential(self._mtbf), worker) for worker, source in enumerate(self._sources)
        ]
        heapify(self._due)

    @property
    def next(self) -> tuple[float, str]:
        """When which worker fails next."""
        if not self._due:
            return inf, ""
        due, worker = self._due[0]
        return due, self._workers[worker]

    def fail(self, restart: float) -> None:
        """Record a failure; the worker continues after its restart."""
        due, worker = self._due[0]
        following = due + restart + self._sources[worker].exponential(self._mtbf)
        heapreplace(self._due, (following, worker))
