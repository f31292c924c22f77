"""A worker of a run, as an algorithm's `work` sees it."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import islice
from math import inf, isnan
from typing import Any

from paracosm.engine import Future, Interrupt, Timer, Transfer, Worker
from paracosm.errors import InputError
from paracosm.rng import TrainingStream, generator
from paracosm.training.clients import Participation
from paracosm.training.compression.messages import BESIDE, FIRST_PART, WHOLE
from paracosm.training.store import Contribution, Gradient, LocalSteps, PseudoGradient, Store
from paracosm.training.team import Answer, Ask, Push, Tag, Team, message_size

MOST_LOCAL_STEPS = 1_000_000


class TrainingWorker(Worker):
    """One worker of a run, as an algorithm's `work` sees it."""

    def __init__(
        self,
        team: Team,
        index: int,
        work: "Callable[[TrainingWorker], Awaitable[None]]",  # what it does
        stores: Sequence[Store] = (),  # of the parameters' parts, where there are no servers
    ) -> None:
        super().__init__()
        self.index = index  # its number, from 0
        self.client = index  # whose data it computes on, what differs by client is kept by it
        self.workers = len(team.workers)  # how many there are
        self.topology = team.topology
        self.parameters: Any = team.initial  # a flat vector that is replaced and never changed
        self._team = team
        self._work = work
        self._stores = stores
        self._versions = [0] * len(team.numerics.sizes)
        self._place = (-1, 0, 0)  # whose local steps, from which version, and how many
        self._sizes = team.numerics.sizes
        self._parts: list[Any] = [team.initial[part] for part in team.numerics.parts]
        self.server_clock = 0  # as the newest answer says it
        self.extra: Any = None  # what servers have sent with their parameters, a flat vector
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
                await self._work(self)
                return
            except Interrupt:  # by `stop`
                if self._examples:
                    self._discard()
                await self.pull()

    def take_part(self, who: Participation, lost: Callable[[bool], object]) -> None:
        """Assign a client to this worker: at once, or when an answer arrives.

        `lost(dropped_out)` is called if it is lost before what it has computed has arrived.
        """
        self.participation = who
        self.client = who.client
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
        """When the client's message arrived; None if it has not."""
        arrived = [upload.arrived for upload in self._uploads]
        return None if not arrived or isnan(max(arrived)) else max(arrived)

    def stop(self) -> None:
        """End the participation: the client abandons its work."""
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
        """Yield compute times; after `share` of those requested at once, the client is lost."""
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
        """The client's state between participations; initially empty."""
        return self._team.kept.setdefault(self.client, {})

    async def compute_gradient(self) -> Gradient:
        """Compute a gradient at `parameters` of the next minibatch, which takes virtual time."""
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
            mu: of the proximal term `mu/2 |theta - theta_read|^2`.
            shift: a flat vector; None for zero.
            weight: of the pseudo-gradient in a mean with others.
            of: how many steps the client makes between two updates, where that are several calls;
                the learning rate of a step is that of its place between them.

        Raises:
            InputError: more than `MOST_LOCAL_STEPS`.
        """
        if count > MOST_LOCAL_STEPS:
            raise InputError(
                f"algorithm: {count:,} local steps at a time, but {MOST_LOCAL_STEPS:,} at most: "
                "their minibatches are drawn at once"
            )
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

    def push(self, payload: Any, extra: Any = None) -> None:
        """Send a gradient, or a vector of the same form, to the servers: to each its part.

        A second vector may go with it, in a message of twice the size.
        """
        self._examples = 0
        if self._team.clients is not None and self.participation is None:
            return  # it was lost at this very instant
        payload = self._compressed(payload)
        if extra is not None:
            extra = self._compressed(extra, BESIDE)
        for index, server in enumerate(self._team.servers):
            message = Push(self._last, payload, self._versions[index], extra)
            size = message_size(self._team.push_sizes[index], extra)
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
        self.extra = None if seconds[0] is None else self._team.numerics.join(seconds)
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
        await self._team.all_reduces.begin(self.name, 0, mine, store.apply)
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
        await self._team.all_reduces.begin(self.name, 0, mine, combine)
        self._read(store)

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
        return self._team.all_reduces.begin(self.name, part, mine, store.apply)

    def ask_peer(self, neighbours: Sequence[int]) -> None:
        """Send the parameters to a random neighbour, which is to average them with its own."""
        peer = self._team.workers[neighbours[int(self._choice.integers(len(neighbours)))]]
        ask = Ask(self.name, self.parameters)
        self.send(peer, ask, size=self._sizes[0], tag=Tag.ASK)

    async def receive_mean(self) -> Any:
        """Wait for what the peer that was asked has made of the parameters."""
        return await self.recv(tag=Tag.MEAN)

    async def receive_from_peer(self) -> Ask:
        """Wait for the parameters of a peer that requests the mean."""
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
        compression = self._team.compression
        if compression is None:
            return payload
        if stream in (WHOLE, FIRST_PART):  # the rest is of the same gradients
            self._team.sent(self.client, self._last.examples)
        return compression.message(self.client, payload, stream)

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
