"""Collectives of tensors on a device that is not there.

Process groups come to `RecordingRuntime.ask`, as every emulated group does. Functional collectives
of fake tensors never reach their group: PyTorch works out their shapes alone, so that without this
the communication of tensor parallelism would be missing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed import ReduceOp, Work
from torch.distributed import distributed_c10d as c10d
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_flatten

from paracosm.emulation.backend import values
from paracosm.emulation.backend.runtime import GroupRuntime, Member, RecordedNeighbours
from paracosm.emulation.backend.work import WaitedWork
from paracosm.emulation.config import Setting
from paracosm.emulation.device.assumptions import BALANCED
from paracosm.emulation.device.choices import busiest
from paracosm.emulation.device.recording import COLLECTIVE, HOST, WAIT, Call
from paracosm.emulation.device.state import Device
from paracosm.emulation.device.values import MOST_KNOWN, Values
from paracosm.emulation.rank.messages import Messages
from paracosm.emulation.records import Group, RecordWriter
from paracosm.graphs.graph import Op

FUNCTIONAL = frozenset({"_c10d_functional", "_c10d_functional_autograd"})

_BUFFERED = ("all_gather", "reduce_scatter", "all_reduce")
_WORK = "_paracosm_work"  # the attribute of a result's storage: the number of its collective
_SHAPES = "stages of a pipeline have outputs of one shape"
_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


class RecordingRuntime(GroupRuntime):
    """Gives collectives no time: what they are, and who waits for them, is recorded."""

    def __init__(
        self,
        setting: Setting,
        recorder: RecordWriter,
        refuse: Callable[[str], Exception],
        device: Device,
        messages: Messages,
    ) -> None:
        super().__init__(setting, recorder, refuse, messages)
        self._messages = messages
        self.neighbours = RecordedNeighbours(self, messages)
        self._writer, self._streams, self._known = device.writer, device.streams, device.values
        self._memory, self._device = device.memory, device
        self._count = 0
        self._last_sent: dict[Any, Tensor | None] = {}
        self._awaited: list[tuple[int, bool]] = []  # by the end of the backward pass under way
        self._callbacks: Any = None  # the stream on which callbacks of collectives run

    def join(
        self, name: str, rank: int, members: Sequence[int], asked: str, timeout: float
    ) -> Member:
        member = Member(name, rank, tuple(members), asked, timeout, None)
        self._writer.groups[name] = member.members
        rank_of_job = self.setting.rank
        backend = asked or "undefined"
        self.recorder.append(
            Group(rank_of_job, name, len(members), member.members, backend, timeout)
        )
        return member

    def note(self, text: str) -> None:
        self._writer.notes[text] = None

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
        tensors = (*inputs, *outputs)
        is_on_device = any(isinstance(tensor, FakeTensor) for tensor in tensors)
        if not tensors:  # a barrier
            is_on_device = "nccl" in member.asked or not member.asked
        other = member.members[peer] if peer >= 0 else -1
        self._writer.groups[member.name] = member.members
        stream = self._streams.current if is_on_device else HOST
        if kind == "all_to_all":
            size = most_exchanged(inputs, outputs)
        number = self.record(Call(kind, size, member.name, other), stream)
        if is_on_device:
            if self._device.graph is not None:
                ranks, phase = len(member.members), self._device.phase
                self._device.graph.leave_out(kind, size, ranks, phase, inputs, outputs)
            self._memory.read(tensors, is_compiled=False)
            if kind in _BUFFERED:
                whole = outputs if kind == "all_gather" else inputs
                self._memory.call(
                    [tensor for tensor in whole if not tensor.requires_grad], "collectives"
                )
            self._keep_values(kind, other, inputs, outputs, len(member.members), fill)
        else:
            with _disable_current_modes():
                for function in (fill, on_end):
                    if function is not None:
                        function()
                self._pass_on(kind, other, inputs, outputs)
        return RecordedWork(self, number, outputs, is_on_device, peer)

    def record(self, call: Call, stream: int) -> int:
        """Record a collective, and return its number."""
        number = self.next_number()
        code = self._writer.call_code(call)
        self._writer.add(COLLECTIVE, stream, code=code, number=number)
        return number

    def next_number(self) -> int:
        """Return the number of a new collective."""
        self._count += 1
        return self._count - 1

    def assume_shape(self, source: int) -> None:
        super().assume_shape(source)
        self._known.assume(_SHAPES)

    def wait(self, number: int, is_on_device: bool) -> None:
        """Record that the current stream, or the host, waits for a collective."""
        self._writer.add(WAIT, self._streams.current if is_on_device else HOST, number=number)

    def wait_at_end_of_backward(self, number: int, is_on_device: bool) -> None:
        """Record a wait when the backward pass under way has ended, if there is one.

        That is where DistributedDataParallel waits: in a callback that it queues behind this one,
        when its last bucket is full.
        """
        if torch._C._current_graph_task_id() == -1:
            return
        if not self._awaited:
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ended)
        self._awaited.append((number, is_on_device))

    def _backward_ended(self) -> None:
        awaited, self._awaited = self._awaited, []
        for number, is_on_device in awaited:
            self.wait(number, is_on_device)
        if self._callbacks is not None:
            self._streams.Stream(stream_id=self._streams.current).wait_stream(self._callbacks)

    @contextlib.contextmanager
    def stream_of_callbacks(self, number: int, is_on_device: bool) -> Iterator[None]:
        """Be on the stream of what follows a collective."""
        if not is_on_device:
            self.wait(number, is_on_device)
            yield
            return
        if self._callbacks is None:
            self._callbacks = self._streams.Stream()
        with self._callbacks:
            self.wait(number, is_on_device)
            yield

    def _pass_on(
        self, kind: str, other: int, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> None:
        """Give and take messages of tensors of the host."""
        for tensor in inputs if kind == "send" else ():
            self._messages.send(other, tensor if tensor.numel() <= MOST_KNOWN else None)
        for tensor in outputs if kind == "recv" else ():
            value = self._messages.receive(other, tensor)
            if value is not None:
                tensor.data.copy_(value)

    def _keep_values(
        self,
        kind: str,
        other: int,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        ranks: int,
        fill: Callable[[], None] | None,
    ) -> None:
        """Let outputs have the values that they have where every rank holds what this one holds.

        Messages have those that were sent, where their sender was recorded before.
        """
        if kind == "send":
            for tensor in inputs:
                value = self._known.known(tensor)
                self._last_sent[tensor.shape, tensor.dtype] = (
                    value if value is None else value.clone()
                )
                self._messages.send(other, value)
        elif kind == "recv":
            for tensor in outputs:
                value = self._messages.receive(other, tensor)
                if value is None:
                    value = self._last_sent.get((tensor.shape, tensor.dtype))
                if value is None:
                    self._known.forget([tensor])
                else:
                    self._known.keep(tensor, value)
        elif fill is not None:
            follow_collective(self._device, kind, inputs, outputs, ranks, fill)


def follow_collective(
    device: Device,
    kind: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    ranks: int,
    fill: Callable[[], None],
) -> None:
    """Let outputs have the values that `fill` gives them, so far as those of inputs are known."""
    known = device.values
    if all(known.known(tensor) is None for tensor in inputs):
        known.forget(outputs)
        return
    if kind == "all_to_all" and _exchange_uneven_counts(known, inputs, outputs, ranks):
        return
    device.is_silent = True
    try:
        with torch.no_grad():
            fill()
    finally:
        device.is_silent = False


def _exchange_uneven_counts(
    known: Values, inputs: Sequence[Tensor], outputs: Sequence[Tensor], ranks: int
) -> bool:
    """Receive numbers of tokens from every rank, where experts are not loaded alike."""
    if known.rules.routing == BALANCED or known.origin(inputs[0]) != known.rules.experts:
        return False
    values = [known.known(tensor) for tensor in inputs]
    whole = [value for value in values if value is not None]
    is_single = len(inputs) == len(outputs) == 1
    if len(whole) < len(values) or [t.numel() for t in inputs] != [t.numel() for t in outputs]:
        return False
    with _disable_current_modes():
        chunks = whole[0].reshape(ranks, -1).unbind() if is_single else whole
        chunk = busiest(chunks)
        for output in outputs:
            value = chunk.reshape(-1).repeat(ranks if is_single else 1).reshape(output.shape)
            known.keep(output, value, known.rules.experts)
    return True


def most_exchanged(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> int:
    """Return the bytes that a rank sends, or those that it receives if they are more."""
    return max(sum(tensor.nbytes for tensor in tensors) for tensors in (inputs, outputs))


class RecordedWork(WaitedWork):
    """Done at once for the script; who waits for it is recorded."""

    def __init__(
        self,
        runtime: RecordingRuntime,
        number: int,
        outputs: Sequence[Tensor],
        is_on_device: bool,
        source: int,
    ) -> None:
        super().__init__()
        self._runtime, self._number = runtime, number
        self._outputs = list(outputs)
        self._is_on_device = is_on_device
        self._source = source

    def wait(self, timeout: timedelta | None = None) -> bool:
        self._runtime.wait(self._number, self._is_on_device)
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        future = _RecordedFuture(self._runtime, self._number, self._is_on_device)
        future.set_result(self._outputs)
        self._runtime.wait_at_end_of_backward(self._number, self._is_on_device)
        return future

    def is_completed(self) -> bool:
        return True

    def exception(self) -> BaseException | None:
        return None

    def result(self) -> list[Tensor]:
        return self._outputs

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank


class _RecordedFuture(torch.futures.Future[Any]):
    """What follows a collective runs on a stream of its own, which waits for it, as NCCL's does."""

    def __init__(self, runtime: RecordingRuntime, number: int, is_on_device: bool) -> None:
        super().__init__()
        self._of = runtime, number, is_on_device

    def wait(self) -> Any:
        runtime, number, is_on_device = self._of
        runtime.wait(number, is_on_device)
        return super().wait()

    def then(self, callback: Callable[[Any], Any]) -> torch.futures.Future[Any]:
        runtime, number, is_on_device = self._of

        def following(future: Any) -> Any:
            with runtime.stream_of_callbacks(number, is_on_device):
                return callback(future)

        return super().then(following)


