"""A parameter server: it holds one partition of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from paracosm.engine import Worker
from paracosm.training.contribution import Contribution
from paracosm.training.roles.messages import Answer, Tag

if TYPE_CHECKING:
    from paracosm.engine import Transfer
    from paracosm.training.job import Job
    from paracosm.training.store import Store

__all__ = ["ParameterServer"]


class ParameterServer(Worker):
    """One of the servers of a run, as an algorithm's `serve` sees it.

    Attributes:
        workers: the names of all workers, in the order of their indices.
    """

    def __init__(self, job: Job, index: int, store: Store) -> None:
        super().__init__()
        self.workers = job.workers
        self._job = job
        self._index = index
        self._store = store
        self._size = job.numerics.sizes[index]
        self._answers: list[Transfer] = []
        self._update_time = job.update_sampler(index)

    async def run(self) -> None:
        await self._job.algorithm.serve(self)

    @property
    def parameters(self) -> Any:
        """This server's partition of the parameters, a flat vector that is never changed."""
        return self._store.parameters

    async def receive(self) -> Contribution:
        """Wait for what the next worker pushes."""
        if self._store.version >= self._job.last_update:
            await self._finish()
        gradient, payload, read_version = await self.recv(tag=Tag.PUSH)
        part = self._job.part(self._index)
        return Contribution(gradient, payload, part, read_version, self._store)

    async def apply(
        self,
        contributions: Sequence[Contribution],
        scale: Callable[[Contribution], float] | None = None,
        direction: Callable[[Contribution], Any] | None = None,
        step: float | None = None,
    ) -> None:
        """Update by the mean of the contributions; see `Store.apply`."""
        if self._update_time is not None:
            await self.compute(self._update_time())
        self._store.apply(contributions, scale, direction, step)

    async def replace(self, contributions: Sequence[Contribution], parameters: Any) -> None:
        """Update to `parameters`, which came of the contributions."""
        if self._update_time is not None:
            await self.compute(self._update_time())
        self._store.replace(contributions, parameters)

    def drop(self, contribution: Contribution) -> None:
        """Do not apply what was pushed; its gradient need not even be computed."""
        contribution.gradient.pending.discard()
        self._job.dropped += 1

    def answer(self, *workers: str, parameters: Any = None) -> None:
        """Send the parameters as they are now (or other ones of this version) to the workers."""
        store = self._store
        if parameters is None:
            parameters = store.parameters
        answer = Answer(self._index, parameters, store.version)
        last = store.version >= self._job.last_update
        for worker in workers:
            transfer = self.send(worker, answer, size=self._size, tag=Tag.ANSWER)
            if last:
                self._answers.append(transfer)

    async def _finish(self) -> None:
        """Wait until the last answers have arrived, and then for ever: the run is over."""
        for transfer in self._answers:
            await transfer
        self._job.server_finished()
        await self.wait()
