"""Receiving: by source and by tag, with time-outs, without waiting."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from paracosm.engine import Simulator, Worker
from paracosm.errors import InputError

Program = Callable[[Worker], Coroutine[Any, Any, None]]


class Actor(Worker):
    def __init__(self, program: Program) -> None:
        self.program = program

    async def run(self) -> None:
        await self.program(self)


def play(**programs: Program) -> Simulator:
    sim = Simulator()
    for name, program in programs.items():
        sim.add_worker(name, Actor, program)
    sim.start()
    return sim


def sends(*messages: tuple[float, Any, Any]) -> Program:
    """Send to "r", at the given times, data with tags; each takes no time."""

    async def program(self: Worker) -> None:
        for time, data, tag in messages:
            await self.sleep(time - self.sim.now)
            self.send("r", data, tag=tag)

    return program


def test_by_source_and_by_tag_in_the_order_of_arrival() -> None:
    got: list[Any] = []

    async def receiver(self: Worker) -> None:
        await self.sleep(10)
        got.append(await self.recv(tag="b"))
        got.append(await self.recv(source="t"))
        got.append(await self.recv(source="s", tag="b"))
        got.append(await self.recv())
        got.append(await self.recv())

    play(
        r=receiver,
        s=sends((1, "s1a", "a"), (2, "s2b", "b"), (4, "s4b", "b")),
        t=sends((3, "t3b", "b"), (5, "t5a", "a")),
    )
    assert got == ["s2b", "t3b", "s4b", "s1a", "t5a"]


def test_waiting_for_a_source_leaves_the_others_messages() -> None:
    got: list[Any] = []

    async def receiver(self: Worker) -> None:
        got.append((await self.recv(source="t"), self.sim.now))
        got.append((await self.recv(), self.sim.now))

    play(r=receiver, s=sends((1, "s", None)), t=sends((2, "t", None)))
    assert got == [("t", 2), ("s", 2)]


def test_two_processes_wait_at_one_mailbox_first_come_first_served() -> None:
    got: list[tuple[str, Any, float]] = []

    async def listener(self: Worker, name: str, tag: str | None) -> None:
        got.append((name, await self.recv(tag=tag), self.sim.now))

    async def receiver(self: Worker) -> None:
        self.sim.spawn(listener(self, "x", "x"))
        self.sim.spawn(listener(self, "any", None))
        self.sim.spawn(listener(self, "x again", "x"))

    play(r=receiver, s=sends((1, 1, "y"), (2, 2, "x"), (3, 3, "x")))
    assert got == [("any", 1, 1), ("x", 2, 2), ("x again", 3, 3)]


def test_a_message_that_comes_after_the_time_out_is_not_lost() -> None:
    got: list[Any] = []

    async def receiver(self: Worker) -> None:
        with pytest.raises(TimeoutError, match="r waited 1 s in vain for a message from s "):
            await self.recv("s", "b", timeout=1)
        got.append(self.sim.now)
        await self.sleep(5)
        got.append(await self.recv())

    play(r=receiver, s=sends((2, "late", "b")))
    assert got == [1, "late"]


def test_a_message_at_the_very_instant_of_the_time_out_is_not_lost() -> None:
    """What was scheduled first happens first: the first message, and then the second time-out."""
    got: list[Any] = []

    async def receiver(self: Worker) -> None:
        got.append(await self.recv(timeout=1))
        try:
            await self.recv(timeout=1)
        except TimeoutError:
            got.append("time-out")
        got.append(self.recv_nb())
        await self.sleep(0)
        got.append(await self.recv())

    async def sender(self: Worker) -> None:
        self.send("r", "first", delay=1)
        await self.sleep(1.5)
        await self.sleep(0.5)
        self.send("r", "second", delay=0)

    sim = Simulator()
    sim.add_worker("s", Actor, sender)
    sim.add_worker("r", Actor, receiver)
    sim.start()
    assert got == ["first", "time-out", None, "second"]


def test_a_time_out_that_was_not_needed_does_not_move_the_clock() -> None:
    async def receiver(self: Worker) -> None:
        await self.recv(timeout=1000)

    assert play(r=receiver, s=sends((1, "in time", None))).now == 1


def test_recv_nb_and_its_name_in_the_paper() -> None:
    got: list[Any] = []

    async def receiver(self: Worker) -> None:
        got.append(self.recv_nb(default="nothing"))
        await self.sleep(2)
        got.append(self.recvNB(tag="b"))
        got.append(self.recvNB())
        got.append(self.recvNB())

    play(r=receiver, s=sends((1, 1, "a"), (1, 2, "b")))
    assert got == ["nothing", 2, 1, None]


def test_a_transfer_knows_where_it_comes_from_and_can_be_awaited() -> None:
    times: list[Any] = []

    async def sender(self: Worker) -> None:
        transfer = self.send("r", "data", delay=2, size=10, tag="t")
        assert (await transfer) is transfer
        times.append(self.sim.now)
        await transfer  # again: it has arrived
        times.append(self.sim.now)

    async def receiver(self: Worker) -> None:
        transfer = await self.recv_transfer()
        times.append((transfer.source, transfer.target, transfer.tag, transfer.size, transfer.data))
        times.append((transfer.began, transfer.arrived))

    play(s=sender, r=receiver)
    assert sorted(times, key=str) == [("s", "r", "t", 10, "data"), (0, 2), 2, 2]


def test_compute_unless_a_message_comes() -> None:
    trace: list[Any] = []

    async def receiver(self: Worker) -> None:
        trace.append((await self.compute_unless(1, tag="stop"), self.sim.now))
        trace.append((await self.compute_unless(9, tag="stop"), self.sim.now))
        trace.append((await self.compute_unless(9, tag="stop"), self.sim.now))
        trace.append(await self.recv(tag="stop"))
        trace.append(await self.recv())
        trace.append(self.compute_time)

    sim = play(r=receiver, s=sends((2, "other", None), (3, "now", "stop")))
    assert trace == [(True, 1), (False, 3), (False, 3), "now", "other", 3]
    assert sim.now == 3


def test_unknown_names_are_answered_with_the_nearest() -> None:
    async def program(self: Worker) -> None:
        with pytest.raises(InputError, match='unknown worker "servr": did you mean "server"'):
            self.send("servr", None)
        with pytest.raises(InputError, match='unknown worker "servr": did you mean "server"'):
            await self.recv(source="servr")
        with pytest.raises(InputError, match="the size must be finite"):
            self.send("server", size=float("nan"))

    play(server=program)