class FunctionalCollectives:
    """Collectives that return new tensors (`torch.distributed._functional_collectives`)."""

    def __init__(self, device: Device, runtime: RecordingRuntime) -> None:
        self._device, self._runtime = device, runtime

    def call(self, func: Any, args: Any, kwargs: dict[str, Any], tracer: Any) -> Any:
        """Do what a collective does; `tracer` is the mode by which ops are followed."""
        device = self._device
        if func.namespace == "_c10d_functional_autograd":
            return func.decompose(*args, **kwargs)
        name = func._schema.name.partition("::")[2]
        if name == "wait_tensor":
            number = getattr(args[0].untyped_storage(), _WORK, None)
            if number is not None:
                device.writer.add(WAIT, device.streams.current, number=number, phase=device.phase)
            return args[0]  # as it does on a GPU; as a fake tensor it would be another one
        if name == "_wrap_tensor_autograd":
            return AsyncCollectiveTensor(args[0])  # which is waited for when it is used
        with device.fake:
            result = func(*args, **kwargs)
        outputs = [tensor for tensor in tree_flatten(result)[0] if isinstance(tensor, FakeTensor)]
        for output in outputs:
            device.memory.see(output, "collectives")
        kind = next((kind for kind in _KINDS if name.startswith(kind)), None)
        if kind is None:
            return result
        declared = [argument.name for argument in func._schema.arguments]
        arguments = dict(zip(declared, args, strict=False)) | kwargs
        group: Any = c10d._resolve_process_group(arguments["group_name"])  # type: ignore[attr-defined]
        first = arguments[declared[0]]
        inputs = [tensor for tensor in tree_flatten(first)[0] if isinstance(tensor, Tensor)]
        sized = outputs if kind == "all_gather" else inputs
        size = sum(map(_bytes, sized))
        if kind == "all_to_all":
            size = most_exchanged(inputs, outputs)
        device.memory.read([*inputs, *outputs], is_compiled=False)
        call = Call(kind, size, str(arguments["group_name"]))
        members = tuple(torch.distributed.get_process_group_ranks(group))
        device.writer.groups[call.group] = members
        number = self._runtime.record(call, device.streams.current)
        if device.graph is not None:
            op = Op(str(func), "", 0, size, sum(map(_bytes, outputs)))
            device.graph.add(op, "communication", device.phase, inputs, outputs, members)
        for output in outputs:
            setattr(output.untyped_storage(), _WORK, number)
        ranks, rank = len(members), members.index(self._runtime.setting.rank)

        def fill() -> None:
            _fill(kind, inputs, outputs, arguments, ranks, rank)

        with tracer:
            follow_collective(device, kind, inputs, outputs, ranks, fill)
        return result


def _fill(
    kind: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    given: Mapping[str, Any],
    ranks: int,
    rank: int,
) -> None:
    """Fill the results of a functional collective as its group would."""
    for output, source in zip(outputs, inputs, strict=True):
        if kind in ("all_reduce", "broadcast"):
            if output is not source:
                values.copy(output, source)
        elif kind == "all_gather":
            values.repeat(output, source, ranks)
        elif kind == "reduce_scatter":
            values.copy(output, values.part(source, rank, output.numel()))
        else:
            splits = given["output_split_sizes"], given["input_split_sizes"]
            values.all_to_all_single(output, source, *splits, rank, ranks)
        if kind in ("all_reduce", "reduce_scatter"):
            op = str(given["reduce_op"])
            values.reduce(output, _REDUCTIONS.get(op.lower(), op), ranks)


_REDUCTIONS = {
    name.lower(): getattr(ReduceOp, name)
    for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
}


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
