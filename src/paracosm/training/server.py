"""A parameter server of a run, as an algorithm's `serve` sees it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any, cast

from paracosm.engine import FutureCancelledError, Transfer, Worker
from paracosm.training.messages import Answer, Lost, Push, Tag, message_size
from paracosm.training.places import Places
from paracosm.training.store import Contribution, Store
from paracosm.training.team import Team
from paracosm.training.worker import TrainingWorker


class ParameterServer(Worker):
    """One of the servers of a run, as an algorithm's `serve` sees it."""

    def __init__(
        self,
        team: Team,
        index: int,
        serve: Callable[[ParameterServer], Awaitable[None]],  # what it does
        store: Store,
    ) -> None:
        super().__init__()
        self.workers = team.workers  # the names of all, in the order of their indices
        # How many there are, of whom some take part at a time
        self.clients = len(team.workers) if team.clients is None else team.clients.count
        self._team = team
        self._serve = serve
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
            found = {name: self.sim.workers[name] for name in self.workers}
            workers = cast("dict[str, TrainingWorker]", found)
            self._places = Places(
                *(self._team.clients, self, workers, self.answer_again, self._team.note)
            )
            self._places.assign(self.workers)
        await self._serve(self)

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
        self._team.bytes_sent += message_size(self._team.push_sizes[self._index], second)
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
        size = message_size(self._size, beside)
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
