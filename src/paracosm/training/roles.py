"""Who takes part in a run: workers, parameter servers, and the all-reduce between workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Literal, NamedTuple

from paracosm.cluster import Cluster, ring_all_reduce
from paracosm.engine import Barrier, Simulator, Transfer, Worker
from paracosm.rng import TrainingStream, generator
from paracosm.timing import Constant, Distribution
from paracosm.training.store import Contribution, Gradient, Numerics, Rule, Store

Combine = Callable[[Sequence[Contribution]], None]
Topology = Literal["server", "all-reduce", "peers", "local"]


class Team:
    """What the workers and servers of one run share."""

    def __init__(
        self,
        sim: Simulator,
        cluster: Cluster,
        topology: Topology,
        numerics: Numerics,
        seed: int,
        compute: Distribution | None,
        update_time: Distribution,
        batch: int,  # examples of a minibatch
        last_update: int,  # how many updates a store gets
        work: Callable[[TrainingWorker], Awaitable[None]],  # what a worker does
        serve: Callable[[ParameterServer], Awaitable[None]],
    ) -> None:
        self.topology = topology
        self.numerics = numerics
        self.batch = batch
        self.last_update = last_update
        self.work = work
        self.serve = serve
        self.workers = cluster.workers  # their names, in the order of their indices
        self.servers = cluster.servers if topology == "server" else ("",)
        self.initial = numerics.initial()  # the flat vector of parameters
        self.dropped = 0  # gradients that were not applied
        self.is_over = False
        self._cluster = cluster
        self.seed = seed
        self._compute = compute
        self._update_time = update_time
        self.all_reduce_busy = 0.0  # seconds for which all-reduces have held everybody's ports
        self._all_reduce_time = 0.0
        if topology == "all-reduce" and len(self.workers) > 1:
            ring = zip(self.workers, (*self.workers[1:], self.workers[0]), strict=True)
            links = [cluster.link(source, target) for source, target in ring]
            self._all_reduce_time = ring_all_reduce(len(links), sum(numerics.sizes), links)
        self._begin_on(sim)

    def _begin_on(self, sim: Simulator) -> None:
        """Prepare what the workers of a simulation share, in which nothing has happened yet."""
        self._sim = sim
        self._servers_running = len(self.servers)
        self._barrier = Barrier(sim, len(self.workers), "the others of the all-reduce")
        self._arrived: list[Contribution] = []

    def compute_times(self, worker: int) -> Iterator[float] | None:
        """Return the worker's compute times, without end; None when they are measured."""
        if self._compute is None:
            return None
        speed = self._cluster.node(self.workers[worker]).speed
        stream = generator(self.seed, TrainingStream.COMPUTE, worker)
        return self._compute.scaled(speed).draws(stream)

    def update_sampler(self, server: int) -> Callable[[], float] | None:
        """Return the source of the server's update times; None when updates take no time."""
        if self._update_time == Constant(0.0):
            return None
        speed = self._cluster.node(self.servers[server]).speed
        stream = generator(self.seed, TrainingStream.SERVER, server)
        return self._update_time.scaled(speed).sampler(stream)

    async def all_reduce(
        self, worker: TrainingWorker, contribution: Contribution, combine: Combine
    ) -> None:
        """Bring `contribution` and wait for the end; `combine` gets all of them, as they came.

        What they come to is the same everywhere, so it is computed once, not by each worker.
        """
        arrived = self._arrived
        arrived.append(contribution)
        last = len(arrived) == len(self.workers)
        if last:
            self._arrived = []
        await self._barrier.wait()
        began = self._sim.now
        await worker.sleep(self._all_reduce_time)
        if last:  # who goes on first, so that the others find the result
            self.all_reduce_busy += self._all_reduce_time
            timeline, now = self._sim.timeline, self._sim.now
            if timeline is not None and self._all_reduce_time > 0:
                for each in arrived:
                    timeline.span(each.worker, "send", "all-reduce", began, now)
                    timeline.span(each.worker, "receive", "all-reduce", began, now)
            combine(arrived)

    def server_finished(self) -> None:
        """End the run once every server has made its last update and its answers arrived."""
        self._servers_running -= 1
        if not self._servers_running:
            self.finish()

    def finish(self) -> None:
        """End the run."""
        self.is_over = True
        self._sim.stop()


