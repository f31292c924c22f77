"""What all process groups of an emulated rank share: it gives collectives their time."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed import Work
from torch.distributed import distributed_c10d as c10d
from torch.utils._python_dispatch import _disable_current_modes

from paracosm.emulation.backend.checks import library_of
from paracosm.emulation.backend.threads import Completion, Sleeper, precise_timer
from paracosm.emulation.backend.values import Sent
from paracosm.emulation.backend.work import EmulatedWork, MeasuredWork, Waiting
from paracosm.emulation.communication import Communication
from paracosm.emulation.config import Setting
from paracosm.emulation.ports import Ports, Span
from paracosm.emulation.rank.call_site import call_site
from paracosm.emulation.rank.messages import Messages
from paracosm.emulation.rank.observe import Waits
from paracosm.emulation.rank.pipelines import Neighbours
from paracosm.emulation.rank.refusals import refuser
from paracosm.emulation.rank.scatters import Parts
from paracosm.emulation.records import GLOO_WORKERS, Collective, Group, Note, RecordWriter

if TYPE_CHECKING:
    from paracosm.emulation.backend.cuda import CudaStreams
    from paracosm.emulation.peers import Peers


@dataclass(eq=False)
class _UnderWay:
    span: Span
    record: Callable[[float], None]  # records it, given when it was done


class GroupRuntime(ABC):
    """What process groups ask of the rank that they are in."""

    def __init__(
        self,
        setting: Setting,
        recorder: RecordWriter,
        refuse: Callable[[str], Exception],
        messages: Messages | None = None,  # of ranks that are run one after the other
    ) -> None:
        self.setting = setting
        self.messages = messages
        self.recorder = recorder
        self.refuse = refuse
        self.asked_backend = ""
        self.cpu_is_cuda = False  # whether the script asked for a device that the CPU stands for
        self.sent = Sent(setting.seed)
        self.parts = Parts()
        self.neighbours: Neighbours | None = None  # of a pipeline's stages
        self._notes: set[str] = set()

    def start(self) -> None:  # noqa: B027 - not every runtime has something to prepare
        """Prepare for the first group."""

    def note(self, text: str) -> None:
        """Record, once, what a user should know of the values."""
        if text not in self._notes:
            self._notes.add(text)
            self.recorder.append(Note(self.setting.rank, False, text))

    def may_receive(self, like: Tensor, source: int | None) -> bool:
        """Whether a rank, or any one, may have sent something like a tensor."""
        if self.messages is None:
            return self.sent.has(like)
        if source is None:
            return False
        if not self.messages.has_next(source):
            self.wait_for_rank(source)
        return self.messages.has_next(source)

    def wait_for_rank(self, source: int) -> None:
        """End the script until another rank has run, unless it has, or waits for this one."""
        if self.messages is not None and self.messages.wait_for(source):
            self.recorder.flush()
            raise SystemExit(0)

    def assume_shape(self, source: int) -> None:
        """Note that a rank is taken to send what this one sends."""
        if self.messages is not None:
            self.messages.assumes.add(source)

    def pass_on(self, tensor: Tensor, target: int) -> None:  # noqa: B027 - most keep nothing
        """Keep what is sent for a rank that is run later."""

    def passed_on(self, like: Tensor, source: int) -> Tensor | None:
        """Return what a rank that was run before has sent; None where that is not known."""
        return None

    @abstractmethod
    def join(
        self, name: str, rank: int, members: Sequence[int], asked: str, timeout: float
    ) -> Member:
        """Return this rank's membership of a new group."""

    @abstractmethod
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
        on_end: Callable[[], None] | None = None,  # called as it is waited for
    ) -> Work:
        """Begin a collective, and return its handle."""


