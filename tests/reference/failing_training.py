"""A parameter server and workers that stop, are slow and lose messages, event by event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple


class Period(NamedTuple):
    """From `begin` for `length` seconds; of messages all are lost, computing is slower."""

    worker: int
    begin: float
    length: float
    factor: float = 1.0


@dataclass
class Outcome:
    """What came of it: (instant, worker, staleness) of every gradient applied, and how many not."""

    applied: list[tuple[float, int, int]] = field(default_factory=list)
    lost: int = 0


def failing_training(
    rule: str,  # "asgd", "wait" (synchronous; all wait for all) or "elastic"
    updates: int,
    compute: Sequence[Iterator[float]],  # by worker
    latency: float,
    stops: Sequence[Period] = (),
    slow: Sequence[Period] = (),
    losses: Sequence[Period] = (),
    resend: float = 1.0,
) -> Outcome:
    """Play until so many updates are made. No two instants may be equal."""
    events: list[tuple[float, int, Callable[[], None]]] = []
    numbers, outcome = count(), Outcome()
    workers = range(len(compute))
    life, up, back = [0 for _ in workers], [True for _ in workers], [0.0 for _ in workers]
    busy = [False for _ in workers]  # a gradient is being computed, or on its way
    read, version, now = [0 for _ in workers], 0, 0.0
    known_down: set[int] = set()  # at the server, until a worker joins
    newcomers: set[int] = set()
    gathered: list[tuple[int, int]] = []
    owed: set[int] = set()

    def later(delay: float, call: Callable[[], None]) -> None:
        heappush(events, (now + delay, next(numbers), call))

    def send(worker: int, arrive: Callable[[], None], is_gradient: bool = False) -> None:
        of = life[worker]

        def again() -> None:
            if life[worker] == of:
                attempt()

        def arrived() -> None:
            if life[worker] == of:
                arrive()

        def attempt() -> None:
            if any(p.worker == worker and p.begin <= now < p.begin + p.length for p in losses):
                later(resend, again)
            else:
                later(latency, arrived)

        attempt()

    def begin(worker: int) -> None:
        left, at, of = next(compute[worker]), now, life[worker]
        edges = sorted(
            {p.begin for p in slow if p.worker == worker}
            | {p.begin + p.length for p in slow if p.worker == worker}
        )
        while True:
            factor = 1.0
            for p in slow:
                if p.worker == worker and p.begin <= at < p.begin + p.length:
                    factor *= p.factor
            following = [edge for edge in edges if edge > at]
            if not following or at + left * factor <= following[0]:
                at += left * factor
                break
            left -= (following[0] - at) / factor
            at = following[0]
        busy[worker] = True

        def done() -> None:
            if life[worker] == of:
                send(worker, lambda: push(worker, read[worker]))

        later(at - now, done)

    def answer(worker: int) -> None:
        owed.discard(worker)
        newcomers.discard(worker)
        if worker in known_down:
            return
        carried = version

        def arrive() -> None:
            read[worker] = carried
            begin(worker)

        send(worker, arrive)

    def push(worker: int, read_version: int) -> None:
        busy[worker] = False
        gathered.append((worker, read_version))
        owed.add(worker)
        update()

    def update() -> None:
        nonlocal version
        if rule == "asgd":
            needed = {worker for worker, _ in gathered}
        elif rule == "wait":
            needed = set(workers)
        else:
            needed = set(workers) - known_down - newcomers
        if not gathered or not needed <= {worker for worker, _ in gathered}:
            return
        for worker, read_version in gathered:
            outcome.applied.append((now, worker, version - read_version))
        version += 1
        others = owed - {worker for worker, _ in gathered}
        answered = [worker for worker, _ in gathered] + sorted(others)
        gathered.clear()
        for worker in answered:
            answer(worker)

    def join(worker: int) -> None:
        known_down.discard(worker)
        if worker in owed:
            return
        others = set(workers) - known_down - newcomers - {worker}
        if rule == "elastic" and others:
            newcomers.add(worker)
            owed.add(worker)
        else:
            answer(worker)

    def stop(period: Period) -> None:
        worker = period.worker
        back[worker] = max(back[worker], now + period.length)
        if not up[worker]:
            return
        up[worker] = False
        life[worker] += 1
        known_down.add(worker)
        if worker in newcomers:
            newcomers.remove(worker)
            owed.remove(worker)
        outcome.lost += busy[worker]
        busy[worker] = False
        if rule == "elastic":
            update()
        rise(worker)

    def rise(worker: int) -> None:
        due = back[worker]

        def attempt() -> None:
            if back[worker] > due:
                rise(worker)
                return
            up[worker] = True
            send(worker, lambda: join(worker))

        later(due - now, attempt)

    for period in stops:
        heappush(events, (period.begin, next(numbers), lambda period=period: stop(period)))
    for worker in workers:
        begin(worker)
    while version < updates:
        now, _, call = heappop(events)
        call()
    return outcome
