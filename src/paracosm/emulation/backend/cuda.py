"""Collectives of CUDA tensors: their time passes on streams, so that overlap is real there too.

A comm worker is a stream. A collective waits there for the work that the script's stream had been
given before it, and lasts as long as one-thread kernels that spin: one on a stream of the comm
worker for the fixed part of its cost, one on a stream of the link for the busy part, so that
transfers take turns on a link. Transfers that should share the link instead are refused. Outputs
are filled on the comm worker's stream meanwhile. The host never blocks; begins and ends are read
from events afterwards.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.distributed import Work

from paracosm.cluster.link import Sharing
from paracosm.emulation.backend.work import WaitedWork
from paracosm.emulation.cost import Cost, directions

_WARM_UP, _MEASURED = 50_000_000, 20_000_000  # cycles
_LEAST_SPIN = 100e-6  # seconds of a spin from which the clock rate is learnt
_LEARN = 0.05
_REBASE = 1.0  # seconds: events tell milliseconds in 32 bits
_LEAST_WAIT = 5e-6  # seconds: what two events with nothing in between may be apart


@dataclass(frozen=True)
class Lane:
    number: int
    stream: Any
    timer: Any


@dataclass
class _Transfer:
    """A transfer on a link: its comm worker, its end, and whether the script waits for it."""

    lane: int
    over: Any
    is_awaited: bool = False


@dataclass(frozen=True)
class _Pending:
    asked: Any  # events
    begun: Any
    done: Any
    spin: tuple[Any, Any, float] | None  # begin, end, seconds that it should take
    tell: Callable[[float, float, float], None]  # when asked, begun, done (`time.monotonic`)


class CudaStreams:
    def __init__(
        self,
        device: torch.device,
        on_wait: Callable[[float, float], None],
        sharing: Sharing,  # how what is on a link at one time should have it
        refuse: Callable[[str], Exception],  # returns the error for what cannot be
    ) -> None:
        """Measure the device's clock rate, which takes 50 ms."""
        self.device = device
        self._on_wait = on_wait
        self._sharing = sharing
        self._refuse = refuse
        self._on_links: dict[str, list[_Transfer]] = {}  # by direction
        self._lanes: dict[object, list[Lane]] = {}
        self._turn: dict[object, int] = {}
        self._links: defaultdict[str, Any] = defaultdict(_stream)  # by direction
        self._pending: deque[_Pending] = deque()
        self._waits: deque[tuple[Any, Any]] = deque()
        self._lock = threading.RLock()  # backward passes run in other threads than the script
        with torch.cuda.device(device):
            self._rate = self._clock_rate()
            self._base = _event()
            self._base.record()
            self._base.synchronize()
            self._base_time = time.monotonic()

    def run(
        self,
        pool: object,  # which comm workers: of a group, or of the messages with a peer of it
        count: int,  # how many the pool has
        late: float,  # seconds by which the last of the other members comes later
        cost: Cost,
        inputs: Sequence[Tensor],  # of the collective, which must live until it is done
        outputs: Sequence[Tensor],
        fill: Callable[[], None] | None,  # writes the outputs
        # Told afterwards which comm worker had it, and when it was asked for, begun and done.
        tell: Callable[[int, float, float, float], None],
    ) -> Work:
        self.collect()
        with self._lock, torch.cuda.device(self.device):
            current = torch.cuda.current_stream()
            lane = self._next_lane(pool, count)
            entry = current.record_event(_event())
            lane.stream.wait_event(entry)
            begun = lane.stream.record_event(_event())
            over, spin, transfer = self._pass_time(lane, begun, late + cost.fixed, cost)
            with torch.cuda.stream(lane.stream), torch.inference_mode():
                if fill is not None:
                    fill()
                for tensor in (*inputs, *outputs):
                    tensor.record_stream(lane.stream)
                lane.stream.wait_event(over)
                done = lane.stream.record_event(_event())
                future: torch.futures.Future[Any] = torch.futures.Future(devices=[self.device])
                future.set_result(list(outputs))  # done when the events that it records here are
            if not torch.cuda.is_current_stream_capturing():  # events of graphs cannot be queried
                self._pending.append(_Pending(entry, begun, done, spin, partial(tell, lane.number)))
        return CudaWork(self, done, future, outputs, transfer)

    def waited(self, begin: Any, end: Any) -> None:
        """Record a stretch between two events in which the script's stream only waited."""
        if not torch.cuda.is_current_stream_capturing():
            self._waits.append((begin, end))

    def collect(self, *, all_of_them: bool = False) -> None:
        if all_of_them:
            torch.cuda.synchronize(self.device)
        with self._lock:
            while self._pending and _is_over(self._pending[0].done):
                self._tell(self._pending.popleft())
            while self._waits and _is_over(self._waits[0][1]):
                begin, end = (self._time_of(event) for event in self._waits.popleft())
                if end - begin > _LEAST_WAIT:
                    self._on_wait(begin, end)

    def _tell(self, done: _Pending) -> None:
        asked = self._time_of(done.asked)
        if done.spin is not None:
            self._learn(*done.spin)
        done.tell(asked, self._time_of(done.begun), self._time_of(done.done))
        if asked - self._base_time > _REBASE:
            self._base, self._base_time = done.asked, asked

    def _next_lane(self, pool: object, count: int) -> Lane:
        lanes = self._lanes.get(pool)
        if lanes is None:
            first = sum(len(others) for others in self._lanes.values())
            lanes = [Lane(first + i, _stream(), _stream()) for i in range(count)]
            self._lanes[pool] = lanes
        turn = self._turn[pool] = self._turn.get(pool, -1) + 1
        return lanes[turn % count]

    def _pass_time(
        self, lane: Lane, begun: Any, fixed: float, cost: Cost
    ) -> tuple[Any, tuple[Any, Any, float] | None, _Transfer]:
        """Return the event at the end, the spin to learn the clock rate from, and the transfer."""
        over, spin = begun, None
        if fixed > 0:
            over, spin = self._spin(lane.timer, over, fixed)
        ways = directions(cost.link)
        if cost.busy > 0:
            self._check_alone(lane, cost)
            first, *others = [self._links[way] for way in ways] or [lane.timer]
            for other in others:
                first.wait_event(other.record_event(_event()))
            over, spin = self._spin(first, over, cost.busy)
            for other in others:
                other.wait_event(over)
        transfer = _Transfer(lane.number, over)
        for way in ways if cost.busy > 0 else ():
            self._on_links[way].append(transfer)
        if cost.after > 0:
            over, spin = self._spin(lane.timer, over, cost.after)
        return over, spin, transfer

    def _check_alone(self, lane: Lane, cost: Cost) -> None:
        """Refuse transfers that may have to share a link: streams can only take turns."""
        for way in directions(cost.link):
            under_way = self._on_links.setdefault(way, [])
            under_way[:] = [
                transfer
                for transfer in under_way
                if not (transfer.is_awaited or _is_over(transfer.over))
            ]
            if self._sharing != "serial" and any(
                transfer.lane != lane.number for transfer in under_way
            ):
                raise self._refuse(
                    f"sharing: {self._sharing}, for collectives of several groups under way at one "
                    "time on a CUDA device, which take turns there (--sharing serial)"
                )

    def _spin(self, stream: Any, after: Any, seconds: float) -> tuple[Any, tuple[Any, Any, float]]:
        stream.wait_event(after)
        with torch.cuda.stream(stream):
            begin = stream.record_event(_event())
            _spin(int(seconds * self._rate))
            end = stream.record_event(_event())
        return end, (begin, end, seconds)

    def _time_of(self, event: Any) -> float:
        return self._base_time + float(self._base.elapsed_time(event)) * 1e-3

    def _learn(self, begin: Any, end: Any, seconds: float) -> None:
        """Adjust the clock rate, which changes as the device warms up."""
        if seconds >= _LEAST_SPIN:
            took = float(begin.elapsed_time(end)) * 1e-3
            if 0.5 < took / seconds < 2:
                self._rate *= 1 + _LEARN * (seconds / took - 1)

    def _clock_rate(self) -> float:
        begin, end = _event(), _event()
        _spin(_WARM_UP)
        begin.record()
        _spin(_MEASURED)
        end.record()
        end.synchronize()
        return _MEASURED / (float(begin.elapsed_time(end)) * 1e-3)


class CudaWork(WaitedWork):
    """A collective under way on streams: waiting for it makes the current stream wait."""

    def __init__(
        self,
        streams: CudaStreams,
        done: Any,
        future: torch.futures.Future[Any],
        outputs: Sequence[Tensor],
        transfer: _Transfer,
    ) -> None:
        super().__init__()
        self._transfer = transfer
        self._streams = streams
        self._done = done
        self._future = future
        self._outputs = list(outputs)

    def wait(self, timeout: timedelta | None = None) -> bool:
        current = torch.cuda.current_stream(self._streams.device)
        begin = current.record_event(_event())
        current.wait_event(self._done)
        self._transfer.is_awaited = True
        self._streams.waited(begin, current.record_event(_event()))
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        return self._future

    def is_completed(self) -> bool:
        return _is_over(self._done)

    def result(self) -> list[Tensor]:
        return self._outputs


def _is_over(event: Any) -> bool:
    """Whether an event has passed; False while a graph is captured, when it cannot be queried."""
    return not torch.cuda.is_current_stream_capturing() and bool(event.query())


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _stream() -> Any:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def _spin(cycles: int) -> None:
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