class Runtime(GroupRuntime):
    def __init__(
        self,
        setting: Setting,
        recorder: RecordWriter,
        communication: Communication,
        peers: Peers,
        waits: Waits,
        measures: bool = False,  # whether collectives take no time here, so that computing shows
    ) -> None:
        refuse = refuser(recorder, setting.rank, "not supported in backend mode")
        messages = None
        if setting.messages is not None:
            messages = Messages(setting.messages, setting.rank)
        super().__init__(setting, recorder, refuse, messages)
        if messages is not None:
            self.neighbours = RecordedNeighbours(self, messages)
        self.waiting = Waiting(Sleeper(), Completion(), recorder.flush, waits.add)
        self._waits = waits
        self._measures = measures
        self._communication = communication
        self._peers = peers
        self._ports = Ports(setting.config.shared)
        self._under_way: deque[_UnderWay] = deque()
        self._streams: dict[torch.device, CudaStreams] = {}
        self._lock = threading.Lock()
        self._has_warned = False
        self._process = 0

    def start(self) -> None:
        """Measure this machine's timers and start a thread, once; takes 60 ms. It ends at exit."""
        if self._process:
            return
        self._process = os.getpid()
        # A thread that completes futures must not outlive the interpreter: that aborts the process.
        # What was registered before this, the end of the records, is called after it.
        atexit.register(self.close)
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
        if self.messages is not None:
            self.messages.save()
        self.waiting.completion.close()
        self.recorder.flush()

    def pass_on(self, tensor: Tensor, target: int) -> None:
        if self.messages is not None:
            self.messages.send(target, tensor if _is_told(tensor) else None)

    def passed_on(self, like: Tensor, source: int) -> Tensor | None:
        return None if self.messages is None else self.messages.receive(source, like)

    def join(
        self, name: str, rank: int, members: Sequence[int], asked: str, timeout: float
    ) -> Member:
        self.start()
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
        kind: str,
        size: int,
        *,
        peer: int = -1,
        inputs: Sequence[Tensor] = (),
        outputs: Sequence[Tensor] = (),
        fill: Callable[[], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> Work:
        asked = self._waits.now()
        other = member.members[peer] if peer >= 0 else -1
        site = call_site()
        first = outputs[0] if outputs else inputs[0] if inputs else None
        device = "cpu" if first is None else first.device.type
        where = "cuda" if self.cpu_is_cuda else device
        pool, count = member.pool(kind, peer, where)
        if self._measures:
            work = self._measured(member, kind, size, peer, asked, site, outputs, fill, where)
            return _ending(work, on_end, outputs)
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
            too_long = ended.beyond(member.timeout)
            if too_long and not self._has_warned:
                self._has_warned = True
                self.recorder.append(Note(self.setting.rank, False, too_long))
            self.recorder.append(ended)

        if device == "cuda":
            assert first is not None
            late = entered - asked
            fills = [function for function in (fill, on_end) if function is not None]
            fill = partial(call_all, fills) if fills else None  # a stream waits for nobody
            return self._streams_of(first.device).run(
                *(pool, count, late, cost, inputs, outputs, fill),
                lambda worker, asked, begun, done: record(asked, asked + late, begun, done, worker),
            )
        self.record_ended(asked)
        with self._lock:
            span = self._ports.ask(id(member), pool, count, asked, entered, cost)
            self._under_way.append(
                _UnderWay(span, lambda done: record(asked, entered, span.begun, done, span.worker))
            )
        _fill_now(fill, outputs)
        return _ending(EmulatedWork(self.waiting, span, outputs, peer), on_end, outputs)

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
    ) -> EmulatedWork:
        """Do a collective at once, and record how long that took."""
        if any(output.device.type == "cuda" for output in outputs):
            flag = "--no-live" if self.setting.messages is None else "--kinds"
            raise self.refuse(
                f"use {flag} with a CUDA device, which computes in parallel with the host"
            )
        with self._lock:
            number = member.count
            member.count += 1
        other = member.members[peer] if peer >= 0 else -1

        def waited(begin: float, end: float) -> None:
            self._waits.add(begin, end, member.name, number)

        work = MeasuredWork(replace(self.waiting, on_wait=waited), outputs, peer, self._waits.now)
        _fill_now(fill, outputs)
        identity = (self.setting.rank, member.name, number, kind, size, other)
        times = (asked, asked, asked, self._waits.now())
        workers = _comm_workers(member.asked, where)
        self.recorder.append(Collective(*identity, *times, -workers, site))
        return work

    def record_ended(self, now: float) -> None:
        """Record what has ended by an instant; before that, its end may still move."""
        with self._lock:
            ended = [work for work in self._under_way if work.span.done <= now]
            if ended:
                self._under_way = deque(work for work in self._under_way if work not in ended)
        for work in ended:
            work.record(work.span.done)

    def _streams_of(self, device: torch.device) -> CudaStreams:
        streams = self._streams.get(device)
        if streams is None:
            from paracosm.emulation.backend.cuda import CudaStreams

            streams = self._streams[device] = CudaStreams(
                device, self.waiting.on_wait, self.setting.config.shared, self.refuse
            )
        return streams


class RecordedNeighbours:
    """What a stage of a pipeline learns of those of ranks that are run before or after it."""

    def __init__(self, runtime: GroupRuntime, messages: Messages) -> None:
        self._runtime, self._messages = runtime, messages

    def has_next(self, source: int) -> bool:
        return self._messages.has_next(source)

    def expect(self, source: int, message: Any) -> None:
        if isinstance(message, Tensor):
            self._messages.expect(source, [message])
            return
        data, size = c10d._object_to_tensor(message, torch.device("cpu"), None)  # type: ignore[no-untyped-call]
        self._messages.expect(source, [size, data])

    def shaped_like(self, source: int, sent: Any) -> Any:
        """Take the outputs of the stage before for like those of a stage of this rank."""
        if sent is None:
            self._runtime.wait_for_rank(source)
            raise self._runtime.refuse("the shape of what a stage of a pipeline receives")
        self._runtime.assume_shape(source)
        return sent


MOST_TOLD = 65_536  # numbers of a message that a rank which is run later receives


def _is_told(tensor: Tensor) -> bool:
    """Whether a message is kept for a rank that is run later: whole numbers, bytes, flags."""
    is_real = tensor.is_floating_point() or tensor.is_complex()
    return not is_real and tensor.numel() <= MOST_TOLD


def call_all(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        function()


def _ending(
    work: EmulatedWork, on_end: Callable[[], None] | None, outputs: Sequence[Tensor]
) -> EmulatedWork:
    work.on_end = on_end and partial(_fill_now, on_end, outputs)
    return work


def _fill_now(fill: Callable[[], None] | None, outputs: Sequence[Tensor]) -> None:
    """Fill outputs, unseen by whoever observes operations for a profile or a count."""
    with contextlib.ExitStack() as stack:
        if torch._C._len_torch_dispatch_stack():
            stack.enter_context(_disable_current_modes())
        if any(output.is_inference() for output in outputs):
            stack.enter_context(torch.inference_mode())  # nowhere else may they be written
        if fill is not None:
            fill()


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
        """Return the pool of comm workers for a collective, and its size.

        Messages with one peer wait only for each other: gloo needs no comm worker for them, NCCL
        has a stream for each pair. `device` is the type of the tensors' device.
        """
        if kind in ("send", "recv"):
            return (id(self), kind, peer), 1
        return (id(self), device), self.comm_workers or _comm_workers(self.asked, device)


def _comm_workers(asked: str, device: str) -> int:
    return GLOO_WORKERS if library_of(asked, device) == "gloo" else 1
