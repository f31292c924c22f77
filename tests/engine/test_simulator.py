"""Who takes part, how long it runs, and how it fails."""

from __future__ import annotations

import re
import subprocess
import sys
import traceback
from typing import Any

import pytest

from paracosm.cluster import Link, star
from paracosm.engine import Barrier, DeadlockError, Queue, Resource, Simulator, Worker
from paracosm.errors import InputError


class Ticker(Worker):
    """Notes the time every second, `ticks` times."""

    def __init__(self, ticks: int = 5) -> None:
        self.ticks = ticks
        self.seen: list[float] = []

    async def run(self) -> None:
        for _ in range(self.ticks):
            await self.sleep(1)
            self.seen.append(self.sim.now)


class Patient(Worker):
    async def run(self) -> None:
        await self.recv(source="server", tag="answer")


def test_run_until_a_time_includes_it_and_can_go_on() -> None:
    sim = Simulator()
    ticker = sim.add_worker("ticker", Ticker)
    sim.run(until=2)
    assert (ticker.seen, sim.now) == ([1, 2], 2)
    sim.run(until=3.5)
    assert (ticker.seen, sim.now) == ([1, 2, 3], 3.5)
    sim.run(until=100)
    assert (ticker.seen, sim.now) == ([1, 2, 3, 4, 5], 5)  # nothing happens after 5


def test_run_until_a_condition_a_process_a_future_or_a_transfer() -> None:
    sim = Simulator()
    ticker = sim.add_worker("ticker", Ticker)
    other = sim.add_worker("other", Ticker, 3)
    sim.run(until=lambda: len(ticker.seen) == 2)
    assert (sim.now, len(other.seen)) in ((2, 1), (2, 2))
    sim.run(until=other)
    assert sim.now == 3
    sim.run(until=sim.timeout(0.5))
    assert sim.now == 3.5
    sim.run(until=other.send("ticker", delay=0.25))
    assert sim.now == 3.75
    sim.run()
    assert sim.now == 5


def test_the_end_of_an_earlier_run_does_not_stop_a_later_one() -> None:
    sim = Simulator()
    sim.add_worker("ticker", Ticker)
    sim.call_later(0.5, lambda _: sim.stop())
    sim.run(until=sim.timeout(2))
    assert sim.now == 0.5
    sim.start()
    assert sim.now == 5


def test_stop_ends_the_run_and_another_run_goes_on() -> None:
    class Stopper(Worker):
        async def run(self) -> None:
            await self.sleep(2.5)
            self.sim.stop()
            self.sim.stop()
            await self.sleep(0.25)

    sim = Simulator()
    ticker = sim.add_worker("ticker", Ticker)
    sim.add_worker("server", Stopper)
    sim.add_worker("patient", Patient, daemon=True)
    sim.run(until=50)
    assert (sim.now, ticker.seen) == (2.5, [1, 2])
    sim.start()
    assert sim.now == 5


def test_a_stopped_run_is_no_deadlock() -> None:
    class Stopper(Worker):
        async def run(self) -> None:
            self.sim.stop()

    sim = Simulator()
    sim.add_worker("server", Stopper)
    sim.add_worker("patient", Patient)
    sim.start()


def test_an_exception_brings_the_name_the_time_and_its_traceback() -> None:
    class Unlucky(Worker):
        async def run(self) -> None:
            await self.sleep(1.5)
            self.stumble()

        def stumble(self) -> None:
            raise ZeroDivisionError("a stone")

    sim = Simulator()
    sim.add_worker("unlucky", Unlucky)
    sim.add_worker("ticker", Ticker)
    with pytest.raises(ZeroDivisionError) as raised:
        sim.start()
    text = "".join(traceback.format_exception(raised.value))
    assert "in stumble" in text
    assert "raised in unlucky at the virtual time 1.5 s" in text
    assert sim.now == 1.5
    with pytest.raises(InputError, match="make a new Simulator"):
        sim.start()


