"""A worker of a run, as an algorithm's `work` sees it."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from math import inf, isnan
from typing import Any

from paracosm.engine import Future, Interrupt, Simulator, Timer, Transfer, Worker
from paracosm.errors import InputError
from paracosm.rng import TrainingStream, generator
from paracosm.training.clients import Participation
from paracosm.training.compression.messages import BESIDE, FIRST_PART, WHOLE
from paracosm.training.local_work import (
    MOST_LOCAL_STEPS,
    LocalWork,
    StepsWithin,
    UniformSteps,
    part_of,
)
from paracosm.training.numerics.store import (
    Contribution,
    Gradient,
    LocalSteps,
    PseudoGradient,
    Store,
)
from paracosm.training.privacy import Draw
from paracosm.training.run_state import Answer, Ask, Push, RunState, Tag, message_size

_ROUNDING = 1e-9  # relative: ten times 100 ms fit into a second


class TrainingWorker(Worker):
    """One worker of a run, as an algorithm's `work` sees it."""

    def __init__(
        self,
        state: RunState,
        index: int,
        work: "Callable[[TrainingWorker], Awaitable[None]]",  # what it does
        stores: Sequence[Store] = (),  # of the parameters' parts, where there are no servers
    ) -> None:
        super().__init__()
        self.index = index  # its number, from 0
        self.client = index  # whose data it computes on, what differs by client is kept by it
        self.workers = len(state.workers)  # how many there are
        self.topology = state.topology
        self.parameters: Any = state.initial  # a flat vector that is replaced and never changed
        self._state = state
        self._work = work
        self._stores = stores
        self._versions = [0] * len(state.numerics.sizes)
        self._place = (-1, 0, 0)  # whose local steps, from which version, and how many
        self._sizes = state.numerics.sizes
        self._parts: list[Any] = [state.initial[part] for part in state.numerics.parts]
        self.server_clock = 0  # as the newest answer says it
        self.extra: Any = None  # what servers have sent with their parameters, a flat vector
        self._durations = state.compute_times(index)
        self._choice = generator(state.seed, TrainingStream.NEIGHBOURS, index)
        self._examples = 0  # of what was computed and not pushed yet
        self._draws: list[Draw] = []  # the minibatches of the same
        self._last: Gradient
        # Of the client that takes part here
        self.participation: Participation | None = None
        self._departure: Timer | None = None
        self._download: Transfer | None = None
        self._uploads: list[Transfer] = []
        self._loses: _Loss | None = None
        self._is_reading = False

    async def run(self) -> None:
        if self._state.clients is not None and self.participation is None:
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
        self._download, self._uploads, self._loses = None, [], None

        def lose(dropped_out: bool) -> None:
            if self.participation is who and self.sent_at is None:
                self.stop()
                lost(dropped_out)

        self._durations = self._state.compute_times(self.index, who)
        if who.lost_after is not None and self._durations is not None:
            self._loses = _Loss(self.sim, who.lost_after, lambda _: lose(True))
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

    def _seconds(self, share: float = 1.0) -> float:
        """Return the next compute time, of a share of a whole minibatch."""
        assert self._durations is not None
        seconds = share * next(self._durations)
        if self._loses is not None:
            self._loses.after(seconds)
        return seconds

    def _computed(self) -> None:
        """Forget what was computed and not pushed: it is on its way, or lost."""
        self._examples = 0
        self._draws = []

    def _is_of_before(self, answer: Answer) -> bool:
        """Whether an answer is one to a client that no longer takes part here."""
        if self._state.clients is None:
            return False
        return self._download is None or self._download.data is not answer

    def _discard(self) -> None:
        self._last.pending.discard()
        self._computed()
        self._state.dropped += 1

    @property
    def kept(self) -> dict[str, Any]:
        """The client's state between participations; initially empty."""
        return self._state.kept.setdefault(self.client, {})

    async def compute_gradient(self) -> Gradient:
        """Compute a gradient at `parameters` of the next minibatch, which takes virtual time."""
        gradient = self._request()
        if self._durations is None:
            await self.execute(gradient.pending.result)
        else:
            await self.compute(self._seconds())
        return gradient

    async def compute_gradient_unless_answered(self) -> Gradient | None:
        """Compute a gradient, but abandon it (None) if an answer arrives before it is done."""
        assert self._durations is not None  # checked when the run was configured
        gradient = self._request()
        if await self.compute_unless(self._seconds(), tag=Tag.ANSWER):
            return gradient
        gradient.pending.discard()
        self._examples -= self._state.numerics.batch_of(self.client)
        self._draws.pop()
        self._state.dropped += 1
        return None

    async def local_steps(
        self,
        count: LocalWork,
        *,
        keep_state: bool = True,
        mu: float = 0.0,
        shift: Any = None,
        weight: float = 1.0,
        of: int | None = None,
        epochs: int = 0,
        stragglers: float = 0.0,
    ) -> PseudoGradient:
        """Spend the time of `count` local steps from `parameters`, on the next minibatches.

        A count that is drawn, or of as many as fit into a time, is that of this participation.

        With `epochs` the steps are those of so many passes over the client's examples, in place of
        `count`: each example is in one minibatch of a pass, and the last one has those that are
        left, and takes as much less time.

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
            epochs: passes over the client's examples; none for `count` steps.
            stragglers: the share of the workers of a round that do only a part of this work, of
                any size, and take as long over it as over the whole.

        Raises:
            InputError: more than `MOST_LOCAL_STEPS`; passes where no examples are known; steps
                that fit into a time where computing is measured.
        """
        state, numerics, parameters = self._state, self._state.numerics, self.parameters
        if epochs and not numerics.real:
            raise InputError(
                "algorithm: passes over examples depend on data, which timing_only mode lacks: "
                "set `counts_examples` to True"
            )
        fitting: list[float] = []
        if epochs:
            count = self.minibatches(epochs)
        elif isinstance(count, StepsWithin):
            fitting = self._fitting(count)
            count = len(fitting)
        elif isinstance(count, UniformSteps):
            count = count.draw(state.work_stream(self.client))
        assert isinstance(count, int), "passes are made in place of steps"
        whole_count = count
        is_partial = bool(stragglers) and state.is_straggler(self.index, stragglers)
        if is_partial:
            rng = state.work_stream(self.client)
            epochs = part_of(epochs, rng) if epochs else 0
            count = self.minibatches(epochs) if epochs else part_of(count, rng)
        if count > MOST_LOCAL_STEPS:
            raise InputError(
                f"algorithm: {count:,} local steps at a time, but {MOST_LOCAL_STEPS:,} at most: "
                "their minibatches are drawn at once"
            )
        sizes = numerics.step_sizes(self.client, count, epochs)
        self._drawn(sizes)
        versions = self._versions.copy()
        if of is None or self._place[:2] != (self.client, versions[0]):
            self._place = (self.client, versions[0], 0)
        made, of = self._place[2], of or count
        self._place = (self.client, versions[0], made + count)
        steps = LocalSteps(count, epochs, keep_state, mu, shift, versions[0] + made / of, 1 / of)
        pending = state.numerics.request_steps(self.client, parameters, steps)
        local = self._last = PseudoGradient(
            self.name,
            self.client,
            parameters,
            versions,
            self._examples,
            pending,
            weight,
            tuple(self._draws),
            is_partial,
        )
        if self._durations is None:
            for _ in range(count):
                await self.execute(pending.advance)
        else:
            whole = numerics.batch_of(self.client) * count / whole_count
            for seconds in fitting or [self._seconds(size / whole) for size in sizes]:
                await self.compute(seconds)
        return local

    def _fitting(self, work: StepsWithin) -> list[float]:
        """Return the compute times of as many whole minibatches as fit into a time, at least one.

        The client knows its speed: it does not begin what would not fit.
        """
        if self._durations is None:
            raise InputError(
                f"algorithm: as many steps as fit into {work} need computing times that are known "
                "before, not measured: give compute a distribution"
            )
        fitting: list[float] = []
        left = work.seconds * (1 + _ROUNDING)
        for seconds in self._durations:
            left -= seconds
            if fitting and left < 0:
                break
            fitting.append(seconds)
            if len(fitting) > MOST_LOCAL_STEPS:
                break  # `local_steps` refuses it
        if self._loses is not None:
            for seconds in fitting:
                self._loses.after(seconds)
        return fitting

    @property
    def version(self) -> int:
        """How often the parameters had been updated that this worker read; of parts, the first."""
        return self._versions[0]

    @property
    def examples(self) -> int:
        """How many examples the client draws its minibatches from."""
        return self._state.numerics.examples_of(self.client)

    def minibatches(self, epochs: int) -> int:
        """Return how many minibatches so many passes over the client's examples have."""
        return epochs * -(-self.examples // self._state.numerics.batch_of(self.client))

    def _drawn(self, sizes: Sequence[int]) -> None:
        """Note that minibatches of these sizes were drawn together."""
        self._examples += sum(sizes)
        counts = {sizes[0]: 1} if len(sizes) == 1 else Counter(sizes)
        self._draws.append(Draw(self.client, counts))

    def push(self, payload: Any, extra: Any = None) -> None:
        """Send a gradient, or a vector of the same form, to the servers: to each its part.

        A second vector may go with it, in a message of twice the size.
        """
        self._computed()
        if self._state.clients is not None and self.participation is None:
            return  # it was lost at this very instant
        payload = self._compressed(payload)
        if extra is not None:
            extra = self._compressed(extra, BESIDE)
        sizes = self._state.push_sizes_at(self._versions[0])
        for index, server in enumerate(self._state.servers):
            size = message_size(sizes[index], extra)
            message = Push(self._last, payload, self._versions[index], extra, size)
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
        self.parameters = self._state.numerics.join(parts)
        self.extra = None if seconds[0] is None else self._state.numerics.join(seconds)
        return self.parameters

    async def apply(self, gradient: Gradient) -> None:
        """Apply a gradient to this worker's own store of parameters."""
        store = self._own
        self._computed()
        store.apply([Contribution(gradient, gradient, None, gradient.versions[0], store)])
        self._read(store)

    def replace(self, parameters: Any, weight: float = 1.0) -> None:
        """Replace this worker's own parameters, which counts as a change but not as an update.

        With a weight, as of push-sum, `apply` steps from these, and what is evaluated and gradients
        are computed at are these divided by it.
        """
        store = self._own
        store.parameters = parameters
        store.weight = weight
        store.version += 1
        self._read(store)

    async def all_reduce_gradient(self, gradient: Gradient) -> None:
        """Take the mean of all workers' gradients and apply it to the parameters of all."""
        store = self._own
        self._computed()
        payload = self._compressed(gradient)
        mine = Contribution(gradient, payload, None, gradient.versions[0], store)
        await self._state.all_reduces.begin(self.name, 0, mine, store.apply)
        self._read(store)

    async def all_reduce_parameters(self) -> list[Gradient]:
        """Replace the parameters of all workers by their mean, and return what each had computed:
        all know one another's losses, numbers beside vectors.

        Where messages are compressed, they have what each has taken off the parameters that all had
        last, as in Basu, Data, Karakus, Diggavi, "Qsparse-local-SGD", 2019, algorithm 1.
        """
        store = self._own
        self._computed()
        payload, combine = self.parameters, store.replace_by_mean
        if self._state.compression is not None:
            payload = self._compressed(store.parameters - self.parameters)
            combine = store.subtract_mean

        def average(contributions: Sequence[Contribution]) -> None:
            combine(contributions)
            for contribution in contributions:
                contribution.second = [contribution.gradient for contribution in contributions]

        mine = Contribution(self._last, payload, None, self._versions[0], store)
        await self._state.all_reduces.begin(self.name, 0, mine, average)
        self._read(store)
        gradients: list[Gradient] = mine.second
        return gradients

    async def all_reduce_mean(self, vector: Any) -> Any:
        """Return the mean of all workers' vectors of the form of the parameters; no update."""

        def average(contributions: Sequence[Contribution]) -> None:
            mean = sum(contribution.value for contribution in contributions) / len(contributions)
            for contribution in contributions:
                contribution.second = mean

        payload = self._compressed(vector, BESIDE)
        mine = Contribution(self._last, payload, None, self._versions[0], self._own)
        await self._state.all_reduces.begin(self.name, 0, mine, average)
        return mine.second

    @property
    def shared_rule(self) -> Any:
        """The rule by which the shared parameters are updated, with its state."""
        return self._own.rule

    def optimizer_state(self, name: str) -> Any:
        """Return what PyTorch's optimizer of the local steps keeps by a name, a flat vector."""
        return self._state.numerics.optimizer_state(self.client, name)

    def replace_optimizer_state(self, name: str, values: Any) -> None:
        """Let the optimizer of the local steps go on from other values."""
        self._state.numerics.replace_optimizer_state(self.client, name, values)

    def part(self, index: int) -> Any:
        """Return a part of this worker's own parameters, a flat vector."""
        return self.parameters[self._state.numerics.parts[index]]

    def shared_part(self, index: int) -> Any:
        """Return a part of the parameters that the workers share, as it was updated last."""
        return self._stores[index].parameters

    def replace_part(self, index: int, values: Any) -> None:
        """Replace a part of this worker's own parameters, knowing the shared part as it is."""
        numerics = self._state.numerics
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
            self._computed()
        payload = self._compressed(change, FIRST_PART + part)
        mine = Contribution(self._last, payload, None, self._versions[part], store)
        return self._state.all_reduces.begin(self.name, part, mine, store.apply)

    def ask_peer(self, neighbours: Sequence[int]) -> None:
        """Send the parameters to a random neighbour, which is to average them with its own."""
        peer = self._state.workers[neighbours[int(self._choice.integers(len(neighbours)))]]
        ask = Ask(self.name, self.parameters)
        self.send(peer, ask, size=self._sizes[0], tag=Tag.ASK)

    async def receive_mean(self) -> Any:
        """Wait for what the peer that was asked has made of the parameters."""
        return await self.recv(tag=Tag.MEAN)

    def send_to(self, peer: int, data: Any) -> None:
        """Send a vector of the form of the parameters, and perhaps numbers beside it, to a worker.

        It is what the peer's `receive_from` returns; of several in the order in which they were
        sent.
        """
        self.send(self._state.workers[peer], data, size=self._sizes[0], tag=Tag.PEER)

    async def receive_from(self, peer: int) -> Any:
        """Wait for the next thing that a worker sends by `send_to`."""
        data = await self.recv(self._state.workers[peer], tag=Tag.PEER)
        self._state.bytes_sent += self._sizes[0]
        return data

    async def receive_from_peer(self) -> Ask:
        """Wait for the parameters of a peer that requests the mean."""
        ask: Ask = await self.recv(tag=Tag.ASK)
        self._state.bytes_sent += self._sizes[0]
        return ask

    def answer_peer(self, ask: Ask, mean: Any) -> None:
        self.send(ask.peer, mean, size=self._sizes[0], tag=Tag.MEAN)
        self._state.bytes_sent += self._sizes[0]

    @property
    def _own(self) -> Store:
        assert len(self._stores) == 1, "only where there are no servers, and no parts"
        return self._stores[0]

    def _compressed(self, payload: Any, stream: int = WHOLE) -> Any:
        compression = self._state.compression
        if compression is None:
            return payload
        if stream in (WHOLE, FIRST_PART):  # the rest is of the same gradients
            self._state.sent(self._last)
        part = max(0, stream - FIRST_PART)
        return compression.message(self.client, payload, stream, self._versions[part])

    def _read(self, store: Store) -> None:
        self.parameters = store.weighted
        self._versions[0] = store.version

    def _request(self) -> Gradient:
        numerics, client, parameters = self._state.numerics, self.client, self.parameters
        self._drawn([numerics.batch_of(client)])
        pending, versions = numerics.request(client, parameters), self._versions.copy()
        made = self._last = Gradient(
            self.name,
            client,
            parameters,
            versions,
            self._examples,
            pending,
            numerics.weight_of(client),
            tuple(self._draws),
        )
        return made


class _Loss:
    """When a client is lost: after a share of all the computing that it begins at once."""

    def __init__(self, sim: Simulator, share: float, lose: Callable[[object], object]) -> None:
        self._sim = sim
        self._share = share
        self._lose = lose
        self._total = 0.0
        self._timer: Timer | None = None

    def after(self, seconds: float) -> None:
        """Note computing that takes so long."""
        self._total += seconds
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._sim.call_later(self._share * self._total, self._lose)
