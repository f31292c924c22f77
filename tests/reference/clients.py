"""Clients that take turns, event by event in plain Python: who is picked, lost or late, and when.

Written from what docs/clients.md says, without anything of the package; slow, and as direct as can
be. Messages have lines of their own and never meet. Random numbers are those of the documented
streams: (10) picks, (12, client, n) what happens to a client when it takes part for the n-th time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

INF = float("inf")
TRIES = 64


@dataclass
class Scenario:
    seed: int
    active: int  # clients at a time
    updates: int
    intervals: list[list[tuple[float, float]]]  # by client, when it is there
    compute: tuple[float, float]  # a step takes uniformly so long, on a client of speed 1
    steps: int  # in each participation
    speed: list[float]
    up: list[float]  # seconds of a message from a client
    down: list[float]
    dropout: float
    timeout: float = INF
    take: int = 0  # how many end a round; 0 for all
    at_least: int = 1  # how many a round needs


@dataclass
class Outcome:
    applied: list[tuple[float, int]] = field(default_factory=list)  # time of update, client
    lost: list[tuple[float, str, int]] = field(default_factory=list)  # time, how, client


def stream(seed: int, *key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=key))


class Crowd:
    """Those who do not take part."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.idle = set(range(len(scenario.intervals)))
        self.times = [0] * len(scenario.intervals)
        self.rng = stream(scenario.seed, 10)

    def there_until(self, client: int, now: float) -> float | None:
        for begin, end in self.scenario.intervals[client]:
            if begin <= now < end:
                return end
        return None

    def pick(self, places: int, now: float) -> list[int]:
        found: list[int] = []
        while len(found) < places and self.idle:
            for _ in range(TRIES):
                client = sorted(self.idle)[self.rng.integers(len(self.idle))]
                if self.there_until(client, now) is not None:
                    self.idle.remove(client)
                    found.append(client)
                    break
            else:
                there = [c for c in sorted(self.idle) if self.there_until(c, now) is not None]
                while there and len(found) < places:
                    client = there.pop(self.rng.integers(len(there)))
                    self.idle.remove(client)
                    found.append(client)
                return found
        return found

    def next_comes(self, now: float) -> float:
        begins = (b for c in self.idle for b, _ in self.scenario.intervals[c] if b > now)
        return min(begins, default=INF)

    def take_part(self, client: int, asked: float, reads: bool) -> tuple[float, str]:
        """Return when the client's message is there, or it is lost; and which."""
        scenario = self.scenario
        rng = stream(scenario.seed, 12, client, self.times[client])
        self.times[client] += 1
        chance, share = rng.random(2)
        low, high = scenario.compute
        computing = 0.0
        for _ in range(scenario.steps):
            computing += (low + (high - low) * rng.random()) / scenario.speed[client]
        begins = asked + (scenario.down[client] if reads else 0.0)
        sends = begins + computing
        dropped = begins + share * computing if chance < scenario.dropout else INF
        gone = self.there_until(client, asked)
        assert gone is not None
        arrives = sends + scenario.up[client]
        if min(dropped, gone) < arrives:
            return min(dropped, gone), "dropped_out" if dropped < gone else "gone"
        return arrives, "arrives"


def rounds(scenario: Scenario) -> Outcome:
    """Play synchronous rounds."""
    crowd, outcome, now, reads = Crowd(scenario), Outcome(), 0.0, False
    made = 0
    while made < scenario.updates:
        taken = crowd.pick(scenario.active, now)
        if not taken:
            now, reads = crowd.next_comes(now), True
            continue
        deadline = now + scenario.timeout
        fates = sorted((*crowd.take_part(client, now, reads), client) for client in taken)
        came: list[int] = []
        while fates and (len(came) < scenario.at_least or fates[0][0] <= deadline):
            if scenario.take and len(came) == scenario.take:
                break
            now, how, client = fates.pop(0)
            if how == "arrives":
                came.append(client)
            else:
                outcome.lost.append((now, how, client))
        if fates:
            if len(came) != scenario.take:
                now = max(now, deadline)
            outcome.lost += [(now, "late", client) for _, _, client in fates]
        crowd.idle |= set(taken)
        reads = True
        if len(came) >= scenario.at_least:
            made += 1
            outcome.applied += [(now, client) for client in came]
    return outcome


def one_by_one(scenario: Scenario) -> Outcome:
    """Play updates by each client's message as it arrives."""
    crowd, outcome = Crowd(scenario), Outcome()
    events: list[tuple[float, int, str, int]] = []
    vacant = number = alarm = 0

    def fill(places: int, now: float, reads: bool = True) -> None:
        nonlocal vacant, number, alarm
        taken = crowd.pick(places, now)
        for client in taken:
            time, how = crowd.take_part(client, now, reads)
            number += 1
            heappush(events, (time, number, how, client))
        vacant = places - len(taken)
        if vacant:
            alarm = number = number + 1  # an earlier one counts no more
            heappush(events, (crowd.next_comes(now), number, "comes", -1))

    fill(scenario.active, 0.0, reads=False)
    while len(outcome.applied) < scenario.updates:
        now, event, how, client = heappop(events)
        if how == "comes":
            if vacant and event == alarm:
                fill(vacant, now)
            continue
        crowd.idle.add(client)
        if how == "arrives":
            outcome.applied.append((now, client))
        else:
            outcome.lost.append((now, how, client))
        fill(vacant + 1, now)
    return outcome
