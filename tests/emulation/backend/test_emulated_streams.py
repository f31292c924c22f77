"""Collectives of CUDA tensors: on a device where there is one, and on streams made of numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from emulated_world import world_of

from paracosm.cluster.link import Sharing
from paracosm.emulation.backend.cuda import CudaStreams
from paracosm.emulation.cost import Cost
from paracosm.emulation.records import Collective, Wait

MS = 1e-3
RATE = 1.7e9  # cycles/s


class Event:
    """When the work before it on a stream is over, in seconds of the device."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = Stream.current.free

    def elapsed_time(self, other: Event) -> float:
        return (other.at - self.at) * 1e3

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class Stream:
    """Does one thing after the other; `free` is when it is through with what it has."""

    current: Stream

    def __init__(self) -> None:
        self.free = 0.0

    def record_event(self, event: Event) -> Event:
        event.at = self.free
        return event

    def wait_event(self, event: Event) -> None:
        self.free = max(self.free, event.at)

    def compute(self, seconds: float) -> None:
        self.free += seconds


class Given:
    """Stands for a tensor."""

    def __init__(self) -> None:
        self.used_on: list[Stream] = []

    def record_stream(self, stream: Stream) -> None:
        self.used_on.append(stream)


@contextlib.contextmanager
def on(stream: Stream) -> Iterator[None]:
    before, Stream.current = Stream.current, stream
    yield
    Stream.current = before


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """Make torch.cuda one of numbers, and return the stream that the script computes on."""

    def spin(cycles: int) -> None:
        Stream.current.compute(cycles / RATE)

    Stream.current = Stream()
    plain = torch.futures.Future
    monkeypatch.setattr(torch.futures, "Future", lambda devices: plain())
    for name, by in {
        "Event": Event,
        "Stream": Stream,
        "_sleep": spin,
        "stream": on,
        "current_stream": lambda device=None: Stream.current,
        "device": lambda device: contextlib.nullcontext(),
        "synchronize": lambda device: None,
        "is_current_stream_capturing": lambda: False,
    }.items():
        monkeypatch.setattr(torch.cuda, name, by)
    return Stream.current


class Device:
    """A device of numbers, on which collectives are asked for."""

    def __init__(self, sharing: Sharing = "serial") -> None:
        self.waits: list[tuple[float, float]] = []
        self.told: list[tuple[int, float, float, float]] = []
        device = torch.device("cuda", 0)
        self.streams = CudaStreams(
            device, lambda *wait: self.waits.append(wait), sharing, NotImplementedError
        )

    def ask(self, cost: Cost, pool: str = "0", count: int = 1, late: float = 0.0) -> Any:
        def tell(worker: int, asked: float, begun: float, done: float) -> None:
            self.told.append((worker, asked, begun, done))

        tensor: Any = Given()
        return self.streams.run(pool, count, late, cost, [tensor], [tensor], None, tell)

    def spans(self) -> list[tuple[float, float]]:
        """Return when each collective was begun and done, in milliseconds after the first began."""
        self.streams.collect(all_of_them=True)
        first = self.told[0][2]
        return [((begun - first) / MS, (done - first) / MS) for _, _, begun, done in self.told]


def test_one_stream_adds_up_and_two_share_a_link(script: Stream):
    one, two = Device(), Device()
    for _ in range(3):
        one.ask(Cost(1 * MS, 2 * MS, "nic"))
    assert one.spans() == [pytest.approx(span) for span in [(0, 3), (3, 6), (6, 9)]]
    for _ in range(3):
        two.ask(Cost(1 * MS, 2 * MS, "nic"), count=2)
    assert two.spans() == [pytest.approx(span) for span in [(0, 3), (0, 5), (3, 7)]]
    assert [worker for worker, *_ in two.told] == [0, 1, 0]


def test_a_collective_holds_both_directions_of_a_link(script: Stream):
    device = Device()
    for pool, link in (("send", "nic out"), ("recv", "nic in"), ("all", "nic")):
        device.ask(Cost(0.0, 2 * MS, link), pool)
    device.ask(Cost(0.0, 1 * MS, "nic in"), "recv")
    done = [done for _, done in device.spans()]
    assert done == pytest.approx([2.0, 2.0, 4.0, 5.0], rel=1e-3)


