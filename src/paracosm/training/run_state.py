"""The shared state and the messages of the workers and servers of one run."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Any, Literal, NamedTuple

from numpy.random import Generator

from paracosm.cluster.cluster import Cluster
from paracosm.cluster.collectives import ring_all_reduce
from paracosm.engine import Future, Simulator, Timer
from paracosm.rng import TrainingStream, generator
from paracosm.timing import Constant, Distribution
from paracosm.training.clients import Clients, Participation
from paracosm.training.compression.messages import Compression
from paracosm.training.failures.conditions import Conditions
from paracosm.training.local_work import straggler_count
from paracosm.training.numerics.store import Contribution, Gradient, Numerics


class Tag(StrEnum):
    """The kinds of messages, by which a receiver picks them."""

    PUSH = "push"
    ANSWER = "answer"
    ASK = "ask"
    MEAN = "mean"
    PEER = "peer"
    JOIN = "join"


class Push(NamedTuple):
    """A worker's message to a server."""

    gradient: Gradient  # the newest that the worker has requested
    payload: Any
    read_version: int
    second: Any
    size: float  # bytes


class Answer(NamedTuple):
    """A server's parameters, on their way to a worker."""

    server: int
    parameters: Any
    version: int
    second: Any
    clock: int


class Ask(NamedTuple):
    """A peer's parameters, to be averaged with one's own."""

    peer: str
    parameters: Any


class Lost(NamedTuple):
    """A note to the server: the client at a worker is lost, and sends nothing."""

    worker: str


def message_size(parameters: float, second: Any) -> float:
    """Return the bytes of a message of parameters and perhaps a second vector like them."""
    return parameters if second is None else 2 * parameters


Combine = Callable[[Sequence[Contribution]], None]
"""Told of all that was brought to an all-reduce, in the order in which it came."""


@dataclass(eq=False, slots=True)
class _AllReduce:
    part: int
    combine: Combine
    brought: dict[str, Contribution] = field(default_factory=dict)  # by worker, as it came
    ends: dict[str, Future] = field(default_factory=dict)  # of the same


class AllReduces:
    """All-reduces of those who take part, one after the other on the workers' ports.

    The k-th of one worker meets the k-th of every other, as with MPI and NCCL, whatever part of the
    parameters it is of. It begins when all have come to it and the one before is over; it takes as
    long as on idle links, and no processor.

    If a worker leaves, what it brought to one that is not over is lost: that begins anew without it
    (`elastic`), or when it has come again. One that is back waits for the end of the all-reduce
    that the others are at, if there are others.

    Attributes:
        busy: seconds for which all-reduces have held everybody's ports.
    """

    def __init__(
        self,
        sim: Simulator,
        workers: Sequence[str],
        seconds: Callable[
            [int, tuple[str, ...], int], float
        ],  # by part, who brings something, and of how many updates they know
        finished: Callable[
            [int, Combine, Sequence[Contribution]], None
        ],  # called with part and all
        elastic: bool = False,
    ) -> None:
        self.busy = 0.0
        self._sim = sim
        self._seconds = seconds
        self._finished = finished
        self._elastic = elastic
        self._order = workers
        self._members = dict.fromkeys(workers)
        self._begun = dict.fromkeys(workers, 0)  # how many, less those that are over
        self._entries: dict[str, Future] = {}  # of those who are back, and wait
        self._timer: Timer | None = None  # of the first that is not over, while it runs
        self._open: deque[_AllReduce] = deque()  # all that are not over, in order

    def begin(self, worker: str, part: int, contribution: Contribution, combine: Combine) -> Future:
        """Bring a worker's contribution to its next all-reduce, without waiting.

        `finished` is called once, at the end, before those that await the future go on. All workers
        give the same `part` and an equivalent `combine`.
        """
        place = self._begun[worker]
        self._begun[worker] += 1
        if place == len(self._open):
            self._open.append(_AllReduce(part, combine))
        mine = self._open[place]
        mine.brought[worker] = contribution
        end = mine.ends[worker] = self._sim.future("the others of the all-reduce")
        self._start()
        return end

    async def enter(self, worker: str) -> None:
        """Take part again; where others are at an all-reduce, from the next on."""
        if self._elastic and self._members:
            entry = self._entries[worker] = self._sim.future("the end of an all-reduce")
            await entry
        self._members[worker] = None

    def leave(self, worker: str) -> Contribution | None:
        """Remove a worker, and return its lost contribution."""
        self._entries.pop(worker, None)
        lost = None
        for all_reduce in self._open:
            all_reduce.ends.pop(worker, None)
            lost = all_reduce.brought.pop(worker, lost)
        self._begun[worker] = 0
        if self._elastic:
            self._members.pop(worker, None)
        if lost is not None and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._members:
            self._admit()
        self._start()
        return lost

    def _start(self) -> None:
        first = self._open[0] if self._open else None
        if first is None or self._timer is not None or not first.brought:
            return
        if first.brought.keys() >= self._members.keys():
            ring = tuple(name for name in self._order if name in first.brought)
            seconds = self._seconds(first.part, ring, first.brought[ring[0]].read_version)
            self._timer = self._sim.call_later(seconds, self._finish, (self._sim.now, seconds))

    def _finish(self, began: tuple[float, float]) -> None:
        done = self._open.popleft()
        for worker in done.brought:
            self._begun[worker] -= 1
        self._timer = None
        self._record(done, *began)
        self._start()
        self._finished(done.part, done.combine, list(done.brought.values()))
        ends = list(done.ends.values())
        for end in (ends[-1], *ends[:-1]):  # as from a barrier
            end.set_result()
        self._admit()

    def _record(self, done: _AllReduce, began: float, seconds: float) -> None:
        self.busy += seconds
        timeline, now = self._sim.timeline, self._sim.now
        if timeline is not None and seconds > 0:
            for worker in done.brought:
                timeline.span(worker, "send", "all-reduce", began, now)
                timeline.span(worker, "receive", "all-reduce", began, now)

    def _admit(self) -> None:
        entries, self._entries = self._entries, {}
        for worker, entry in entries.items():
            self._members[worker] = None
            entry.set_result()


