"""What `torch.compile` makes of a script's model: chains of element-wise ops become one kernel.

Nothing is compiled. Ops of a compiled module or function, and of its backward pass, are told by the
numbers that autograd gives its nodes. Of these, what follows one another on a stream and is
element-wise, or reduces, is recorded as one op that reads what was made before it once and writes
once what outlives it, as kernels that TorchInductor makes do (Ansel et al., "PyTorch 2", 2024,
section 4). Products, attention and the like stay as they are. Where the mode asks for CUDA graphs
("reduce-overhead"), a call is one launch of the host, and its backward pass another. Memory stays
that of eager PyTorch, but for tensors that nothing reads again: they are freed, as checkpointing in
eager mode does not.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import torch
from torch import nn

from paracosm.emulation.device.recording import OP
from paracosm.emulation.device.state import Device
from paracosm.graphs.graph import Op
from paracosm.profiling.datasheets import class_of

FUSED = "compiled.pointwise"
"""The name of an op that stands for a chain."""

_FUSIBLE = ("elementwise", "reduction")
_REGIONS = 10_000  # calls of compiled modules that are remembered for their backward passes

_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
_current_node: Callable[[], Any] = torch._C._current_autograd_node


class CompiledRegions:
    """Follows calls of what the script has compiled, and joins their ops."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._depth = 0
        self._begin = 0
        self._first: list[int] = []  # of each call, the first number of its nodes
        self._last: list[int] = []
        self._graphed: list[bool] = []  # of each call, whether it and its backward are CUDA graphs
        self._has_graph = False  # the call under way
        self._chain: _Chain | None = None

    def install(self) -> None:
        """Let `torch.compile` mark what it is given."""

        def compiled(model: Any = None, **options: Any) -> Any:
            if model is None:
                return lambda function: compiled(function, **options)
            self._device.writer.notes[_NOTE] = None
            has_graphs = _has_graphs(**options)
            if isinstance(model, nn.Module):
                self._follow(model, has_graphs)
                return model
            return self._following(model, has_graphs)

        def compile_in_place(module: Any, **options: Any) -> None:
            compiled(module, **options)

        pytorch: Any = torch
        pytorch.compile = compiled
        modules: Any = nn.Module
        modules.compile = compile_in_place

    @property
    def is_used(self) -> bool:
        """Whether anything that was compiled was called."""
        return bool(self._first or self._depth)

    def take(self, func: Any, inputs: Sequence[Any], outputs: Sequence[Any], phase: int) -> bool:
        """Take an op inside; return False where it is of no chain, and recorded by itself."""
        name = str(func)
        if func.namespace not in ("aten", "prims") or class_of(name) not in _FUSIBLE:
            return False
        if name.startswith(("aten._foreach", "aten._fused")):
            return False
        stream = self._device.streams.current
        chain = self._chain
        if chain is None or (chain.stream, chain.phase) != (stream, phase):
            self._device.writer.flush()
            chain = self._chain = _Chain(stream, phase, self._graph(), self._device.place())
            self._device.writer.pending = self._close
        chain.add(inputs, outputs)
        return True

    def _close(self) -> None:
        chain, self._chain = self._chain, None
        if chain is None:
            return
        op = chain.op()
        if self._device.graph is not None:
            self._device.graph.end_chain(op)
        code = self._device.writer.op_code(op)
        self._add(OP, chain.stream, code, chain.phase, chain.graph, chain.place)

    def add(self, kind: int, stream: int, code: int, phase: int) -> None:
        """Record an op by itself, in the CUDA graph of its region if that has one."""
        self._device.writer.flush()
        self._add(kind, stream, code, phase, self._graph(), self._device.place())

    def _add(
        self, kind: int, stream: int, code: int, phase: int, graph: Any, place: tuple[int, int]
    ) -> None:
        writer = self._device.writer
        if graph is None:
            writer.add(kind, stream, code=code, phase=phase, place=place)
        else:
            writer.add_to_graph(graph, kind, stream, code=code, phase=phase, place=place)

    def _graph(self) -> Any:
        region = self._region()
        return region if region is not None and region[-1] else None

    def is_inside(self) -> bool:
        """Whether what happens now is compiled, or of the backward pass of what is."""
        return self._region() is not None

    def _region(self) -> tuple[int, bool, bool] | None:
        """Return a number of the call under way, whether its backward is, and whether by graph."""
        if self._depth:
            return self._begin, False, self._has_graph
        node = _current_node() if self._first else None
        if node is None:
            return None
        number = node._sequence_nr()
        place = bisect_right(self._first, number) - 1
        if place < 0 or number >= self._last[place]:
            return None
        return self._first[place], True, self._graphed[place]

    def _follow(self, module: nn.Module, has_graphs: bool) -> None:
        module.register_forward_pre_hook(lambda module, inputs: self._enter(has_graphs))
        module.register_forward_hook(
            lambda module, inputs, outputs: self._leave(), always_call=True
        )

    def _following(self, function: Callable[..., Any], has_graphs: bool) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            self._enter(has_graphs)
            try:
                return function(*arguments, **options)
            finally:
                self._leave()

        return call

    def _enter(self, has_graphs: bool) -> None:
        if self._depth == 0:
            self._has_graph = has_graphs
            self._begin = _sequence_number()
        self._depth += 1

    def _leave(self) -> None:
        self._depth -= 1
        end = _sequence_number()
        if self._depth or end == self._begin:
            return
        self._first.append(self._begin)
        self._last.append(end)
        self._graphed.append(self._has_graph)
        if len(self._first) > 2 * _REGIONS:
            del self._first[:_REGIONS], self._last[:_REGIONS], self._graphed[:_REGIONS]


def _has_graphs(mode: str | None = None, options: Any = None, **others: Any) -> bool:
    """Whether `torch.compile` would launch what it compiles as CUDA graphs."""
    has_option = bool(options) and bool(options.get("triton.cudagraphs"))
    return has_option or mode in ("reduce-overhead", "max-autotune")


_NOTE = (
    "torch.compile: nothing is compiled; chains of element-wise ops and reductions count as one "
    "kernel, which reads and writes each tensor once; memory is that of eager PyTorch, without "
    "what nothing reads again"
)


class _Chain:
    """Ops that are one kernel."""

    def __init__(self, stream: int, phase: int, graph: Any, place: tuple[int, int]) -> None:
        self.stream, self.phase, self.graph, self.place = stream, phase, graph, place
        self._read: dict[int, int] = {}  # bytes of what was made before, by storage
        self._made: dict[int, tuple[Any, int]] = {}  # storage and bytes of what is made here

    def add(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        for tensor in inputs:
            key = tensor.untyped_storage()._cdata
            if key not in self._made:
                self._read[key] = max(self._read.get(key, 0), _bytes(tensor))
        for tensor in outputs:
            storage = tensor.untyped_storage()
            known = self._made.get(storage._cdata)
            most = max(_bytes(tensor), known[1] if known is not None else 0)
            self._made[storage._cdata] = weakref.ref(storage), most

    def op(self) -> Op:
        written = sum(size for storage, size in self._made.values() if storage() is not None)
        return Op(FUSED, "", 0, sum(self._read.values()), written)


def _bytes(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())