class Tag(StrEnum):
    """The kinds of messages, by which a receiver picks them."""

    PUSH = "push"
    ANSWER = "answer"
    ASK = "ask"
    MEAN = "mean"
    JOIN = "join"


class Answer(NamedTuple):
    """A server's parameters, on their way to a worker."""

    server: int
    parameters: Any
    version: int


class Ask(NamedTuple):
    """A peer's parameters, to be averaged with one's own."""

    peer: str
    parameters: Any


class TrainingWorker(Worker):
    """One worker of a run, as an algorithm's `work` sees it."""

    def __init__(self, team: Team, index: int, store: Store | None) -> None:
        super().__init__()
        self.index = index  # its number, from 0
        self.workers = len(team.workers)  # how many there are
        self.topology = team.topology
        self.parameters: Any = team.initial  # a flat vector that is replaced and never changed
        self._team = team
        self._store = store
        self._versions = [0] * len(team.servers)
        self._sizes = team.numerics.sizes
        self._parts: list[Any] = [team.initial[part] for part in team.numerics.parts]
        self._rule: Rule | None = None
        self._durations = team.compute_times(index)
        self._choice = generator(team.seed, TrainingStream.NEIGHBOURS, index)
        self._examples = 0
        self._last: Gradient

    async def run(self) -> None:
        await self._team.work(self)

    async def compute_gradient(self) -> Gradient:
        """Spend the time of one gradient at `parameters`, on the next minibatch."""
        gradient = self._request()
        if self._durations is None:
            await self.execute(gradient.pending.result)
        else:
            await self.compute(next(self._durations))
        return gradient

    async def compute_gradient_unless_answered(self) -> Gradient | None:
        """Compute a gradient, but abandon it (None) if an answer arrives before it is done."""
        assert self._durations is not None  # checked when the run was configured
        gradient = self._request()
        if await self.compute_unless(next(self._durations), tag=Tag.ANSWER):
            return gradient
        gradient.pending.discard()
        self._examples -= self._team.batch
        self._team.dropped += 1
        return None

    def step(self, gradient: Gradient) -> None:
        """Take a step of the optimizer on this worker's own parameters."""
        self._rule = self._rule or self._team.numerics.rule()
        self.parameters = self._rule(self.parameters, gradient.value, 1.0)

    def push(self, payload: Any) -> None:
        """Send a gradient, or a vector of the same form, to the servers: to each its part."""
        self._examples = 0
        for index, server in enumerate(self._team.servers):
            message = (self._last, payload, self._versions[index])
            self.send(server, message, size=self._sizes[index], tag=Tag.PUSH)

    async def pull(self) -> Any:
        """Wait for an answer of every server and return the parameters that they make up."""
        parts = self._parts
        for _ in parts:
            answer: Answer = await self.recv(tag=Tag.ANSWER)
            parts[answer.server] = answer.parameters
            self._versions[answer.server] = answer.version
        self.parameters = self._team.numerics.join(parts)
        return self.parameters

    async def apply(self, gradient: Gradient) -> None:
        """Apply a gradient to this worker's own store of parameters."""
        store = self._own
        self._examples = 0
        store.apply([Contribution(gradient, gradient, None, gradient.versions[0], store)])
        self._read(store)

    def replace(self, parameters: Any) -> None:
        """Replace this worker's own parameters, which counts as a change but not as an update."""
        store = self._own
        store.parameters = parameters
        store.version += 1
        self._read(store)

    async def all_reduce_gradient(self, gradient: Gradient) -> None:
        """Take the mean of all workers' gradients and apply it to the parameters of all."""
        store = self._own
        self._examples = 0
        mine = Contribution(gradient, gradient, None, gradient.versions[0], store)
        await self._team.all_reduce(self, mine, store.apply)
        self._read(store)

    async def all_reduce_parameters(self) -> None:
        """Replace the parameters of all workers by their mean."""
        store = self._own
        self._examples = 0
        mine = Contribution(self._last, self.parameters, None, self._versions[0], store)
        await self._team.all_reduce(self, mine, store.replace_by_mean)
        self._read(store)

    async def ask_peer(self, neighbours: Sequence[int]) -> Any:
        """Send the parameters to a random neighbour and return what it makes of them."""
        peer = self._team.workers[neighbours[int(self._choice.integers(len(neighbours)))]]
        ask = Ask(self.name, self.parameters)
        self.send(peer, ask, size=self._sizes[0], tag=Tag.ASK)
        return await self.recv(tag=Tag.MEAN)

    async def receive_from_peer(self) -> Ask:
        """Wait for the parameters of a peer that asks for the mean."""
        ask: Ask = await self.recv(tag=Tag.ASK)
        return ask

    def answer_peer(self, ask: Ask, mean: Any) -> None:
        self.send(ask.peer, mean, size=self._sizes[0], tag=Tag.MEAN)

    @property
    def _own(self) -> Store:
        assert self._store is not None, "only where there are no servers"
        return self._store

    def _read(self, store: Store) -> None:
        self.parameters = store.parameters
        self._versions[0] = store.version

    def _request(self) -> Gradient:
        team = self._team
        parameters = self.parameters
        self._examples += team.batch
        pending = team.numerics.request(self.index, parameters)
        self._last = Gradient(self.name, parameters, self._versions.copy(), self._examples, pending)
        return self._last


