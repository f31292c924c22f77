"""Who takes part in a run: workers, parameter servers, and the all-reduce between workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import islice
from math import inf, isnan
from typing import Any, Literal, NamedTuple, cast

from paracosm.cluster import Cluster, Link, ring_all_reduce
from paracosm.engine import (
    Barrier,
    Future,
    FutureCancelledError,
    Interrupt,
    Simulator,
    Timer,
    Transfer,
    Worker,
)
from paracosm.rng import TrainingStream, generator
from paracosm.timing import Constant, Distribution
from paracosm.training.all_reduces import AllReduces, Combine
from paracosm.training.clients import Clients, Participation
from paracosm.training.compression.messages import BESIDE, FIRST_PART, WHOLE, Compression
from paracosm.training.places import Lost, Places
from paracosm.training.store import (
    Contribution,
    Gradient,
    LocalSteps,
    Numerics,
    PseudoGradient,
    Rule,
    Store,
)

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
        batch: int,  # examples of a minibatch, of which `compute` is the duration
        batches: Sequence[int],  # of each worker
        last_update: int,  # how many updates a store gets
        work: Callable[[TrainingWorker], Awaitable[None]],  # what a worker does
        serve: Callable[[ParameterServer], Awaitable[None]],
        clients: Clients | None = None,  # who take turns at the workers
        compression: Compression | None = None,  # of what workers send
    ) -> None:
        self.clients = clients
        self.topology = topology
        self.numerics = numerics
        self.batches = batches
        self.batch = batch
        self.last_update = last_update
        self.work = work
        self.serve = serve
        self.workers = cluster.workers  # their names, in the order of their indices
        self.servers = cluster.servers if topology == "server" else ("",)
        self.initial = numerics.initial()  # the flat vector of parameters
        self.dropped = 0  # gradients that were not applied
        self.is_over = False
        self.kept: dict[int, dict[str, Any]] = {}  # of clients, see `TrainingWorker.kept`
        self._cluster = cluster
        self.seed = seed
        self._compute = compute
        self._update_time = update_time
        self.compression = compression
        self.push_sizes = numerics.sizes if compression is None else compression.sizes
        self.bytes_sent = 0.0  # in pushes received, answers sent, all-reduces that have ended
        self._all_reduce_times = [0.0] * len(numerics.sizes)  # of each part by itself
        if topology == "all-reduce" and len(self.workers) > 1:
            ring = zip(self.workers, (*self.workers[1:], self.workers[0]), strict=True)
            links = [cluster.link(source, target) for source, target in ring]
            parts = range(len(numerics.sizes))
            self._all_reduce_times = [self.all_reduce_seconds(part, links) for part in parts]
        self._begin_on(sim)

    def _begin_on(self, sim: Simulator) -> None:
        """Prepare what the workers of a simulation share, in which nothing has happened yet."""
        self._sim = sim
        self._servers_running = len(self.servers)
        self.all_reduces = AllReduces(sim, len(self.workers))
        self._barrier = Barrier(sim, len(self.workers), "the others of the all-reduce")
        self._arrived: list[Contribution] = []

    def compute_times(
        self, worker: int, client: Participation | None = None
    ) -> Iterator[float] | None:
        """Return the compute times of a worker, or of a client that takes part there, without end.

        They are in proportion to the worker's batch. None when they are measured.
        """
        if self._compute is None:
            return None
        speed = self._cluster.node(self.workers[worker]).speed
        speed *= self.batch / self.batches[worker]
        if client is not None and self.clients is not None:
            speed *= self.clients.relative_speed(client.client)
            return self._compute.scaled(speed).draws(client.rng)
        stream = generator(self.seed, TrainingStream.COMPUTE, worker)
        return self._compute.scaled(speed).draws(stream)

    def update_sampler(self, server: int) -> Callable[[], float] | None:
        """Return the source of the server's update times; None when updates take no time."""
        if self._update_time == Constant(0.0):
            return None
        speed = self._cluster.node(self.servers[server]).speed
        stream = generator(self.seed, TrainingStream.SERVER, server)
        return self._update_time.scaled(speed).sampler(stream)

    def all_reduce_seconds(self, part: int, links: Sequence[Link]) -> float:
        """Return the seconds of an all-reduce of a part between workers on a ring of links."""
        if self.compression is not None:
            return self.compression.all_reduce_time(part, links)
        return ring_all_reduce(len(links), self.numerics.sizes[part], links)

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
        await self.all_reduces.over()
        began = self._sim.now
        seconds = self._all_reduce_times[0]  # there is one part
        await worker.sleep(seconds)
        if last:  # who goes on first, so that the others find the result
            self.all_reduces.ended(arrived, began, seconds)
            self._combine(0, combine, arrived)

    def all_reduce_begin(
        self, worker: TrainingWorker, part: int, contribution: Contribution, combine: Combine
    ) -> Future:
        """Bring a contribution to a part of the parameters, and go on; see `AllReduces`."""
        seconds = self._all_reduce_times[part]
        return self.all_reduces.begin(
            *(worker.index, contribution, seconds),
            combine=lambda brought: self._combine(part, combine, brought),
        )

    def _combine(self, part: int, combine: Combine, brought: Sequence[Contribution]) -> None:
        """End an all-reduce of a part."""
        ranks = len(brought)
        if self.compression is None:
            self.bytes_sent += 2 * (ranks - 1) * self.numerics.sizes[part]
        else:
            self.bytes_sent += self.compression.all_reduce_bytes(part, ranks)
            self.compression.reduce([each.payload for each in brought])
        combine(brought)

    def note(self, node: str, name: str, value: float) -> None:
        """Take note of something that happened now."""

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


