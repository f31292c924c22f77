"""A worker: it holds a replica of the parameters and makes gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from paracosm.engine import Worker
from paracosm.training.contribution import Contribution, Gradient
from paracosm.training.roles.messages import Answer, Ask, Tag

if TYPE_CHECKING:
    from paracosm.training.algorithms import Topology
    from paracosm.training.job import Job
    from paracosm.training.store import Rule, Store

__all__ = ["TrainingWorker"]


class TrainingWorker(Worker):
    """One worker of a run, as an algorithm's `work` sees it.

    Attributes:
        index: its number, from 0.
        workers: how many workers there are.
        topology: how the run's workers exchange.
        parameters: its replica, a flat vector that is replaced and never changed.
    """

    def __init__(self, job: Job, index: int, store: Store | None) -> None:
        super().__init__()
        self.index = index
        self.workers = len(job.workers)
        self.topology: Topology = job.topology
        self.parameters: Any = job.initial
        self._job = job
        self._store = store
        self._versions = [0] * len(job.servers)
        self._sizes = job.numerics.sizes
        self._parts: list[Any] = [job.initial[part] for part in job.numerics.parts]
        self._rule: Rule | None = None
        self._durations = job.compute_times(index)
        self._choice = job.neighbour_stream(index)
        self._examples = 0
        self._last: Gradient

    async def run(self) -> None:
        await self._job.algorithm.work(self)

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
        self._examples -= self._job.config.batch
        self._job.dropped += 1
        return None

    def step(self, gradient: Gradient) -> None:
        """Take a step of the optimizer on this worker's own parameters."""
        if self._rule is None:
            self._rule = self._job.numerics.rule()
        self.parameters = self._rule(self.parameters, gradient.value, 1.0)

    def push(self, payload: Any) -> None:
        """Send a gradient, or a vector of the same form, to the servers: to each its part."""
        self._examples = 0
        for index, server in enumerate(self._job.servers):
            message = (self._last, payload, self._versions[index])
            self.send(server, message, size=self._sizes[index], tag=Tag.PUSH)

    async def pull(self) -> Any:
        """Wait for an answer of every server and return the parameters that they make up."""
        parts = self._parts
        for _ in parts:
            answer: Answer = await self.recv(tag=Tag.ANSWER)
            parts[answer.server] = answer.parameters
            self._versions[answer.server] = answer.version
        self.parameters = self._job.numerics.join(parts)
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
        await self._job.all_reduce(self, mine, store.apply)
        self._read(store)

    async def all_reduce_parameters(self) -> None:
        """Replace the parameters of all workers by their mean."""
        store = self._own
        self._examples = 0
        mine = Contribution(self._last, self.parameters, None, self._versions[0], store)
        await self._job.all_reduce(self, mine, store.replace_by_mean)
        self._read(store)

    async def ask_peer(self, neighbours: Sequence[int]) -> Any:
        """Send the parameters to a random neighbour and return what it makes of them."""
        peer = self._job.workers[neighbours[int(self._choice.integers(len(neighbours)))]]
        ask = Ask(self.name, self.parameters)
        self.send(peer, ask, size=self._sizes[0], tag=Tag.ASK)
        return await self.recv(tag=Tag.MEAN)

    async def receive_from_peer(self) -> Ask:
        """Wait for the parameters of a peer that asks for the mean."""
        ask: Ask = await self.recv(tag=Tag.ASK)
        return ask

    def answer_peer(self, ask: Ask, mean: Any) -> None:
        """Send the mean to the peer that asked."""
        self.send(ask.peer, mean, size=self._sizes[0], tag=Tag.MEAN)

    @property
    def _own(self) -> Store:
        assert self._store is not None, "only where there are no servers"
        return self._store

    def _read(self, store: Store) -> None:
        self.parameters = store.parameters
        self._versions[0] = store.version

    def _request(self) -> Gradient:
        job = self._job
        parameters = self.parameters
        self._examples += job.config.batch
        pending = job.numerics.request(self.index, parameters)
        self._last = Gradient(self.name, parameters, self._versions.copy(), self._examples, pending)
        return self._last
