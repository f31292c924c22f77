"""States, sleep, wait and notify, cancel and interrupt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from paracosm.engine import Cancelled, Interrupt, Queue, Resource, Simulator, State, Worker
from paracosm.errors import InputError


def test_the_five_states() -> None:
    seen: list[State] = []

    class Subject(Worker):
        async def run(self) -> None:
            seen.append(self.state)
            await self.sleep(2)
            await self.wait()

    class Observer(Worker):
        async def run(self) -> None:
            await self.sleep(1)
            seen.append(subject.state)
            await self.sleep(2)
            seen.append(subject.state)
            subject.notify()
            seen.append(subject.state)
            await self.sleep(1)
            seen.append(subject.state)

    sim = Simulator()
    subject = sim.add_worker("subject", Subject)
    sim.add_worker("observer", Observer)
    seen.append(subject.state)
    sim.start()
    assert seen == [
        State.INITIAL,
        State.RUNNING,
        State.SLEEPING,
        State.WAITING,
        State.SLEEPING,  # it goes on at a known time: now
        State.DONE,
    ]


def test_notify_hands_over_a_value_and_is_lost_when_nobody_waits() -> None:
    got: list[object] = []

    class Waiter(Worker):
        async def run(self) -> None:
            await self.sleep(1)
            got.append(await self.wait())
            got.append(self.sim.now)

    class Notifier(Worker):
        async def run(self) -> None:
            got.append(waiter.notify("too early"))
            await self.sleep(5)
            got.append(waiter.notify("in time"))

    sim = Simulator()
    waiter = sim.add_worker("waiter", Waiter)
    sim.add_worker("notifier", Notifier)
    sim.start()
    assert got == [False, True, "in time", 5.0]


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf"), None])
def test_bad_durations_are_refused_where_they_are_awaited(value: float) -> None:
    class Sleeper(Worker):
        async def run(self) -> None:
            with pytest.raises(InputError, match="sleep: the duration must be a finite number"):
                await self.sleep(value)
            with pytest.raises(InputError, match="compute: the duration must be a finite number"):
                await self.compute(value)

    sim = Simulator()
    sim.add_worker("sleeper", Sleeper)
    sim.start()
    assert sim.now == 0


def test_times_are_floats_whatever_is_slept() -> None:
    np = pytest.importorskip("numpy")

    class Sleeper(Worker):
        async def run(self) -> None:
            await self.sleep(1)
            await self.sleep(np.float32(0.5))
            await self.compute(np.float64(1))

    sim = Simulator()
    sim.add_worker("sleeper", Sleeper)
    sim.start()
    assert sim.now == 2.5
    assert type(sim.now) is float


def act_at(time: float, act: Callable[[], object], sim: Simulator) -> None:
    sim.call_later(time, lambda _: act())


def test_interrupting_a_sleep() -> None:
    trace: list[object] = []

    class Sleeper(Worker):
        async def run(self) -> None:
            try:
                await self.sleep(100)
            except Interrupt as interrupt:
                trace.extend([interrupt.cause, self.sim.now])
            await self.sleep(1)
            trace.append(self.sim.now)

    sim = Simulator()
    sleeper = sim.add_worker("sleeper", Sleeper)
    act_at(3, lambda: sleeper.interrupt("enough"), sim)
    sim.start()
    assert trace == ["enough", 3, 4]
    assert sim.now == 4  # the abandoned sleep does not move the clock


def test_many_interrupted_sleeps_do_not_pile_up() -> None:
    class Sleeper(Worker):
        async def run(self) -> None:
            for _ in range(1000):
                with pytest.raises(Interrupt):
                    await self.sleep(1e6)

    class Rouser(Worker):
        async def run(self) -> None:
            for _ in range(1000):
                await self.sleep(1)
                sleeper.interrupt()

    sim = Simulator()
    sleeper = sim.add_worker("sleeper", Sleeper)
    sim.add_worker("rouser", Rouser)
    longest = 0

    def look() -> bool:
        nonlocal longest
        longest = max(longest, len(sim._events))
        return False

    sim.run(until=look)
    assert sim.now == 1000
    assert longest < 200


def test_cancel_cleans_up_and_is_no_error() -> None:
    trace: list[str] = []

    class Holder(Worker):
        async def run(self) -> None:
            try:
                async with resource:
                    await self.sleep(100)
            finally:
                trace.append(f"cleaned up at {self.sim.now:g}")

    class Next(Worker):
        async def run(self) -> None:
            async with resource:
                trace.append(f"next at {self.sim.now:g}")

    sim = Simulator()
    resource = Resource(sim)
    holder = sim.add_worker("holder", Holder)
    sim.add_worker("next", Next)
    act_at(2, holder.cancel, sim)
    sim.start()
    assert trace == ["cleaned up at 2", "next at 2"]
    assert holder.cancelled
    assert holder.state is State.DONE
    assert not holder.cancel()


def test_a_process_may_clean_up_for_a_while_before_it_is_cancelled() -> None:
    class Holder(Worker):
        async def run(self) -> None:
            try:
                await self.recv()
            except Cancelled:
                await self.sleep(3)
                raise

    sim = Simulator()
    holder = sim.add_worker("holder", Holder)
    act_at(2, holder.cancel, sim)
    sim.start()
    assert (sim.now, holder.cancelled) == (5, True)


def test_cancelling_a_worker_that_never_started() -> None:
    class Never(Worker):
        async def run(self) -> None:
            raise AssertionError

    class Canceller(Worker):
        async def run(self) -> None:
            late.cancel()

    sim = Simulator()
    early = sim.add_worker("early", Never)
    early.cancel()
    sim.add_worker("canceller", Canceller)
    late = sim.add_worker("late", Never)  # started, but has not run when it is cancelled
    sim.start()
    assert early.cancelled
    assert late.cancelled


def test_what_was_handed_over_is_not_lost_by_an_interrupt() -> None:
    """The item and the interrupt come at the same instant: first the item, then the interrupt."""
    trace: list[object] = []

    class Getter(Worker):
        async def run(self) -> None:
            trace.append(await queue.get())
            try:
                await queue.get()
            except Interrupt:
                trace.append("interrupted")
            trace.append(await queue.get())

    class Putter(Worker):
        async def run(self) -> None:
            await self.sleep(1)
            queue.put_nowait("first")
            getter.interrupt()
            await self.sleep(1)
            queue.put_nowait("second")

    sim = Simulator()
    queue: Queue[str] = Queue(sim)
    getter = sim.add_worker("getter", Getter)
    sim.add_worker("putter", Putter)
    sim.start()
    assert trace == ["first", "interrupted", "second"]


def test_interrupting_one_that_waits_takes_it_off_the_queue() -> None:
    got: list[tuple[str, str]] = []

    class Getter(Worker):
        async def run(self) -> None:
            try:
                got.append((self.name, await queue.get()))
            except Interrupt:
                got.append((self.name, "interrupted"))

    sim = Simulator()
    queue: Queue[str] = Queue(sim)
    a = sim.add_worker("a", Getter)
    sim.add_worker("b", Getter)
    act_at(1, a.interrupt, sim)
    act_at(2, lambda: queue.put_nowait("item"), sim)
    sim.start()
    assert got == [("a", "interrupted"), ("b", "item")]


def test_awaiting_a_process_gives_its_result() -> None:
    class Child(Worker):
        async def run(self) -> str:
            await self.sleep(2)
            return "grown"

    class Parent(Worker):
        async def run(self) -> tuple[str, str, float]:
            return await child, await child, self.sim.now

    sim = Simulator()
    child = sim.add_worker("child", Child)
    parent = sim.add_worker("parent", Parent)
    sim.start()
    assert parent.result == ("grown", "grown", 2.0)


def test_calls_out_of_place_say_what_to_do() -> None:
    class Idle(Worker):
        async def run(self) -> None:
            with pytest.raises(RuntimeError, match="idle cannot cancel itself"):
                self.cancel()
            with pytest.raises(InputError, match="only other can await it"):
                await other.wait()
            with pytest.raises(InputError, match="start it from outside"):
                self.sim.start()

    sim = Simulator()
    sim.add_worker("idle", Idle)
    other = sim.add_worker("other", Worker, daemon=True)
    with pytest.raises(InputError, match="only a process of a running simulation"):
        asyncio.run(other.recv())  # type: ignore[arg-type]
    other.cancel()
    sim.start()


def test_awaiting_something_foreign_is_an_error_at_that_place() -> None:
    class Foreign(Worker):
        async def run(self) -> None:
            await Strange()

    class Strange:
        def __await__(self):  # type: ignore[no-untyped-def]
            yield "a riddle"

    sim = Simulator()
    sim.add_worker("foreign", Foreign)
    with pytest.raises(InputError, match="awaited 'a riddle', which does not belong") as raised:
        sim.start()
    assert "foreign" in raised.value.__notes__[0]