class ParameterServer(Worker):
    """One of the servers of a run, as an algorithm's `serve` sees it."""

    def __init__(self, team: Team, index: int, store: Store) -> None:
        super().__init__()
        self.workers = team.workers  # the names of all, in the order of their indices
        self._team = team
        self._index = index
        self._store = store
        self._size = team.numerics.sizes[index]
        self._part = None if len(team.servers) == 1 else team.numerics.parts[index]
        self._answers: list[Transfer] = []
        self._update_time = team.update_sampler(index)

    async def run(self) -> None:
        await self._team.serve(self)

    @property
    def parameters(self) -> Any:
        """This server's partition of the parameters, a flat vector that is never changed."""
        return self._store.parameters

    async def receive(self) -> Contribution:
        """Wait for what the next worker pushes."""
        if self._store.version >= self._team.last_update:
            await self._finish()
        return self._contribution(await self.recv(tag=Tag.PUSH))

    async def receive_all(self) -> list[Contribution]:
        """Wait for what every worker pushes in this round; return it as it came."""
        return [await self.receive() for _ in self.workers]

    def _contribution(self, pushed: tuple[Gradient, Any, int]) -> Contribution:
        gradient, payload, read_version = pushed
        return Contribution(gradient, payload, self._part, read_version, self._store)

    async def apply(self, contributions: Sequence[Contribution]) -> None:
        """Update by the mean of the contributions; see `Store.apply`."""
        if self._update_time is not None:
            await self.compute(self._update_time())
        self._store.apply(contributions)

    async def replace(self, contributions: Sequence[Contribution], parameters: Any) -> None:
        """Update to `parameters`, which came of the contributions."""
        if self._update_time is not None:
            await self.compute(self._update_time())
        self._store.replace(contributions, parameters)

    def drop(self, contribution: Contribution) -> None:
        """Do not apply what was pushed; its gradient need not even be computed."""
        contribution.gradient.pending.discard()
        self._team.dropped += 1

    def answer(self, *workers: str, parameters: Any = None) -> None:
        """Send the parameters as they are now (or other ones of this version) to the workers."""
        store = self._store
        if parameters is None:
            parameters = store.parameters
        answer = Answer(self._index, parameters, store.version)
        last = store.version >= self._team.last_update
        for worker in workers:
            transfer = self.send(worker, answer, size=self._size, tag=Tag.ANSWER)
            if last:
                self._answers.append(transfer)

    async def _finish(self) -> None:
        """Wait until the last answers have arrived, and then for ever: the run is over."""
        for transfer in self._answers:
            await transfer
        self._team.server_finished()
        await self.wait()
