"""The engine beside SimPy: the same programs, in one process, in turn, with the same results.

    python benchmarks/engine.py [--repeats N]

Each program is written twice, as one would write it with either library, and returns a checksum
(the final time and something that depends on the order of events), which must be the same. Where
SimPy knows a faster way than the usual one, it takes it: nobody waits for a `put` into a store
without limits. Both are run alternately, since machines change their speed from one second to the
next; the table shows medians. Two further lines: what an idle worker takes in memory, and how long
ten thousand workers take for a hundred steps each.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Coroutine, Generator
from statistics import median
from types import coroutine
from typing import Any, NamedTuple

import simpy
from stored_results import store_result

from paracosm.engine import Queue, Simulator, Worker
from paracosm.timing.families import Lognormal

AGAINST_SIMPY = (
    "engine against SimPy 4.1.2: ping-pong, sleeping, a server with queues, serialised ports, "
    "delayed sends"
)
Checksum = tuple[float, float]

# Ping-pong of two processes through queues


def ping_pong(rounds: int) -> Checksum:
    sim = Simulator()
    there: Queue[int] = Queue(sim)
    back: Queue[int] = Queue(sim)
    total = 0

    async def ping() -> None:
        nonlocal total
        for number in range(rounds):
            there.put_nowait(number)
            answer = await back.get()
            total += answer

    async def pong() -> None:
        for _ in range(rounds):
            number = await there.get()
            back.put_nowait(number + 1)

    sim.spawn(ping())
    sim.spawn(pong())
    sim.start()
    return sim.now, total


def ping_pong_simpy(rounds: int) -> Checksum:
    env = simpy.Environment()
    there, back = simpy.Store(env), simpy.Store(env)
    total = 0

    def ping() -> Any:
        nonlocal total
        for number in range(rounds):
            there.put(number)  # not waited for, which is faster
            answer = yield back.get()
            total += answer

    def pong() -> Any:
        for _ in range(rounds):
            number = yield there.get()
            back.put(number + 1)

    env.process(ping())
    env.process(pong())
    env.run()
    return env.now, total


# 64 processes that sleep, each for another time


def timeouts(steps: int) -> Checksum:
    sim = Simulator()
    order = 0

    class Sleeper(Worker):
        def __init__(self, number: int) -> None:
            self.number = number

        async def run(self) -> None:
            nonlocal order
            number = self.number
            pause = 1.0 + number / 64
            for _ in range(steps):
                await self.sleep(pause)
                order = (order * 31 + number) & 0xFFFFFFFF

    for number in range(64):
        sim.add_worker(f"sleeper{number}", Sleeper, number)
    sim.start()
    return sim.now, order


def timeouts_simpy(steps: int) -> Checksum:
    env = simpy.Environment()
    order = 0

    def sleeper(number: int) -> Any:
        nonlocal order
        pause = 1.0 + number / 64
        for _ in range(steps):
            yield env.timeout(pause)
            order = (order * 31 + number) & 0xFFFFFFFF

    for number in range(64):
        env.process(sleeper(number))
    env.run()
    return env.now, order


# One server and 16 workers, through queues

WORKERS = 16


def compute_time(number: int) -> float:
    return 1.0 + number / 7


def server(steps: int) -> Checksum:
    sim = Simulator()
    requests: Queue[int] = Queue(sim)
    answers: list[Queue[int]] = [Queue(sim) for _ in range(WORKERS)]
    total = 0

    class Server(Worker):
        async def run(self) -> None:
            for version in range(WORKERS * steps):
                number = await requests.get()
                await self.sleep(0.01)
                answers[number].put_nowait(version)

    class Client(Worker):
        def __init__(self, number: int) -> None:
            self.number = number

        async def run(self) -> None:
            nonlocal total
            number, pause, mine = self.number, compute_time(self.number), answers[self.number]
            for _ in range(steps):
                await self.sleep(pause)
                requests.put_nowait(number)
                version = await mine.get()
                total += version * (number + 1)

    sim.add_worker("server", Server)
    for number in range(WORKERS):
        sim.add_worker(f"client{number}", Client, number)
    sim.start()
    return sim.now, total


def server_simpy(steps: int) -> Checksum:
    env = simpy.Environment()
    requests = simpy.Store(env)
    answers = [simpy.Store(env) for _ in range(WORKERS)]
    total = 0

    def serve() -> Any:
        for version in range(WORKERS * steps):
            number = yield requests.get()
            yield env.timeout(0.01)
            answers[number].put(version)

    def client(number: int) -> Any:
        nonlocal total
        pause, mine = compute_time(number), answers[number]
        for _ in range(steps):
            yield env.timeout(pause)
            requests.put(number)
            version = yield mine.get()
            total += version * (number + 1)

    env.process(serve())
    for number in range(WORKERS):
        env.process(client(number))
    env.run()
    return env.now, total


# One server and 16 workers on a network with send and receive ports

TRANSFER = 0.05


def network(steps: int) -> Checksum:
    sim = Simulator()
    total = 0
    names = [f"client{number}" for number in range(WORKERS)]

    class Server(Worker):
        async def run(self) -> None:
            for version in range(WORKERS * steps):
                number = await self.recv()
                self.send(names[number], version, delay=TRANSFER)

    class Client(Worker):
        def __init__(self, number: int) -> None:
            self.number = number

        async def run(self) -> None:
            nonlocal total
            number, pause = self.number, compute_time(self.number)
            for _ in range(steps):
                await self.compute(pause)
                self.send("server", number, delay=TRANSFER)
                version = await self.recv()
                total += version * (number + 1)

    sim.add_worker("server", Server)
    for number, name in enumerate(names):
        sim.add_worker(name, Client, number)
    sim.start()
    return sim.now, total


class Node(NamedTuple):
    """A node in SimPy: a resource for each port, and a store for what has arrived."""

    send: simpy.Resource
    receive: simpy.Resource
    mailbox: simpy.Store


def network_simpy(steps: int) -> Checksum:
    env = simpy.Environment()
    total = 0

    def node() -> Node:
        return Node(simpy.Resource(env), simpy.Resource(env), simpy.Store(env))

    def transfer(source: Node, target: Node, data: Any) -> Any:
        with source.send.request() as sending:
            yield sending
            with target.receive.request() as receiving:
                yield receiving
                yield env.timeout(TRANSFER)
        target.mailbox.put(data)

    central = node()
    clients = [node() for _ in range(WORKERS)]

    def serve() -> Any:
        for version in range(WORKERS * steps):
            number = yield central.mailbox.get()
            env.process(transfer(central, clients[number], version))

    def client(number: int) -> Any:
        nonlocal total
        pause, mine = compute_time(number), clients[number]
        for _ in range(steps):
            yield env.timeout(pause)
            env.process(transfer(mine, central, number))
            version = yield mine.mailbox.get()
            total += version * (number + 1)

    env.process(serve())
    for number in range(WORKERS):
        env.process(client(number))
    env.run()
    return env.now, total


# Figure 7 of the paper: send with a delay, and do not wait


def delayed_sends(rounds: int) -> Checksum:
    sim = Simulator()
    total = 0

    class Ping(Worker):
        async def run(self) -> None:
            nonlocal total
            for number in range(rounds):
                self.send("pong", number, delay=0.125)
                answer = await self.recv()
                total += answer

    class Pong(Worker):
        async def run(self) -> None:
            for _ in range(rounds):
                number = await self.recv()
                self.send("ping", number + 1, delay=0.125)

    sim.add_worker("ping", Ping)
    sim.add_worker("pong", Pong)
    sim.start()
    return sim.now, total


def delayed_sends_simpy(rounds: int) -> Checksum:
    env = simpy.Environment()
    there, back = simpy.Store(env), simpy.Store(env)
    total = 0

    def deliver(store: simpy.Store, data: int, delay: float) -> Any:
        yield env.timeout(delay)
        store.put(data)

    def ping() -> Any:
        nonlocal total
        for number in range(rounds):
            env.process(deliver(there, number, 0.125))
            answer = yield back.get()
            total += answer

    def pong() -> Any:
        for _ in range(rounds):
            number = yield there.get()
            env.process(deliver(back, number + 1, 0.125))

    env.process(ping())
    env.process(pong())
    env.run()
    return env.now, total


class Program(NamedTuple):
    name: str
    unit: str
    ours: Callable[[int], Checksum]
    simpys: Callable[[int], Checksum]
    size: int
    units_per_size: int
    target: float


PROGRAMS = [
    Program("ping-pong through queues", "messages/s", ping_pong, ping_pong_simpy, 20_000, 2, 5.0),
    Program("64 processes sleep", "sleeps/s", timeouts, timeouts_simpy, 2_000, 64, 1.5),
    Program("server, 16 workers, queues", "steps/s", server, server_simpy, 1_000, 16, 4.5),
    Program("server, 16 workers, ports", "steps/s", network, network_simpy, 400, 16, 10.0),
    Program(
        "delayed sends (figure 7)", "messages/s", delayed_sends, delayed_sends_simpy, 15_000, 2, 5.5
    ),
]


class Row(NamedTuple):
    name: str
    unit: str
    ours: float
    simpy: float
    ratio: float
    target: float


def compare(program: Program, repeats: int) -> Row:
    """Run both versions in turn; return the medians of their rates and of the ratios."""
    ours, theirs = [], []
    for repeat in range(repeats + 1):
        (seconds, checksum), (seconds_simpy, checksum_simpy) = (
            timed(version, program.size) for version in (program.ours, program.simpys)
        )
        assert checksum == checksum_simpy, (program.name, checksum, checksum_simpy)
        if repeat:  # the first one warms up
            ours.append(program.size * program.units_per_size / seconds)
            theirs.append(program.size * program.units_per_size / seconds_simpy)
    ratio = median(a / b for a, b in zip(ours, theirs, strict=True))
    return Row(program.name, program.unit, median(ours), median(theirs), ratio, program.target)


def timed(version: Callable[[int], Checksum], size: int) -> tuple[float, Checksum]:
    start = time.perf_counter()
    checksum = version(size)
    return time.perf_counter() - start, checksum


# Without a counterpart in SimPy


class Idle(Worker):
    async def run(self) -> None:
        await self.recv()


@coroutine
def forever() -> Generator[None, None, None]:
    yield


async def bare() -> None:
    await forever()


def allocated(make: Callable[[], object]) -> int:
    """Return the bytes that are still allocated after `make`, as long as what it returns lives."""
    tracemalloc.start()
    made = make()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    del made
    return size


def idle_memory(workers: int = 10_000) -> tuple[float, float]:
    """Return the bytes of a worker that waits for a message, and those of its coroutine."""
    names = [f"idle{number}" for number in range(workers)]

    def wait() -> Simulator:
        sim = Simulator()
        for name in names:
            sim.add_worker(name, Idle, daemon=True)
        sim.start()
        return sim

    def wait_bare() -> list[Coroutine[Any, Any, None]]:
        coroutines = [bare() for _ in names]
        for waiting in coroutines:
            waiting.send(None)
        return coroutines

    with_coroutine, only_coroutine = allocated(wait) / workers, allocated(wait_bare) / workers
    return with_coroutine - only_coroutine, only_coroutine


def large(workers: int, steps: int) -> float:
    """Return the seconds that `workers` workers take for `steps` steps each against one server."""
    sim = Simulator()

    class Server(Worker):
        async def run(self) -> None:
            for _ in range(workers * steps):
                worker = await self.recv(tag="push")
                self.send(worker, None, delay=1e-5, tag="answer")

    class Client(Worker):
        async def run(self) -> None:
            duration = Lognormal(1.0, 0.1).sampler(self.rng)
            for _ in range(steps):
                await self.compute(duration())
                self.send("server", self.name, delay=1e-5, tag="push")
                await self.recv(tag="answer")

    start = time.perf_counter()
    sim.add_worker("server", Server)
    for number in range(workers):
        sim.add_worker(f"client{number}", Client)
    sim.start()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=9, help="runs of each version (9)")
    repeats = parser.parse_args().repeats
    print(f"{'program':28}{'engine':>12}{'SimPy':>12}  {'unit':12}{'ratio':>6}{'target':>8}")
    rows = []
    for program in PROGRAMS:
        rows.append(row := compare(program, repeats))
        print(
            f"{row.name:28}{row.ours:12,.0f}{row.simpy:12,.0f}  {row.unit:12}"
            f"{row.ratio:6.2f}{row.target:8.1f}"
        )
    ratios = ", ".join(f"{row.ratio:.1f}" for row in rows)
    store_result(AGAINST_SIMPY, f"{ratios} times as fast")
    worker, coroutine_bytes = idle_memory()
    print(f"idle worker: {worker:,.0f} bytes, and {coroutine_bytes:,.0f} of its coroutine")
    print(f"10,000 workers x 100 steps, one server: {large(10_000, 100):.1f} s")


if __name__ == "__main__":
    main()