def test_a_deadlock_is_reported_with_who_waits_for_what() -> None:
    class Blocked(Worker):
        async def run(self) -> None:
            await self.sleep(2)
            await self.sim.future("the end of the world")

    sim = Simulator()
    sim.add_worker("server", Ticker, 1)
    sim.add_worker("patient", Patient)
    sim.add_worker("blocked", Blocked)
    sim.add_worker("idle server", Patient, daemon=True)
    with pytest.raises(DeadlockError) as raised:
        sim.start()
    assert raised.value.time == 2
    assert raised.value.waiting == (
        ("patient", "a message from server tagged answer"),
        ("blocked", "the end of the world"),
    )
    assert "patient waits for a message from server tagged answer" in str(raised.value)
    assert "daemon=True" in str(raised.value)


def test_daemons_may_wait_at_the_end() -> None:
    sim = Simulator()
    sim.add_worker("server", Ticker, 2)
    sim.add_worker("patient", Patient, daemon=True)
    sim.start()
    assert sim.now == 2


def test_workers_can_join_a_running_simulation() -> None:
    class Founder(Worker):
        async def run(self) -> None:
            await self.sleep(3)
            self.child = self.sim.add_worker("child", Ticker, 2)

    sim = Simulator()
    founder = sim.add_worker("founder", Founder)
    sim.start()
    assert founder.child.seen == [4, 5]


def test_a_function_may_make_the_worker() -> None:
    sim = Simulator()
    ticker = sim.add_worker("ticker", lambda ticks: Ticker(ticks), 2)
    sim.start()
    assert (ticker.name, ticker.seen) == ("ticker", [1, 2])


def test_the_names_of_the_paper() -> None:
    sim = Simulator()
    sim.addWorker("ticker", Ticker, ticks=1)
    sim.start()
    assert sim.now == 1


def test_a_worker_knows_its_name_before_its_init() -> None:
    class Curious(Worker):
        def __init__(self) -> None:
            self.greeting = f"{self.name} at {self.sim.now}"

        async def run(self) -> None:
            pass

    assert Simulator().add_worker("cat", Curious).greeting == "cat at 0.0"


def test_calls_out_of_place_are_refused_with_advice() -> None:
    class NotAsync(Worker):
        def run(self) -> None:  # type: ignore[override]
            pass

    sim = Simulator()
    ticker = sim.add_worker("ticker", Ticker)
    with pytest.raises(InputError, match='a worker called "ticker" already'):
        sim.add_worker("ticker", Ticker)
    with pytest.raises(InputError, match="int is not a subclass of Worker"):
        sim.add_worker("number", int)
    with pytest.raises(InputError, match="which is not a Worker"):
        sim.add_worker("number", lambda: 3)
    with pytest.raises(InputError, match="takes part already"):
        sim.add_worker("again", lambda: ticker)
    with pytest.raises(InputError, match="spawn takes a coroutine"):
        sim.spawn(ticker.run)
    sim.run(until=1)
    with pytest.raises(InputError, match=r"until 0\.5 s is past, it is 1 s"):
        sim.run(until=0.5)
    sim.start()
    with pytest.raises(InputError, match="has run to its end, at 5 s: make a new Simulator"):
        sim.start()
    sim.add_worker("not async", NotAsync)
    with pytest.raises(InputError, match=r"NotAsync\.run must be an `async def`"):
        sim.run()


def test_events_at_the_same_time_go_in_the_order_of_their_scheduling() -> None:
    order: list[str] = []
    sim = Simulator()
    for name in "cab":
        sim.call_later(1, order.append, name)
    sim.call_later(0.5, lambda _: sim.call_later(0.5, order.append, "last"))
    sim.start()
    assert order == ["c", "a", "b", "last"]


def test_what_an_event_wakes_up_runs_before_the_next_event() -> None:
    order: list[str] = []

    class Waiter(Worker):
        async def run(self) -> None:
            await self.wait()
            order.append("woken")

    sim = Simulator()
    waiter = sim.add_worker("waiter", Waiter)
    sim.call_later(1, lambda _: waiter.notify())
    sim.call_later(1, order.append, "next event")
    sim.start()
    assert order == ["woken", "next event"]


def test_a_cancelled_timer_neither_calls_nor_moves_the_clock() -> None:
    called: list[object] = []
    sim = Simulator()
    timer = sim.call_later(10, called.append)
    sim.call_later(1, lambda _: timer.cancel())
    sim.start()
    assert (called, sim.now, timer.cancel()) == ([], 1, False)


