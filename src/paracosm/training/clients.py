"""Clients that share the places of a few workers: selection and properties.

A worker is a place, with a node and a link; a client has data, a speed and lines of its own. At any
time as many clients take part as there are workers. Whom a server picks next is drawn from those
that are there and do not take part already, without replacement: uniformly, or in proportion to the
examples that they have. A client that was never picked costs some bytes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from paracosm.arrays import Floats
from paracosm.results import ClientsSummary
from paracosm.rng import TrainingStream, generator
from paracosm.training.availability import Availability, check_known, make_availability
from paracosm.training.by_client import fairness
from paracosm.training.fields import ClientFields


@dataclass(eq=False, slots=True)
class Participation:
    """One participation of a client.

    Attributes:
        client: its number.
        rng: random stream of this participation.
        leaves: when it goes away, in seconds; infinity if it stays.
        lost_after: the share of its computing after which it is lost; None if it is not.
    """

    client: int
    rng: np.random.Generator
    leaves: float
    lost_after: float | None


class Clients:
    """The clients of a run.

    Attributes:
        count: how many there are.
        uplink, downlink: bytes/s by client; None where it is the worker's.
        round_timeout: seconds; infinity where rounds wait for everybody.
        participations: how often each has taken part, shape (clients,).
        dropped_out, gone, late: how often one was lost, went away, or came after its round.
    """

    def __init__(
        self,
        config: ClientFields,
        seed: int,
        sizes: Sequence[int] | None = None,  # of the shards, where picks follow them
        until: float | None = None,  # when the run ends, where that is known
    ) -> None:
        assert config.clients is not None
        count = config.clients
        self.count = count
        self._seed = seed
        self._dropout = config.dropout
        self._availability: Availability = make_availability(config.availability, count, seed)
        self._until = inf if until is None else until
        if until is not None:
            check_known(self._availability, until)
        self._idle = _WeightedSet([1] * count if sizes is None else sizes)
        self._rng = generator(seed, TrainingStream.PICKS)
        columns = (config.client_speed, config.client_uplink, config.client_downlink)
        speed, uplink, downlink = (
            None if column is None else column.values(count, seed) for column in columns
        )
        self._speed: Floats | None = speed
        self.uplink: Floats | None = uplink
        self.downlink: Floats | None = downlink
        self.round_timeout = inf if config.round_timeout is None else config.round_timeout
        self.participations = np.zeros(count, np.int32)
        self.dropped_out = self.gone = self.late = 0

    def pick(self, places: int, now: float) -> list[Participation]:
        """Pick clients for `places`; fewer if not enough are available."""
        picked: list[Participation] = []
        while len(picked) < places and self._idle.total:
            for _ in range(_TRIES):
                client = self._idle.at(int(self._rng.integers(self._idle.total)))
                leaves = self._availability.there_until(client, now)
                if leaves is not None:
                    picked.append(self._begin(client, leaves))
                    break
            else:
                return picked + self._pick_of_few(places - len(picked), now)
        return picked

    def relative_speed(self, client: int) -> float:
        return 1.0 if self._speed is None else float(self._speed[client])

    def speeds(self) -> Iterator[tuple[int, float]]:
        """Yield number and relative speed of the clients that took part, where speeds differ."""
        if self._speed is not None:
            for client in np.flatnonzero(self.participations).tolist():
                yield client, float(self._speed[client])

    def turns(self) -> Iterator[tuple[int, int]]:
        """Yield number and participations of the clients that took part."""
        for client in np.flatnonzero(self.participations).tolist():
            yield client, int(self.participations[client])

    def release(self, client: int) -> None:
        """Make a client available for selection again."""
        self._idle.add(client)

    def next_comes_at(self, now: float) -> float:
        """Return when the next idle client becomes available; infinity if never."""
        return min(
            (self._availability.comes_at(client, now) for client in self._idle.members()),
            default=inf,
        )

    def check_known(self, now: float) -> None:
        """Raise InputError if the run continues after the end of the availability trace."""
        if now < self._until:
            check_known(self._availability, inf)

    def summary(self) -> ClientsSummary:
        return ClientsSummary(
            clients=self.count,
            took_part=int(np.count_nonzero(self.participations)),
            participations=int(self.participations.sum()),
            dropped_out=self.dropped_out,
            gone=self.gone,
            late=self.late,
            fairness=fairness(self.participations),
        )

    def _pick_of_few(self, places: int, now: float) -> list[Participation]:
        there = {
            client: leaves
            for client in self._idle.members()
            if (leaves := self._availability.there_until(client, now)) is not None
        }
        left = _WeightedSet([self._idle.weight(client) for client in there])
        clients = list(there)
        picked: list[Participation] = []
        while len(picked) < places and left.total:
            place = left.at(int(self._rng.integers(left.total)))
            left.remove(place)
            picked.append(self._begin(clients[place], there[clients[place]]))
        return picked

    def _begin(self, client: int, leaves: float) -> Participation:
        self._idle.remove(client)
        number = int(self.participations[client])
        self.participations[client] += 1
        rng = generator(self._seed, TrainingStream.PARTICIPATION, client, number)
        chance, share = rng.random(2).tolist()
        return Participation(client, rng, leaves, share if chance < self._dropout else None)


_TRIES = 64  # draws of clients that are away, after which all are looked through


class _WeightedSet:
    """A subset of weighted numbers 0, 1, ...: a tree of sums, with draws in O(log n)."""

    def __init__(self, weights: Sequence[int]) -> None:
        """Begin with all of them as members."""
        self._leaves = 1 << max(0, len(weights) - 1).bit_length()
        self._weights = weights
        sums = [0] * self._leaves + list(weights) + [0] * (self._leaves - len(weights))
        for node in range(self._leaves - 1, 0, -1):
            sums[node] = sums[2 * node] + sums[2 * node + 1]
        self._sums = sums

    @property
    def total(self) -> int:
        """The weight of all members together."""
        return self._sums[1]

    def weight(self, number: int) -> int:
        return self._weights[number]

    def at(self, place: int) -> int:
        """Return the member at a place from 0 to the total, less 1."""
        sums, node = self._sums, 1
        while node < self._leaves:
            node *= 2
            if place >= sums[node]:
                place -= sums[node]
                node += 1
        return node - self._leaves

    def members(self) -> list[int]:
        leaves = self._sums[self._leaves : self._leaves + len(self._weights)]
        return [number for number, weight in enumerate(leaves) if weight]

    def add(self, number: int) -> None:
        self._change(number, self._weights[number])

    def remove(self, number: int) -> None:
        self._change(number, -self._weights[number])

    def _change(self, number: int, by: int) -> None:
        sums, node = self._sums, number + self._leaves
        while node:
            sums[node] += by
            node //= 2
