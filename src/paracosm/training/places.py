"""Workers as places that clients take in turn, as the server sees them that picks the clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf

from paracosm.cluster import Cluster, Link
from paracosm.engine import Timer, Transfer, Worker
from paracosm.training.clients import Clients, Participation
from paracosm.training.messages import Lost, Tag
from paracosm.training.worker import TrainingWorker


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
        self._vacant: dict[str, None] = {}
        self._timer: Timer | None = None

    def assign(self, workers: Sequence[str]) -> list[str]:
        """Pick clients for vacant places and those of `workers`; return the places that are taken.

        Whoever takes part at one of them does so no longer, and can be picked again.

        Raises:
            InputError: nobody takes part, and nothing is known of who could.
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
        self._wait_for_someone()
        return taken

    def answered(self, worker: str, download: Transfer) -> None:
        """Know with which message a place gets its parameters."""
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

    def dismiss(self, workers: Iterable[str]) -> None:
        """End what takes too long for its round."""
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

    def _leave(self, place: TrainingWorker) -> None:
        """Let a place be free: its client has sent what it had, or is told to stop."""
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

    def _wait_for_someone(self) -> None:
        self._set_timer(self._next_comes_at() if self._vacant else inf)

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
