"""Futures, any and all; queues, resources, barriers."""

from __future__ import annotations

from typing import Any

import pytest

from paracosm.engine import (
    Barrier,
    DeadlockError,
    Future,
    FutureCancelledError,
    Queue,
    Resource,
    Simulator,
)
from paracosm.errors import InputError


def play(sim: Simulator, *bodies: Any) -> None:
    for body in bodies:
        sim.spawn(body)
    sim.start()


def test_all_who_await_a_future_go_on_when_it_is_set_in_their_order() -> None:
    sim = Simulator()
    future = sim.future()
    trace: list[Any] = []

    async def waiter(name: str) -> None:
        trace.append((name, await future, sim.now))

    async def setter() -> None:
        await sim.timeout(2)
        future.set_result("value")
        trace.append("set")
        with pytest.raises(RuntimeError, match="is done already"):
            future.set_result("other")

    play(sim, waiter("a"), waiter("b"), setter())
    assert trace == ["set", ("a", "value", 2), ("b", "value", 2)]
    assert future.result() == "value"


def test_a_future_may_fail_or_be_cancelled() -> None:
    sim = Simulator()
    fails, cancelled = sim.future("the answer"), sim.future("the question")
    with pytest.raises(RuntimeError, match="the answer has no result yet"):
        fails.result()

    async def waiter() -> None:
        with pytest.raises(KeyError):
            await fails
        with pytest.raises(FutureCancelledError, match="the question was cancelled"):
            await cancelled

    sim.call_later(1, lambda _: fails.set_exception(KeyError("no")))
    sim.call_later(2, lambda _: cancelled.cancel())
    play(sim, waiter())
    assert (sim.now, cancelled.cancelled, fails.cancelled, cancelled.cancel()) == (
        2,
        True,
        False,
        False,
    )


def test_any_and_all() -> None:
    sim = Simulator()
    soon, late = sim.timeout(1, "soon"), sim.timeout(3, "late")
    trace: list[Any] = []

    async def child() -> str:
        await sim.timeout(2)
        return "child"

    async def waiter() -> None:
        process = sim.spawn(child())
        first = await sim.any(late, process, soon)
        trace.append((first is soon, sim.now))
        trace.append((await sim.any(late, process) is process, sim.now))
        trace.append((await sim.all(late, soon, process), sim.now))
        trace.append((await sim.all(), await sim.any(soon) is soon))

    play(sim, waiter())
    assert trace == [(True, 1), (True, 2), (["late", "soon", "child"], 3), ([], True)]


def test_all_fails_with_the_first_failure_and_any_with_the_first_done() -> None:
    sim = Simulator()
    bad = sim.future()
    good = sim.timeout(5)

    async def waiter(together: Future) -> None:
        with pytest.raises(KeyError):
            await together
        assert sim.now == 1

    sim.call_later(1, lambda _: bad.set_exception(KeyError()))
    play(sim, waiter(sim.all(good, bad)), waiter(sim.any(good, bad)))


def test_what_would_be_lost_cannot_be_combined() -> None:
    sim = Simulator()
    queue: Queue[int] = Queue(sim)
    with pytest.raises(InputError, match=r"give a coroutine to Simulator\.spawn"):
        sim.any(queue.get())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least one thing"):
        sim.any()


def test_a_queue_is_fifo_for_items_and_for_processes() -> None:
    sim = Simulator()
    queue: Queue[int] = Queue(sim)
    got: list[tuple[str, int]] = []

    async def getter(name: str) -> None:
        got.append((name, await queue.get()))

    async def late_putter() -> None:
        await sim.timeout(1)
        for item in range(3):
            queue.put_nowait(item)
        assert len(queue) == 1

    play(sim, getter("a"), getter("b"), late_putter())
    assert got == [("a", 0), ("b", 1)]
    assert (queue.get_nowait(), len(queue)) == (2, 0)
    with pytest.raises(InputError, match="is empty"):
        queue.get_nowait()


def test_a_bounded_queue_makes_putters_wait() -> None:
    sim = Simulator()
    queue: Queue[int] = Queue(sim, capacity=2, name="belt")
    times: list[tuple[str, int, float]] = []

    async def putter() -> None:
        for item in range(4):
            await queue.put(item)
            times.append(("put", item, sim.now))
        with pytest.raises(InputError, match="belt is full"):
            queue.put_nowait(9)

    async def getter() -> None:
        await sim.timeout(5)
        for _ in range(2):
            times.append(("got", await queue.get(), sim.now))
            await sim.timeout(1)

    play(sim, putter(), getter())
    assert times == [
        ("put", 0, 0),
        ("put", 1, 0),
        ("got", 0, 5),
        ("put", 2, 5),
        ("got", 1, 6),
        ("put", 3, 6),
    ]


def test_a_resource_is_handed_on_in_order_even_after_an_exception() -> None:
    sim = Simulator()
    resource = Resource(sim, capacity=2)
    spans: list[tuple[str, float, float]] = []

    async def user(name: str, duration: float, fails: bool = False) -> None:
        try:
            async with resource:
                began = sim.now
                await sim.timeout(duration)
                spans.append((name, began, sim.now))
                if fails:
                    raise ValueError
        except ValueError:
            pass

    play(sim, user("a", 2, fails=True), user("b", 3), user("c", 1), user("d", 1))
    assert spans == [("a", 0, 2), ("b", 0, 3), ("c", 2, 3), ("d", 3, 4)]
    assert resource.held == 0
    with pytest.raises(InputError, match="released more often"):
        resource.release()


def test_a_barrier_lets_all_go_on_together_again_and_again() -> None:
    sim = Simulator()
    barrier = Barrier(sim, 3)
    trace: list[tuple[float, str, int]] = []

    async def party(name: str, pause: float) -> None:
        for _ in range(2):
            await sim.timeout(pause)
            trace.append((sim.now, name, await barrier.wait()))

    play(sim, party("a", 1), party("b", 3), party("c", 2))
    # The time in each entry is that of the arrival; the order of entries is that of going on.
    assert trace == [(3, "b", 2), (1, "a", 0), (2, "c", 1), (6, "b", 2), (4, "a", 0), (5, "c", 1)]


@pytest.mark.parametrize("kind", [Queue, Resource, Barrier])
def test_sizes_below_one_are_refused(kind: Any) -> None:
    with pytest.raises(InputError, match="1"):
        kind(Simulator(), 0)


def test_a_deadlock_report_knows_queues_resources_and_barriers() -> None:
    sim = Simulator()
    queue: Queue[int] = Queue(sim, capacity=1, name="the belt")
    resource = Resource(sim, name="the crane")
    barrier = Barrier(sim, 3, name="the gate")

    async def get() -> None:
        await Queue(sim, name="the shelf").get()

    async def put() -> None:
        queue.put_nowait(0)
        await queue.put(1)

    async def hold() -> None:
        await resource.acquire()
        await resource.acquire()

    async def meet() -> None:
        await barrier.wait()

    with pytest.raises(DeadlockError) as raised:
        play(sim, get(), put(), hold(), meet())
    assert [what for _, what in raised.value.waiting] == [
        "an item of the shelf",
        "room in the belt",
        "the crane",
        "the gate (1 of 3 are there)",
    ]
