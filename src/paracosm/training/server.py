"""A parameter server of a run, as an algorithm's `serve` sees it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any, cast

from paracosm.cluster import Cluster, Link
from paracosm.engine import FutureCancelledError, Timer, Transfer, Worker
from paracosm.errors import InputError
from paracosm.training.clients import Clients, Participation
from paracosm.training.numerics.store import Contribution, Store
from paracosm.training.run_state import Answer, Lost, Push, RunState, Tag, message_size
from paracosm.training.worker import TrainingWorker


class ParameterServer(Worker):
    """One of the servers of a run, as an algorithm's `serve` sees it."""

    def __init__(
        self,
        state: RunState,
        index: int,
        serve: "Callable[[ParameterServer], Awaitable[None]]",  # what it does
        store: Store,
    ) -> None:
        super().__init__()
        self.workers = state.workers  # the names of all, in the order of their indices
        # How many there are, of whom some take part at a time
        self.clients = len(state.workers) if state.clients is None else state.clients.count
        # Who waits for the update of a round: all, unless it took those who came first
        self.waiting: Sequence[str] = self.workers
        self._state = state
        self._serve = serve
        self._index = index
        self._store = store
        self._size = state.numerics.sizes[index]
        self._part = None if len(state.servers) == 1 else state.numerics.parts[index]
        self._answers: list[Transfer] = []
        self._update_time = state.update_sampler(index)
        self._places: Places | None = None
        self._extra: Any = None  # what was last sent with the parameters

    async def run(self) -> None:
        if self._state.clients is not None:
            replicas = {name: self.sim.workers[name] for name in self.workers}
            workers = cast("dict[str, TrainingWorker]", replicas)
            self._places = Places(
                self._state.clients, self, workers, self.answer_again, self._state.note
            )
            self._places.assign(self.workers)
        await self._serve(self)

    @property
    def parameters(self) -> Any:
        """This server's partition of the parameters, a flat vector that is never changed."""
        return self._store.parameters

    async def receive(self) -> Contribution:
        """Wait for the next push of a worker."""
        if self._store.version >= self._state.last_update:
            await self._finish()
        push: Push | Lost = await self.recv(tag=Tag.PUSH)
        while isinstance(push, Lost):
            self.answer_again(push.worker)
            push = await self.recv(tag=Tag.PUSH)
        return self._contribution(push)

    async def receive_all(self, take: int = 0, at_least: int = 1) -> list[Contribution]:
        """Wait for what every worker pushes in this round; return it as it came, at least one.

        Where clients take turns, the round is of those who take part as it begins. It goes on
        without those that are lost; from the time-out on, with those that have come, or the first
        that comes. Where all are lost it begins again with others.

        Args:
            take: how many end the round; 0 for all. Clients that are not done are told to stop; a
                worker that comes late is answered and joins the round that goes on. `waiting` has
                those who are to be answered after the update.
            at_least: how many a round needs, in place of one. It waits for them beyond its
                time-out; where too many are lost, what has come is dropped too.
        """
        places = self._places
        self._round_begins()
        if places is None:
            return await (self._receive_first(take) if take else self._receive_each())
        if self._store.version >= self._state.last_update:
            await self._finish()
        arrived: list[Contribution] = []
        while not arrived:
            missing = await places.begin_round()
            deadline = self.sim.now + places.round_timeout
            lost = places.without_progress
            while missing and not 0 < take <= len(arrived):
                is_late = self.sim.now >= deadline
                if is_late and len(arrived) >= at_least and not self.mailbox.messages:
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
            if len(arrived) < at_least:
                places.in_vain(lost, len(arrived))
                for contribution in arrived:
                    self.drop(contribution)
                arrived = []
                self.answer_again(*self.workers)
        return arrived

    async def _receive_each(self) -> list[Contribution]:
        return [await self.receive() for _ in self.workers]

    async def _receive_first(self, count: int) -> list[Contribution]:
        first: list[Contribution] = []
        while len(first) < count:
            push = await self.receive()
            if push.staleness:
                self.drop(push)
                self.answer_again(push.worker)
            else:
                first.append(push)
        came = {push.worker for push in first}
        self.waiting = [worker for worker in self.workers if worker in came]
        return first

    def _round_begins(self) -> None:
        if self._index == 0:
            self._state.rounds += 1

    def answer_again(self, *workers: str) -> None:
        """Send what was last sent to clients that take the places of others, or vacant ones."""
        self.answer(*workers, extra=self._extra)

    def _contribution(self, push: Push) -> Contribution:
        if self._places is not None:
            self._places.without_progress = max(0, self._places.without_progress - _LOST_PER_DONE)
        gradient, payload, read_version, second, size = push
        self._state.bytes_sent += size
        return Contribution(gradient, payload, self._part, read_version, self._store, second)

    async def apply(self, contributions: Sequence[Contribution]) -> None:
        """Update by the mean of the contributions; see `Store.apply`."""
        if self._update_time is not None:
            await self.compute(self._update_time())
        self._store.apply(contributions)

    async def replace(self, contributions: Sequence[Contribution], parameters: Any) -> None:
        """Update to `parameters`, which came of the contributions.

        Raises:
            InputError: the changes of clients are to be private.
        """
        if self._store.hides_clients:
            raise InputError(
                "privacy: the algorithm replaces the server's parameters by itself, where nothing "
                "is clipped and no noise is added: use `apply`, or set pushes_only_changes to False"
            )
        if self._update_time is not None:
            await self.compute(self._update_time())
        self._store.replace(contributions, parameters)

    def drop(self, contribution: Contribution) -> None:
        """Do not apply what was pushed; its gradient need not even be computed."""
        contribution.gradient.pending.discard()
        self._state.dropped += 1

    def answer(
        self, *workers: str, parameters: Any = None, extra: Any = None, clock: int = 0
    ) -> None:
        """Send the parameters as they are now (or other ones of this version) to the workers.

        A second vector may go with them, in a message of twice the size, and a clock that the
        algorithm keeps.
        """
        store = self._store
        self._extra = extra
        if parameters is None:
            parameters = store.parameters
        answer = Answer(self._index, parameters, store.version, extra, clock)
        size = message_size(self._size, extra)
        last = store.version >= self._state.last_update
        taken = workers if self._places is None else self._places.assign(workers)
        for worker in taken:
            transfer = self.send(worker, answer, size=size, tag=Tag.ANSWER)
            if self._places is not None:
                self._places.answered(worker, transfer)
            self._state.bytes_sent += size
            if last:
                self._answers.append(transfer)

    async def _finish(self) -> None:
        """Wait until the last answers have arrived, and then without end: the run is over."""
        for transfer in self._answers:
            with suppress(FutureCancelledError):  # its client is lost
                await transfer
        self._state.server_finished()
        await self.wait()


