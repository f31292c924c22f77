"""What all process groups of an emulated rank share: how a collective takes its time."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributed import Work

from paracosm.emulation.backend.threads import Completion, Filling, Sleeper, precise_timer
from paracosm.emulation.backend.values import Sent
from paracosm.emulation.backend.work import EmulatedWork, MeasuredWork, Waiting
from paracosm.emulation.communication import Communication
from paracosm.emulation.config import Setting
from paracosm.emulation.ports import Ports, Span
from paracosm.emulation.rank.call_site import NOWHERE, call_site
from paracosm.emulation.rank.observe import Waits
from paracosm.emulation.rank.refusals import refuser
from paracosm.emulation.records import GLOO_WORKERS, Collective, Group, Note, RecordWriter

if TYPE_CHECKING:
    from paracosm.emulation.backend.cuda import CudaStreams
    from paracosm.emulation.peers import Peers


_SMALL = 128 << 10  # bytes that are written faster than another thread is woken
_TOO_LONG, _TOO_LONG_SHARE = 1e-3, 0.1  # of the time that the model gives a collective


@dataclass(eq=False)
class _UnderWay:
    span: Span
    record: Callable[[float], None]  # records it, given when it was done
    filled: float | None = None  # when its outputs were; None while they are not

    def is_over(self, now: float) -> bool:
        return now == inf or (self.filled is not None and self.span.done <= now)


class Runtime:
    def __init__(
        self,
        setting: Setting,
        recorder: RecordWriter,
        communication: Communication,
        peers: Peers,
        waits: Waits,
        measures: bool = False,  # whether collectives take no time here, so that computing shows
    ) -> None:
        self.setting = setting
        self.recorder = recorder
        self.asked_backend = ""
        self.cpu_is_cuda = False  # whether the script asked for a device that the CPU stands for
        self.waiting = Waiting(Sleeper(), Completion(), recorder.flush, waits.add)
        self._waits = waits
        self._measures = measures
        self.sent = Sent(setting.seed)
        self.refuse = refuser(recorder, setting.rank, "not supported in backend mode")
        self._communication = communication
        self._peers = peers
        self._ports = Ports(setting.config.shared)
        self._under_way: deque[_UnderWay] = deque()
        self._filling = Filling()
        self._streams: dict[torch.device, CudaStreams] = {}
        self._lock = threading.Lock()
        self._warned: set[str] = set()
        self._process = 0

    def start(self) -> None:
        """Measure this machine's timers and start a thread; takes 60 ms, once."""
        if self._process:
            return
        self._process = os.getpid()
        if self._measures:
            return
        precise_timer()  # threads that this one starts inherit it
        self.waiting.sleeper.calibrate()
        self.waiting.completion.start()

    def close(self) -> None:
        if os.getpid() != self._process:  # a fork has no threads
            return
        for streams in self._streams.values():
            streams.collect(all_of_them=True)
        self.record_ended(inf)
        self.waiting.completion.close()
        self._filling.close()
        self.recorder.flush()

    def join(
        self, name: str, rank: int, members: Sequence[int], asked: str, timeout: float
    ) -> Member:
        self.start()
        if not self._warned:
            self._warned.add("")
            # threads that hold tensors must not outlive the interpreter; registered now, that is
            # done before what was registered at the start closes the records
            atexit.register(self.close)
        number = self.setting.config.comm_workers
        member = Member(name, rank, tuple(members), asked, timeout, number)
        self.recorder.append(
            Group(
                self.setting.rank, name, len(members), member.members, asked or "undefined", timeout
            )
        )
        return member

    def ask(
        self,
        member: Member,
        kind: str,  # as in `records.Collective`
        size: int,
        *,
        peer: int = -1,  # rank in the group of the root or the other end; -1 for none
        inputs: Sequence[Tensor] = (),  # what this rank gives
        outputs: Sequence[Tensor] = (),  # what it gets
        fill: Callable[[], None] | None = None,  # writes the outputs
    ) -> Work:
        asked = self._waits.now()
        other = member.members[peer] if peer >= 0 else -1
        site = call_site()
        first = outputs[0] if outputs else inputs[0] if inputs else None
        device = "cpu" if first is None else first.device.type
        where = "cuda" if self.cpu_is_cuda else device
        pool, count = member.pool(kind, peer, where)
        if self._measures:
            return self._measured(member, kind, size, peer, asked, site, outputs, fill, where)
        by_gloo = _comm_workers(member.asked, where) == GLOO_WORKERS
        whose = member.members, size, self.setting.rank, other
        cost = self._communication.cost(kind, *whose, by_gloo)
        with self._lock:
            number = member.count
            member.count += 1
            entered = self._peers.entered(kind, member.members, other, asked)

        def record(asked: float, entered: float, begun: float, done: float, worker: int) -> None:
            where = (self.setting.rank, member.name, number, kind, size, other)
            ended = Collective(*where, asked, entered, begun, done, worker, site)
            if too_long := ended.beyond(member.timeout):
                self._note_once("timeout", too_long)
            self.recorder.append(ended)

        if device == "cuda":
            assert first is not None
            late = entered - asked
            return self._streams_of(first.device).run(
                *(pool, count, late, cost, inputs, outputs, fill),
                lambda worker, asked, begun, done: record(asked, asked + late, begun, done, worker),
            )
        self.record_ended(asked)
        with self._lock:
            span = self._ports.ask(id(member), pool, count, asked, entered, cost)
            under_way = _UnderWay(
                span, lambda done: record(asked, entered, span.begun, done, span.worker)
            )
            self._under_way.append(under_way)
        work = EmulatedWork(self.waiting, span, outputs, peer)
        if fill is None:
            under_way.filled = asked
        elif _is_small(outputs, inputs):
            _fill_now(fill, outputs)
            under_way.filled = asked
        else:

            def fill_and_note() -> None:
                fill()
                under_way.filled = filled = time.monotonic()
                self._note_slowness(kind, size, site, span.done - asked, filled - span.done)

            self._filling.put(work.fill_later(fill_and_note))
        return work

    def _measured(
        self,
        member: Member,
        kind: str,
        size: int,
        peer: int,
        asked: float,
        site: str,
        outputs: Sequence[Tensor],
        fill: Callable[[], None] | None,
        where: str,
    ) -> Work:
        """Do a collective here and now, and record how long that took."""
        if any(output.device.type == "cuda" for output in outputs):
            raise self.refuse("--no-live with a CUDA device, which computes beside the host")
        with self._lock:
            number = member.count
            member.count += 1
        other = member.members[peer] if peer >= 0 else -1

        def waited(begin: float, end: float) -> None:
            self._waits.add(begin, end, member.name, number)

        work = MeasuredWork(replace(self.waiting, on_wait=waited), outputs, peer, self._waits.now)
        if fill is not None and not torch._C._len_torch_dispatch_stack():
            _fill_now(fill, outputs)
        elif fill is not None:
            self._filling.put(work.fill_later(fill))
            work.until_filled()
        what = (self.setting.rank, member.name, number, kind, size, other)
        times = (asked, asked, asked, self._waits.now())
        workers = _comm_workers(member.asked, where)
        self.recorder.append(Collective(*what, *times, -workers, site))
        return work

    def record_ended(self, now: float) -> None:
        """Record what has ended by an instant: until then its end may still move."""
        with self._lock:
            ended = [each for each in self._under_way if each.is_over(now)]
            if ended:
                self._under_way = deque(each for each in self._under_way if each not in ended)
        for each in ended:
            each.record(max(each.span.done, each.filled or 0.0))

    def _note_once(self, about: str, text: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            self.recorder.append(Note(self.setting.rank, False, text))

    def _streams_of(self, device: torch.device) -> CudaStreams:
        streams = self._streams.get(device)
        if streams is None:
            from paracosm.emulation.backend.cuda import CudaStreams

            streams = self._streams[device] = CudaStreams(
                device, self.waiting.on_wait, self.setting.config.shared, self.refuse
            )
        return streams

    def _note_slowness(
        self, kind: str, size: int, site: str, modelled: float, longer: float
    ) -> None:
        if modelled > 0 and longer > max(_TOO_LONG, _TOO_LONG_SHARE * modelled):
            self._note_once(
                "slow",
                f"{kind} of {size:,} bytes at {site or NOWHERE}: filling its outputs "
                f"took this machine {1e3 * longer:.1f} ms longer than the {1e3 * modelled:.1f} ms "
                "that the model gives it; so it may be with others",
            )


def _fill_now(fill: Callable[[], None], outputs: Sequence[Tensor]) -> None:
    if any(output.is_inference() for output in outputs):
        with torch.inference_mode():  # nowhere else may they be written
            fill()
    else:
        fill()


def _is_small(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> bool:
    """Whether outputs are best filled here and now.

    A thread whose operations are watched, for a profile or a count, fills none: they would be taken
    for the script's.
    """
    moved = sum([tensor.nbytes for tensor in outputs])
    if inputs is not outputs:
        moved = max(moved, sum([tensor.nbytes for tensor in inputs]))
    return moved <= _SMALL and not torch._C._len_torch_dispatch_stack()


@dataclass
class Member:
    name: str
    rank: int
    members: tuple[int, ...]  # global ranks of all
    asked: str  # backend that the script asked for, as "gloo" or "cpu:gloo,cuda:nccl"
    timeout: float  # seconds after which a collective of a real group fails
    comm_workers: int | None  # that the user wants; None for those of the backend asked for
    count: int = 0  # of collectives so far

    def pool(self, kind: str, peer: int, device: str) -> tuple[object, int]:
        """Return which comm workers take a collective, and how many there are.

        Messages with one peer wait for each other and for nothing else: gloo needs no comm worker
        for them, NCCL has a stream for each pair. `device` is the type of the tensors' device.
        """
        if kind in ("send", "recv"):
            return (id(self), kind, peer), 1
        return (id(self), device), self.comm_workers or _comm_workers(self.asked, device)


def _comm_workers(asked: str, device: str) -> int:
    asked = asked.lower()
    if ":" in asked:
        asked = dict(pair.split(":", 1) for pair in asked.split(",")).get(device, "")
    if asked in ("", "undefined"):
        asked = "gloo" if device == "cpu" else "nccl"
    return GLOO_WORKERS if asked == "gloo" else 1