def test_collectives_overlap_computing_until_they_are_waited_for(script: Stream):
    device = Device()
    begin = script.free
    work = device.ask(Cost(5 * MS, 0.0))
    script.compute(3 * MS)
    work.wait()
    assert script.free - begin == pytest.approx(5 * MS)
    script.compute(1 * MS)
    later = device.ask(Cost(1 * MS, 0.0), pool="another")
    script.compute(4 * MS)
    later.wait()
    assert script.free - begin == pytest.approx(10 * MS)  # the last one was hidden
    assert device.spans() == [pytest.approx(span) for span in [(0, 5), (6, 7)]]
    ((wait_begin, wait_end),) = device.waits
    assert wait_end - wait_begin == pytest.approx(2 * MS)


def test_a_late_member_and_the_script_itself_are_waited_for(script: Stream):
    device = Device()
    script.compute(2 * MS)
    work = device.ask(Cost(1 * MS, 0.0), late=4 * MS)
    work.wait()
    ((begun, done),) = device.spans()
    assert (begun, done) == (0, pytest.approx(5))
    _, asked, begun, _ = device.told[0]
    assert script.free - begun == pytest.approx(script.free - asked)


def test_what_may_have_to_share_a_link_is_refused_by_name(
    script: Stream, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Event, "query", lambda event: False)  # nothing is over yet
    device = Device("fair")
    works = [device.ask(Cost(0.0, 2 * MS, f"nic {way}"), way) for way in ("out", "in")]
    device.ask(Cost(1 * MS, 0.0, "nic"), "another")  # needs no link
    device.ask(Cost(0.0, 1 * MS, "nic out"), "out")  # one after the other, of one comm worker
    with pytest.raises(NotImplementedError, match="sharing: fair, for collectives of several"):
        device.ask(Cost(0.0, 1 * MS, "nic in"), "another")
    works[1].wait()  # from here on what the script asks for comes after that
    device.ask(Cost(0.0, 1 * MS, "nic in"), "another")
    Device("serial").ask(Cost(0.0, 1 * MS, "nic"), "another")


def test_no_event_is_looked_at_while_a_graph_is_captured(
    script: Stream, monkeypatch: pytest.MonkeyPatch
):
    def fails(event: Event) -> bool:
        raise RuntimeError("operation not permitted when stream is capturing")

    device = Device()
    device.ask(Cost(1 * MS, 0.0)).wait()
    with monkeypatch.context() as capturing:
        capturing.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        capturing.setattr(Event, "query", fails)
        captured = device.ask(Cost(2 * MS, 1 * MS, "nic"))
        captured.wait()
        assert not captured.is_completed()
    assert device.spans() == [pytest.approx((0, 1))]  # those of a graph have no time of their own


def test_the_clock_rate_is_measured_and_followed(script: Stream, monkeypatch: pytest.MonkeyPatch):
    device = Device()
    slower = RATE / 1.2  # a device that got warm
    monkeypatch.setattr(
        torch.cuda, "_sleep", lambda cycles: Stream.current.compute(cycles / slower)
    )
    for _ in range(200):
        device.ask(Cost(1 * MS, 0.0)).wait()
    begun, done = device.spans()[-1]
    assert done - begun == pytest.approx(1, rel=0.01)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="NO CUDA DEVICE: STREAMS ARE NOT TESTED")
def test_streams_of_a_device(tmp_path: Path):
    with world_of(4, tmp_path, asked="nccl") as world:
        world.communication.costs = Cost(5e-3, 5e-3, "nic")
        tensor = torch.ones(1000, device="cuda")
        works = [dist.all_reduce(tensor, async_op=True) for _ in range(3)]
        works[-1].wait()
        assert torch.equal(tensor, torch.full_like(tensor, 64.0))
        value = works[0].get_future().wait()
        assert value[0].device.type == "cuda"
        dist.barrier()
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
        dist.all_reduce(tensor)
        records = world.of(Collective)
        lasted = [record.done - record.begun for record in records if record.kind == "all_reduce"]
        assert lasted[:3] == pytest.approx([10e-3] * 3, rel=0.2)
        assert world.of(Wait)