PROGRAM = """
import sys
from paracosm.cluster import Link, star
from paracosm.engine import Simulator, Worker
from paracosm.timeline import Timeline
from paracosm.timing import parse_distribution

cluster = star(workers=5, servers=1, link=Link(bandwidth=1e6, latency=1e-3))
times = parse_distribution("lognormal(20ms, 0.5)")

class Server(Worker):
    async def run(self):
        for _ in range(100):
            transfer = await self.recv_transfer(tag="push")
            self.send(transfer.source, None, size=3e4, tag="answer")

class Client(Worker):
    async def run(self):
        for _ in range(20):
            await self.execute(int, duration=times)
            self.send("server0", None, size=3e4, tag="push")
            await self.recv(tag="answer")

timeline = Timeline()
sim = Simulator(network=cluster, timeline=timeline, seed=7)
for name in cluster.servers:
    sim.add_worker(name, Server)
for name in cluster.workers:
    sim.add_worker(name, Client)
sim.start()
for span in timeline.spans:
    print(*span[:3], span[3].hex(), span[4].hex(), span[5])
"""


def test_same_seed_same_timeline_to_the_bit_whatever_the_hashes() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2024")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) > 500


def test_adding_a_worker_changes_nobody_elses_random_numbers() -> None:
    def draws(workers: int) -> list[Any]:
        sim = Simulator(seed=3)
        added = [sim.add_worker(f"w{i}", Ticker) for i in range(workers)]
        return [worker.rng.random() for worker in added]

    assert draws(3) == draws(5)[:3]
    assert len(set(draws(5))) == 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda me: me.send("b", "x", delay=10**400), "the delay must be a finite number"),
        (lambda me: me.send("b", "x", delay=1, size="1MB"), "the size must be finite"),
        (lambda me: me.send(["b"], "x", delay=1), "worker: give a name, not a value of type list"),
        (lambda me: me.use_link("b", 5), "the link must be a Link, not 5"),
        (lambda me: me.sim.timeout(None), "timeout: the delay must be a finite number"),
        (lambda me: me.sim.add_worker(5, Worker), "the name must be a text, not 5"),
        (lambda me: me.sim.add_worker("c", 5), "add_worker: 5 is not a subclass of Worker"),
        (lambda me: Queue(me.sim, capacity=1.5), "the capacity must be a whole number"),
        (lambda me: Resource(me.sim, capacity=None), "the capacity must be a whole number"),
        (lambda me: Barrier(me.sim, "2"), "the number of parties must be a whole number"),
        (lambda me: Link(bandwidth=None), "bandwidth must be above 0, not None"),
        (lambda me: Link(latency="1ms"), "latency must be finite and 0 or more, not '1ms'"),
        (lambda me: Link(bandwidth=10**400), "bandwidth must be above 0, not 1000"),
        (lambda me: Simulator(seed=0.5), "the seed must be a whole number, not 0.5"),
        (lambda me: me.sim.future().set_exception(5), "give an exception, not 5"),
        (lambda me: star(workers=10**30), "workers: a cluster has 1,000,000 nodes at most"),
        (lambda me: star(workers=2.5), "workers: give their number, not 2.5"),
        (lambda me: star(servers=None), "servers: give their number, not None"),
    ],
)
def test_an_argument_of_another_type_is_named(call: Any, message: str) -> None:
    class Caller(Worker):
        async def run(self) -> None:
            with pytest.raises(InputError, match=re.escape(message)):
                call(self)

    sim = Simulator()
    sim.add_worker("a", Caller)
    sim.add_worker("b", Caller)
    sim.start()


@pytest.mark.parametrize("duration", [None, "soon", [1], 1j])
def test_a_function_that_returns_no_duration_is_refused(duration: Any) -> None:
    class Caller(Worker):
        async def run(self) -> None:
            await self.execute(len, "abc", duration=lambda: duration)

    sim = Simulator()
    sim.add_worker("a", Caller)
    with pytest.raises(InputError, match="execute: the duration must be a finite number"):
        sim.start()