_LOST_PER_DONE = 100  # clients, while the job still makes progress
_WITHOUT_PROGRESS = 10_000  # clients lost beyond those


class Places:
    """Which places are taken, and by whom.

    A place is vacant while nobody can be had for it; it is taken as soon as somebody can. In a
    synchronous algorithm, which calls `begin_round`, only as the next round begins.

    Attributes:
        round_timeout: seconds; infinity where rounds wait for everybody.
    """

    def __init__(
        self,
        clients: Clients,
        server: Worker,
        workers: Mapping[str, TrainingWorker],
        answer_again: Callable[..., None],  # what was last sent, to places that are vacant or named
        note: Callable[[str, str, float], None],  # takes worker, what, and a value
    ) -> None:
        self.round_timeout = clients.round_timeout
        self._clients = clients
        self._server = server
        self._answer_again = answer_again
        self._workers = workers
        self._note = note
        self.without_progress = 0  # clients lost beyond so many for each that was done
        self._vacant: dict[str, None] = {}
        self._timer: Timer | None = None

    def assign(self, workers: Sequence[str]) -> list[str]:
        """Pick clients for vacant places and those of `workers`; return the places that are taken.

        Whoever takes part at one of them does so no longer, and can be picked again.

        Raises:
            InputError: no client takes part, and the availability trace has ended.
        """
        sim = self._server.sim
        for name in workers:
            self._leave(self._workers[name])
        names = list(dict.fromkeys((*self._vacant, *workers)))
        picked = self._clients.pick(len(names), sim.now)
        taken = names[: len(picked)]
        for name, who in zip(taken, picked, strict=True):
            self._take(self._workers[name], who)
        self._vacant = dict.fromkeys(names[len(picked) :])
        self._set_timer(self._next_comes_at() if self._vacant else inf)
        return taken

    def answered(self, worker: str, download: Transfer) -> None:
        """Record the message with which a place gets its parameters."""
        self._workers[worker].read_from(download)

    async def begin_round(self) -> set[str]:
        """Return the places that are taken, once there are any; others stay vacant meanwhile."""
        sim = self._server.sim
        self._set_timer(inf)
        while not any(place.participation for place in self._workers.values()):
            when = self._next_comes_at()
            await self._server.sleep(max(0.0, when - sim.now))
            self._answer_again()
            self._set_timer(inf)
        return {name for name, place in self._workers.items() if place.participation}

    def in_vain(self, without_progress: int, clients: int) -> None:
        """Note clients who did their part in vain, in a round before which so many had been lost.

        Raises:
            InputError: nothing else has happened for long.
        """
        self.without_progress = max(self.without_progress, without_progress) + clients
        self._check_progress()

    def dismiss(self, workers: Iterable[str]) -> None:
        """End participations that exceed the round's time-out, or come too late for it."""
        for name in sorted(workers):
            self._clients.late += 1
            self._end(self._workers[name], "late")

    def _take(self, place: TrainingWorker, who: Participation) -> None:
        def lost(dropped_out: bool) -> None:
            if dropped_out:
                self._clients.dropped_out += 1
            else:
                self._clients.gone += 1
            self._note(place.name, "dropped_out" if dropped_out else "gone", who.client)
            self._clients.release(who.client)
            self.without_progress += 1
            self._check_progress()
            self._server.send(self._server.name, Lost(place.name), tag=Tag.PUSH)

        place.take_part(who, lost)
        server, network = self._server, self._server.sim.network
        assert isinstance(network, Cluster)
        up, down = self._clients.uplink, self._clients.downlink
        if up is not None:
            link = network.link(place.name, server.name)
            place.use_link(server.name, _no_faster(link, up[who.client]))
        if down is not None:
            link = network.link(server.name, place.name)
            server.use_link(place.name, _no_faster(link, down[who.client]))

    def _check_progress(self) -> None:
        if self.without_progress > _WITHOUT_PROGRESS:
            raise InputError(
                f"the job makes no progress: {_WITHOUT_PROGRESS:,} clients went or dropped out "
                f"before they or their rounds were done, beyond {_LOST_PER_DONE} for each that "
                "was: let them stay longer, compute faster, or rounds be of fewer"
            )

    def _leave(self, place: TrainingWorker) -> None:
        """Free a place whose client has finished or is stopped."""
        if place.participation is None:
            return
        if place.sent_at is None:
            self._end(place, "stopped")
            return
        self._note(place.name, "waiting", self._server.sim.now - place.sent_at)
        self._clients.release(place.participation.client)
        place.stop()

    def _end(self, place: TrainingWorker, why: str) -> None:
        assert place.participation is not None
        client = place.participation.client
        place.stop()
        self._note(place.name, why, client)
        self._clients.release(client)

    def _next_comes_at(self) -> float:
        now = self._server.sim.now
        when = self._clients.next_comes_at(now)
        if when == inf and not any(place.participation for place in self._workers.values()):
            self._clients.check_known(now)
            return now + 1.0  # when the run, which ends now, is over
        return when

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when < inf:
            sim = self._server.sim
            self._timer = sim.call_later(max(0.0, when - sim.now), lambda _: self._fill())

    def _fill(self) -> None:
        self._timer = None
        self._answer_again()


def _no_faster(link: Link, bandwidth: float) -> Link:
    return replace(link, bandwidth=min(link.bandwidth, float(bandwidth)))