Topology = Literal["server", "all-reduce", "peers", "local"]


class RunState:
    """What the workers and servers of one run share.

    Where nodes fail, each life of the job is a simulation of its own, with a state of its own that
    continues the one before (`next_life`).

    Attributes:
        workers, servers: names, in the order of their indices.
        initial: the flat vector of parameters at the begin.
        dropped: gradients that were not applied.
        bytes_sent: in pushes received, answers sent, all-reduces that have ended.
        kept: of clients, see `TrainingWorker.kept`.
        rounds: that the first server has begun.
        conditions: under which nodes fail, if they do.
    """

    def __init__(
        self,
        sim: Simulator,
        cluster: Cluster,
        topology: Topology,
        numerics: Numerics,
        seed: int,
        compute: Distribution | None,
        update_time: Distribution,
        last_update: int,  # how many updates a store gets
        clients: Clients | None,  # who take turns at the workers
        compression: Compression | None,  # of what workers send
        sent: Callable[[Gradient], None],  # records a compressed message of a gradient
        note: Callable[[str, str, float], None],  # records an event of a node, by name, as of now
        conditions: Conditions | None = None,
    ) -> None:
        self.clients = clients
        self.topology = topology
        self.numerics = numerics
        self.last_update = last_update
        self.workers = cluster.workers
        self.servers = cluster.servers if topology == "server" else ("",)
        self.dropped = 0
        self.kept: dict[int, dict[str, Any]] = {}
        self.rounds = 0
        self._works: Counter[int] = Counter()  # how often each client's work was drawn
        self._stragglers: tuple[int, float, frozenset[int]] = (-1, 0.0, frozenset())
        self.seed = seed
        self.compression = compression
        self.push_sizes = numerics.sizes if compression is None else compression.sizes
        self.bytes_sent = 0.0
        self.sent = sent
        self.note = note
        self.conditions = conditions
        self._cluster = cluster
        self._compute = compute
        self._update_time = update_time
        self._durations: dict[int, Iterator[float]] = {}  # by worker, from life to life

        @cache
        def seconds(part: int, ring: tuple[str, ...], updates: int) -> float:
            if len(ring) < 2:
                return 0.0
            ways = zip(ring, (*ring[1:], ring[0]), strict=True)
            links = [cluster.link(source, target) for source, target in ways]
            if compression is not None:
                return compression.all_reduce_time(part, links, updates)
            return ring_all_reduce(len(links), numerics.sizes[part], links)

        changes = compression is not None and compression.codec.changes
        self._all_reduce_seconds = (
            seconds if changes else lambda part, ring, updates: seconds(part, ring, 0)
        )
        self._begin(sim, numerics.initial())

    def _begin(self, sim: Simulator, initial: Any) -> None:
        """Set what belongs to one simulation, in which nothing has happened yet."""
        self.sim = sim
        self.initial = initial
        self.is_over = False
        self._servers_running = len(self.servers)
        elastic = self.conditions is not None and self.conditions.elastic
        seconds = self._all_reduce_seconds
        self.all_reduces = AllReduces(sim, self.workers, seconds, self._all_reduced, elastic)

    def push_sizes_at(self, updates: int) -> Sequence[float]:
        """Return the bytes of what a worker that knows of so many updates sends each server."""
        if self.compression is None or not self.compression.codec.changes:
            return self.push_sizes
        return self.compression.sizes_at(updates)

    def next_life(self, sim: Simulator, initial: Any) -> "RunState":
        """Return the state of another simulation, from other parameters; what was counted stays."""
        state = copy(self)
        state._begin(sim, initial)
        return state

    def compute_times(
        self, worker: int, client: Participation | None = None
    ) -> Iterator[float] | None:
        """Return endless times of whole minibatches of a worker or client; None if measured."""
        if self._compute is None:
            return None
        speed = self._cluster.node(self.workers[worker]).speed
        whose, numerics = worker if client is None else client.client, self.numerics
        speed *= numerics.nominal_batch / numerics.batch_of(whose)
        if client is not None and self.clients is not None:
            speed *= self.clients.relative_speed(client.client)
            return self._compute.scaled(speed).draws(client.rng)
        if worker not in self._durations:
            stream = generator(self.seed, TrainingStream.COMPUTE, worker)
            self._durations[worker] = self._compute.scaled(speed).draws(stream)
        return self._durations[worker]

    def work_stream(self, client: int) -> Generator:
        """Return the random stream of a client's next amount of work."""
        number = self._works[client]
        self._works[client] += 1
        return generator(self.seed, TrainingStream.LOCAL_WORK, client, number)

    def is_straggler(self, worker: int, share: float) -> bool:
        """Whether a worker is among those drawn as stragglers of this round, a share of all."""
        if self._stragglers[:2] != (self.rounds, share):
            stream = generator(self.seed, TrainingStream.STRAGGLERS, self.rounds)
            order = stream.permutation(len(self.workers))[
                : straggler_count(share, len(self.workers))
            ]
            self._stragglers = (self.rounds, share, frozenset(order.tolist()))
        return worker in self._stragglers[2]

    def update_sampler(self, server: int) -> Callable[[], float] | None:
        """Return the source of the server's update times; None when updates take no time."""
        if self._update_time == Constant(0.0):
            return None
        speed = self._cluster.node(self.servers[server]).speed
        stream = generator(self.seed, TrainingStream.SERVER, server)
        return self._update_time.scaled(speed).sampler(stream)

    def _all_reduced(self, part: int, combine: Combine, brought: Sequence[Contribution]) -> None:
        """End an all-reduce: its result is the same everywhere, and computed once."""
        ranks = len(brought)
        if self.compression is None:
            self.bytes_sent += 2 * (ranks - 1) * self.numerics.sizes[part]
        else:
            updates = brought[0].read_version
            self.bytes_sent += self.compression.all_reduce_bytes(part, ranks, updates)
            self.compression.reduce([contribution.payload for contribution in brought])
        combine(brought)

    def server_finished(self) -> None:
        """End the run once every server has made its last update and its answers arrived."""
        self._servers_running -= 1
        if not self._servers_running:
            self.finish()

    def finish(self) -> None:
        """End the run."""
        self.is_over = True
        self.sim.stop()