class Push(NamedTuple):
    """What a worker sends to a server."""

    gradient: Gradient  # the newest that the worker has asked for
    payload: Any
    read_version: int
    second: Any


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


class TrainingWorker(Worker):
    """One worker of a run, as an algorithm's `work` sees it."""

    def __init__(self, team: Team, index: int, stores: Sequence[Store] = ()) -> None:
        super().__init__()
        self.index = index  # its number, from 0
        self.client = index  # whose data it computes on, what differs by client is kept by it
        self.workers = len(team.workers)  # how many there are
        self.topology = team.topology
        self.parameters: Any = team.initial  # a flat vector that is replaced and never changed
        self._team = team
        self._stores = stores  # of the parameters' parts, where there are no servers
        self._versions = [0] * len(team.numerics.sizes)
        self._place = (-1, 0, 0)  # whose local steps, from which version, and how many
        self._sizes = team.numerics.sizes
        self._parts: list[Any] = [team.initial[part] for part in team.numerics.parts]
        self.server_clock = 0  # as the newest answer says it
        self.beside: Any = None  # what servers have sent beside their parameters, a flat vector
        self._rule: Rule | None = None
        self._durations = team.compute_times(index)
        self._choice = generator(team.seed, TrainingStream.NEIGHBOURS, index)
        self._examples = 0
        self._last: Gradient
        # Of the client that takes part here
        self.participation: Participation | None = None
        self._departure: Timer | None = None
        self._download: Transfer | None = None
        self._uploads: list[Transfer] = []
        self._is_reading = False

    async def run(self) -> None:
        if self._team.clients is not None and self.participation is None:
            await self.pull()
        while True:
            try:
                await self._team.work(self)
                return
            except Interrupt:  # by `stop`
                if self._examples:
                    self._discard()
                await self.pull()

    def take_part(self, who: Participation, lost: Callable[[bool], object]) -> None:
        """Let a client take part here: at once, or when an answer arrives.

        `lost(dropped_out)` is called if it is lost before what it has computed has arrived.
        """
        self.participation = who
        self.client = who.client
        self._rule = None
        self._download, self._uploads = None, []

        def lose(dropped_out: bool) -> None:
            if self.participation is who and self.sent_at is None:
                self.stop()
                lost(dropped_out)

        self._durations = times = self._team.compute_times(self.index, who)
        if who.lost_after is not None and times is not None:
            self._durations = self._until_lost(times, who.lost_after, lambda _: lose(True))
        if who.leaves < inf:
            delay = who.leaves - self.sim.now
            self._departure = self.sim.call_later(delay, lambda _: lose(False))

    def read_from(self, download: Transfer) -> None:
        """Know which answer the client waits for."""
        self._download = download

    @property
    def sent_at(self) -> float | None:
        """When what the client has sent arrived; None where it has not."""
        arrived = [upload.arrived for upload in self._uploads]
        return None if not arrived or isnan(max(arrived)) else max(arrived)

    def stop(self) -> None:
        """End the participation: whatever the client does, it gives up."""
        self.participation = None
        if self._departure is not None:
            self._departure.cancel()
            self._departure = None
        if self._uploads:
            taken_back = [upload.cancel() for upload in self._uploads]
            if any(taken_back):
                self._discard()
        elif not self._is_reading:
            self.interrupt()
        elif self._download is not None:
            self._download.cancel()
            self._download = None

    def _until_lost(
        self, times: Iterator[float], share: float, lose: Callable[[object], object]
    ) -> Iterator[float]:
        """Yield compute times; a share of those that are asked for at once goes by, no more."""
        total, timer = 0.0, None
        for duration in times:
            total += duration
            if timer is not None:
                timer.cancel()
            timer = self.sim.call_later(share * total, lose)
            yield duration

    def _is_of_before(self, answer: Answer) -> bool:
        """Whether an answer is one to a client that no longer takes part here."""
        if self._team.clients is None:
            return False
        return self._download is None or self._download.data is not answer

    def _discard(self) -> None:
        self._last.pending.discard()
        self._examples = 0
        self._team.dropped += 1

    @property
    def kept(self) -> dict[str, Any]:
        """What the client keeps from one time that it takes part to the next; empty at first."""
        return self._team.kept.setdefault(self.client, {})

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
        self._examples -= self._team.batches[self.index]
        self._team.dropped += 1
        return None

    async def local_steps(
        self,
        count: int,
        *,
        keep_state: bool = True,
        mu: float = 0.0,
        shift: Any = None,
        weight: float = 1.0,
        of: int | None = None,
    ) -> PseudoGradient:
        """Spend the time of `count` local steps from `parameters`, on the next minibatches.

        What they come to is computed when it is looked at, together with what others wait for;
        `parameters` stay what they are. A step is one of the optimizer, against the minibatch's
        gradient plus mu times what has moved since the first step plus `shift`.

        Args:
            count: of steps.
            keep_state: whether the optimizer goes on from the state in which it left the client
                the last time; otherwise it begins afresh.
            mu: of the proximal term mu/2 |theta - theta_read|^2.
            shift: a flat vector; None for zero.
            weight: of the pseudo-gradient in a mean with others.
            of: how many steps the client makes between two updates, where that are several calls;
                the learning rate of a step is that of its place between them.
        """
        team, parameters = self._team, self.parameters
        self._examples += count * team.batches[self.index]
        versions = self._versions.copy()
        if of is None or self._place[:2] != (self.client, versions[0]):
            self._place = (self.client, versions[0], 0)
        made, of = self._place[2], of or count
        self._place = (self.client, versions[0], made + count)
        steps = LocalSteps(count, keep_state, mu, shift, versions[0] + made / of, 1 / of)
        pending = team.numerics.request_steps(self.client, parameters, steps)
        local = self._last = PseudoGradient(
            *(self.name, self.client, parameters, versions, self._examples, pending, weight)
        )
        if self._durations is None:
            for _ in range(count):
                await self.execute(pending.advance)
        else:
            for duration in list(islice(self._durations, count)):
                await self.compute(duration)
        return local

    @property
    def version(self) -> int:
        """How often the parameters had been updated that this worker read; of parts, the first."""
        return self._versions[0]

    @property
    def examples(self) -> int:
        """How many examples the client draws its minibatches from."""
        return self._team.numerics.examples_of(self.client)

    def minibatches(self, epochs: int) -> int:
        """Return how many minibatches so many passes over the client's examples are."""
        return -(-epochs * self.examples // self._team.batches[self.index])

    def step(self, gradient: Gradient) -> None:
        """Take a step of the optimizer on this worker's own parameters."""
        numerics = self._team.numerics
        self._rule = self._rule or numerics.rule()
        factor = numerics.recipe.lr_factor(self._versions[0])
        clipped = numerics.recipe.clipped(gradient.value)
        self.parameters = self._rule(self.parameters, clipped, factor)

    def push(self, payload: Any, beside: Any = None) -> None:
        """Send a gradient, or a vector of the same form, to the servers: to each its part.

        A second vector may go with it, in a message of twice the size.
        """
        self._examples = 0
        if self._team.clients is not None and self.participation is None:
            return  # it was lost at this very instant
        payload = self._compressed(payload)
        if beside is not None:
            beside = self._compressed(beside, BESIDE)
        for index, server in enumerate(self._team.servers):
            message = Push(self._last, payload, self._versions[index], beside)
            size = _size(self._team.push_sizes[index], beside)
            upload = self.send(server, message, size=size, tag=Tag.PUSH)
            if self.participation is not None:
                self._uploads.append(upload)

    async def pull(self) -> Any:
        """Wait for an answer of every server and return the parameters that they make up."""
        parts = self._parts
        seconds: list[Any] = [None] * len(parts)
        self._is_reading = True
        for _ in parts:
            answer: Answer = await self.recv(tag=Tag.ANSWER)
            while self._is_of_before(answer):
                answer = await self.recv(tag=Tag.ANSWER)
            parts[answer.server] = answer.parameters
            seconds[answer.server] = answer.second
            self._versions[answer.server] = answer.version
            self.server_clock = answer.clock
        self._is_reading = False
        self.parameters = self._team.numerics.join(parts)
        self.beside = None if seconds[0] is None else self._team.numerics.join(seconds)
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
        payload = self._compressed(gradient)
        mine = Contribution(gradient, payload, None, gradient.versions[0], store)
        await self._team.all_reduce(self, mine, store.apply)
        self._read(store)

    async def all_reduce_parameters(self) -> None:
        """Replace the parameters of all workers by their mean.

        Where messages are compressed, they have what each has taken off the parameters that all had
        last, as in Basu, Data, Karakus, Diggavi, "Qsparse-local-SGD", 2019, algorithm 1.
        """
        store = self._own
        self._examples = 0
        payload, combine = self.parameters, store.replace_by_mean
        if self._team.compression is not None:
            payload = self._compressed(store.parameters - self.parameters)
            combine = store.subtract_mean
        mine = Contribution(self._last, payload, None, self._versions[0], store)
        await self._team.all_reduce(self, mine, combine)
        self._read(store)

    @property
    def parts(self) -> int:
        """Into how many parts the parameters are divided."""
        return len(self._versions)

    def part(self, index: int) -> Any:
        """Return a part of this worker's own parameters, a flat vector."""
        return self.parameters[self._team.numerics.parts[index]]

    def shared_part(self, index: int) -> Any:
        """Return a part of the parameters that the workers share, as it was updated last."""
        return self._stores[index].parameters

    def replace_part(self, index: int, values: Any) -> None:
        """Replace a part of this worker's own parameters, knowing the shared part as it is."""
        numerics = self._team.numerics
        parts = [self.parameters[part] for part in numerics.parts]
        parts[index] = values
        self.parameters = numerics.join(parts)
        self._versions[index] = self._stores[index].version

    def all_reduce_begin(self, part: int, change: Any) -> Future:
        """Take the mean of all workers' changes of a part, while this worker computes on.

        `change` is what this worker took off the part as it was shared: a gradient to the optimizer
        of the shared part. Once what is returned has been awaited, `shared_part` is updated.
        All workers begin theirs in the same order.
        """
        store = self._stores[part]
        if part == 0:  # whose contributions are those that count
            self._examples = 0
        payload = self._compressed(change, FIRST_PART + part)
        mine = Contribution(self._last, payload, None, self._versions[part], store)
        return self._team.all_reduce_begin(self, part, mine, store.apply)

    def ask_peer(self, neighbours: Sequence[int]) -> None:
        """Send the parameters to a random neighbour, which is to average them with its own."""
        peer = self._team.workers[neighbours[int(self._choice.integers(len(neighbours)))]]
        ask = Ask(self.name, self.parameters)
        self.send(peer, ask, size=self._sizes[0], tag=Tag.ASK)

    async def receive_mean(self) -> Any:
        """Wait for what the peer that was asked has made of the parameters."""
        return await self.recv(tag=Tag.MEAN)

    async def receive_from_peer(self) -> Ask:
        """Wait for the parameters of a peer that asks for the mean."""
        ask: Ask = await self.recv(tag=Tag.ASK)
        self._team.bytes_sent += self._sizes[0]
        return ask

    def answer_peer(self, ask: Ask, mean: Any) -> None:
        self.send(ask.peer, mean, size=self._sizes[0], tag=Tag.MEAN)
        self._team.bytes_sent += self._sizes[0]

    @property
    def _own(self) -> Store:
        assert len(self._stores) == 1, "only where there are no servers, and no parts"
        return self._stores[0]

    def _compressed(self, payload: Any, stream: int = WHOLE) -> Any:
        """Return what is sent in place of a payload."""
        compression = self._team.compression
        return payload if compression is None else compression.message(self.client, payload, stream)

    def _read(self, store: Store) -> None:
        self.parameters = store.parameters
        self._versions[0] = store.version

    def _request(self) -> Gradient:
        team, client, parameters = self._team, self.client, self.parameters
        batch = team.batches[self.index]
        examples = self._examples = self._examples + batch
        pending, versions = team.numerics.request(client, parameters), self._versions.copy()
        made = self._last = Gradient(
            self.name, client, parameters, versions, examples, pending, batch / team.batch
        )
        return made


class ParameterServer(Worker):
    """One of the servers of a run, as an algorithm's `serve` sees it."""

    def __init__(self, team: Team, index: int, store: Store) -> None:
        super().__init__()
        self.workers = team.workers  # the names of all, in the order of their indices
        # How many there are, of whom some take part at a time
        self.clients = len(team.workers) if team.clients is None else team.clients.count
        self._team = team
        self._index = index
        self._store = store
        self._size = team.numerics.sizes[index]
        self._part = None if len(team.servers) == 1 else team.numerics.parts[index]
        self._answers: list[Transfer] = []
        self._update_time = team.update_sampler(index)
        self._places: Places | None = None
        self._beside: Any = None  # what was last sent beside the parameters

    async def run(self) -> None:
        if self._team.clients is not None:
            workers = {name: self.sim.workers[name] for name in self.workers}
            places = cast("dict[str, TrainingWorker]", workers)
            self._places = Places(self._team.clients, self, places, Tag.PUSH, self._team.note)
            self._places.assign(self.workers)
        await self._team.serve(self)

    @property
    def parameters(self) -> Any:
        """This server's partition of the parameters, a flat vector that is never changed."""
        return self._store.parameters

    async def receive(self) -> Contribution:
        """Wait for what the next worker pushes."""
        if self._store.version >= self._team.last_update:
            await self._finish()
        push: Push | Lost = await self.recv(tag=Tag.PUSH)
        while isinstance(push, Lost):
            self.answer_again(push.worker)
            push = await self.recv(tag=Tag.PUSH)
        return self._contribution(push)

    async def receive_all(self) -> list[Contribution]:
        """Wait for what every worker pushes in this round; return it as it came, at least one.

        Where clients take turns, the round is of those who take part as it begins. It goes on
        without those that are lost; from the time-out on, with those that have come, or the first
        that comes. Where all are lost it begins again with others.
        """
        places = self._places
        if places is None:
            return [await self.receive() for _ in self.workers]
        if self._store.version >= self._team.last_update:
            await self._finish()
        arrived: list[Contribution] = []
        while not arrived:
            missing = await places.begin_round()
            deadline = self.sim.now + places.round_timeout
            while missing:
                is_late = self.sim.now >= deadline
                if is_late and arrived and not self.mailbox.messages:
                    break
                left = None if is_late or deadline == inf else deadline - self.sim.now
                try:
                    message = await self.recv(tag=Tag.PUSH, timeout=left)
                except TimeoutError:
                    continue
                if isinstance(message, Lost):
                    missing.discard(message.worker)
                else:
                    arrived.append(self._contribution(message))
                    missing.discard(arrived[-1].worker)
            places.dismiss(missing)
            if not arrived:
                self.answer_again(*self.workers)
        return arrived

    def answer_again(self, *workers: str) -> None:
        """Send what was last sent to clients that take the places of others, or vacant ones."""
        self.answer(*workers, beside=self._beside)

    def _contribution(self, push: Push) -> Contribution:
        gradient, payload, read_version, second = push
        self._team.bytes_sent += _size(self._team.push_sizes[self._index], second)
        return Contribution(gradient, payload, self._part, read_version, self._store, second)

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

    def answer(
        self, *workers: str, parameters: Any = None, beside: Any = None, clock: int = 0
    ) -> None:
        """Send the parameters as they are now (or other ones of this version) to the workers.

        A second vector may go with them, in a message of twice the size, and a clock that the
        algorithm keeps.
        """
        store = self._store
        self._beside = beside
        if parameters is None:
            parameters = store.parameters
        answer = Answer(self._index, parameters, store.version, beside, clock)
        size = _size(self._size, beside)
        last = store.version >= self._team.last_update
        taken = workers if self._places is None else self._places.assign(workers)
        for worker in taken:
            transfer = self.send(worker, answer, size=size, tag=Tag.ANSWER)
            if self._places is not None:
                self._places.answered(worker, transfer)
            self._team.bytes_sent += size
            if last:
                self._answers.append(transfer)

    async def _finish(self) -> None:
        """Wait until the last answers have arrived, and then for ever: the run is over."""
        for transfer in self._answers:
            with suppress(FutureCancelledError):  # its client is lost
                await transfer
        self._team.server_finished()
        await self.wait()


def _size(parameters: float, second: Any) -> float:
    """Return the bytes of a message of parameters and perhaps a second vector like them."""
    return parameters if second is None else 2 * parameters
