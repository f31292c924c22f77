"""The timeline and the log of a run."""

from __future__ import annotations

from typing import Any

import pytest

from paracosm.cluster import Link, star
from paracosm.cluster.link import Sharing
from paracosm.engine import Simulator, Worker
from paracosm.timeline import Timeline


class Server(Worker):
    async def run(self) -> None:
        for _ in range(2):
            transfer = await self.recv_transfer(tag="push")
            self.send(transfer.source, None, size=100, tag="answer")


def train(step: int) -> int:
    return step


class Client(Worker):
    async def run(self) -> None:
        await self.execute(train, 0, duration=1.0)
        self.send("server0", None, size=200, tag="push")
        await self.recv(tag="answer")
        await self.compute(0.5)


def run(
    timeline: Timeline | None = None, log: bool = False, sharing: Sharing = "serial"
) -> Simulator:
    cluster = star(workers=2, servers=1, link=Link(bandwidth=100, sharing=sharing))
    sim = Simulator(log=log, network=cluster, timeline=timeline)
    sim.add_worker("server0", Server)
    sim.add_worker("worker0", Client)
    sim.add_worker("worker1", Client)
    sim.start()
    return sim


def spans(timeline: Timeline, node: str) -> list[tuple[Any, ...]]:
    return sorted((s[3], s[4], s[1], s[2]) for s in timeline.spans if s[0] == node)


def test_every_compute_send_receive_and_wait_is_there() -> None:
    """By hand: both push at 1 for 2 s, one after the other; the answers take 1 s each."""
    timeline = Timeline()
    run(timeline)
    assert spans(timeline, "worker0") == [
        (0, 1, "compute", "train"),
        (1, 3, "send", "push"),
        (1, 4, "wait", "a message tagged answer"),
        (3, 4, "receive", "answer"),
        (4, 4.5, "compute", "compute"),
    ]
    assert spans(timeline, "worker1") == [
        (0, 1, "compute", "train"),
        (1, 6, "wait", "a message tagged answer"),
        (3, 5, "send", "push"),
        (5, 6, "receive", "answer"),
        (6, 6.5, "compute", "compute"),
    ]
    assert spans(timeline, "server0") == [
        (0, 3, "wait", "a message tagged push"),
        (1, 3, "receive", "push"),
        (3, 4, "send", "answer"),
        (3, 5, "receive", "push"),
        (3, 5, "wait", "a message tagged push"),
        (5, 6, "send", "answer"),
    ]


def test_transfers_that_share_a_port_lie_side_by_side() -> None:
    """By hand: both push at 1 at half of the rate, for 4 s; both answers take 2 s each, at once."""
    timeline = Timeline()
    assert run(timeline, sharing="fair").now == 7.5
    assert spans(timeline, "worker1") == [
        (0, 1, "compute", "train"),
        (1, 5, "send", "push"),
        (1, 7, "wait", "a message tagged answer"),
        (5, 7, "receive", "answer"),
        (7, 7.5, "compute", "compute"),
    ]
    assert [span for span in spans(timeline, "server0") if span[2] != "wait"] == [
        *[(1, 5, "receive", "push")] * 2,
        *[(5, 7, "send", "answer")] * 2,
    ]


@pytest.mark.parametrize("sharing", ["fair", "serial"])
def test_a_send_and_its_receive_share_a_flow(sharing: Sharing) -> None:
    timeline = Timeline()
    run(timeline, sharing=sharing)
    ends: dict[int, list[tuple[str, float, float]]] = {}
    for _, resource, _, begin, end, flow in timeline.spans:
        if resource in ("send", "receive"):
            ends.setdefault(flow, []).append((resource, begin, end))
        else:
            assert flow == -1
    assert len(ends) == 4
    for (first, *times), (second, *other_times) in ends.values():
        assert {first, second} == {"send", "receive"}
        assert times == other_times


def test_observing_changes_nothing() -> None:
    assert run().now == run(Timeline()).now == 6.5


@pytest.mark.parametrize("sharing", ["fair", "serial"])
def test_a_run_that_is_cut_short_records_what_went_on_and_goes_on(sharing: Sharing) -> None:
    whole, pieces = Timeline(), Timeline()
    run(whole, sharing=sharing)
    cluster = star(workers=2, servers=1, link=Link(bandwidth=100, sharing=sharing))
    sim = Simulator(network=cluster, timeline=pieces)
    sim.add_worker("server0", Server)
    sim.add_worker("worker0", Client)
    sim.add_worker("worker1", Client)
    for time in (0.5, 2, 4.25):
        sim.run(until=time)
        assert max(span[4] for span in pieces.spans) == time
    sim.start()

    def busy(timeline: Timeline) -> dict[tuple[str, str], float]:
        total: dict[tuple[str, str], float] = {}
        for node, resource, _, begin, end, _ in timeline.spans:
            total[node, resource] = total.get((node, resource), 0) + end - begin
        return total

    assert busy(pieces) == busy(whole)


def test_an_interrupted_computation_ends_when_it_was_interrupted() -> None:
    class Interrupted(Worker):
        async def run(self) -> None:
            try:
                await self.compute(10)
            except Exception:
                await self.sleep(1)
            await self.recv()

    timeline = Timeline()
    sim = Simulator(timeline=timeline)
    worker = sim.add_worker("w", Interrupted, daemon=True)
    sim.call_later(4, lambda _: worker.interrupt())
    sim.call_later(7, lambda _: worker.cancel())
    sim.start()
    assert spans(timeline, "w") == [(0, 4, "compute", "compute"), (5, 7, "wait", "a message")]


def test_the_log_has_a_line_for_every_event(capsys: pytest.CaptureFixture[str]) -> None:
    run(log=True)
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    text = [what for time, what in lines if time == "1.000000" or time == "3.000000"]
    assert text == [
        "worker0  waits for a message tagged answer",
        "worker1  waits for a message tagged answer",
        "server0  gets None tagged push from worker0",
        "server0  waits for a message tagged push",
    ]
    assert ["0.000000", "worker0  computes for 1 s"] in lines
    assert ["4.500000", "worker0  is done"] in lines
    assert ["4.000000", "worker0  gets None tagged answer from server0"] in lines
