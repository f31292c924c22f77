"""Every op of a script on a device that is not there: what it would make, and its record.

Tensors on the device are PyTorch's fake tensors, whose device really is "cuda:0"; those on the
host are real, and so is what happens to them. One dispatch mode tells them apart: an op with a fake
argument, or that makes a tensor on the device, is worked out by the fake mode and recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map_only

from paracosm.emulation.device.assumptions import CAUSAL
from paracosm.emulation.device.collectives import FUNCTIONAL, FunctionalCollectives
from paracosm.emulation.device.compiled_regions import CompiledRegions
from paracosm.emulation.device.dynamic_shapes import worked_out
from paracosm.emulation.device.own_ops import OwnOps
from paracosm.emulation.device.recording import COPY, OP, STREAM
from paracosm.emulation.device.state import OPTIMIZER, Device
from paracosm.emulation.device.values import FROM_HOST
from paracosm.graphs.capture.calls import (
    effects_of,
    encode_call,
    flops_of,
    is_view,
    resource_of,
    traffic_of,
)
from paracosm.graphs.flops import attention_flops
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments

_IGNORED = frozenset({"prim", "profiler"})  # questions about metadata, marks of a profiler
_aten: Any = torch.ops.aten
_has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key
_mode_key: Any = torch._C._TorchDispatchModeKey.FAKE
_mode_of: Any = torch._C._get_dispatch_mode


@dataclass(frozen=True, slots=True)
class _Kind:
    """What is recorded of a call: nothing of a view (`code` -1)."""

    code: int
    is_copy: bool = False
    is_view: bool = False


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records what a script does with the device; it stays in force until the process ends."""

    supports_higher_order_operators = True

    def __init__(
        self,
        device: Device,
        collectives: FunctionalCollectives,
        compiled: CompiledRegions,
        own_ops: OwnOps,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._own_ops = own_ops
        self._device, self._collectives, self._compiled = device, collectives, compiled
        self.fake = device.fake
        self.writer, self.streams = device.writer, device.streams
        self.memory, self.values = device.memory, device.values
        self.on_host: Callable[[Any, Any, Any], None] = lambda func, args, kwargs: None
        self._kinds: dict[tuple[Any, str], _Kind] = {}
        self._composite: dict[Any, bool] = {}

    @property
    def phase(self) -> int:
        return self._device.phase

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if _mode_of(_mode_key) is not None:
            return func(*args, **kwargs)  # somebody asks for shapes alone: DTensor, dynamo
        if isinstance(func, torch._ops.HigherOrderOperator):
            return self._higher_order(func, args, kwargs)
        if any(_is_foreign(kind) for kind in types):
            if func is _aten.embedding.default:
                self.writer.sharing = max(self.writer.sharing, _ranks_with_equal(args[1]))
            return NotImplemented  # a DTensor or the like turns into ops on plain tensors
        flat = tree_flatten((args, kwargs))[0]
        fakes = [value for value in flat if isinstance(value, FakeTensor)]
        device = kwargs.get("device")
        to_device = device is not None and torch.device(device).type == "cuda"
        if to_device and self._device.kind == "cpu":
            raise self.values.refused(f'the device "{device}" beside a CPU')
        if not fakes and not to_device:
            return self._run_on_host(func, args, kwargs)
        if func.namespace in _IGNORED:
            with self.fake:
                return func(*args, **kwargs)
        if func.namespace in FUNCTIONAL:
            return self._collectives.call(func, args, kwargs, self)
        if self._own_ops.has(func):
            return self._own_ops.call(func, args, kwargs, self)
        moved = self._moved(func, args, kwargs, fakes, to_device)
        if moved is not _NOT_MOVED:
            return moved
        if self._decomposes(func):
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if any(isinstance(value, Tensor) and not isinstance(value, FakeTensor) for value in flat):
            args, kwargs = tree_map_only(Tensor, _alias, (args, kwargs))
        return self._run(func, args, kwargs)

    def _moved(
        self, func: Any, args: Any, kwargs: Mapping[str, Any], fakes: list[Any], to_device: bool
    ) -> Any:
        """Do what passes between host and device."""
        if self._device.kind == "cpu" and func is not _aten._local_scalar_dense.default:
            return _NOT_MOVED  # both are one
        if func is _aten._local_scalar_dense.default:
            self.writer.add(STREAM, self.streams.current, phase=self.phase)
            if self._device.graph is not None:
                op = Op(str(func), "", 0, fakes[0].element_size(), fakes[0].element_size())
                self._device.graph.add(op, "memory", self.phase, fakes, ())
            return self.values.read(fakes[0]).item()
        if func is _aten._to_copy.default:
            device = kwargs.get("device")
            if fakes and device is not None and torch.device(device).type == "cpu":
                value = self._to_host(args[0], bool(kwargs.get("non_blocking")))
                return value.to(kwargs.get("dtype") or value.dtype)
            if fakes and device is not None and torch.device(device).type == "meta":
                dtype = kwargs.get("dtype") or args[0].dtype
                return torch.empty_strided(
                    args[0].size(), args[0].stride(), dtype=dtype, device="meta"
                )
            if not fakes and to_device:
                return self._to_device(args[0], kwargs)
        if func is _aten.copy_.default:
            target, source = args[:2]
            waits = not (len(args) > 2 and args[2])
            if not isinstance(target, FakeTensor):
                value = self._to_host(source, not waits)
                return target.copy_(value.expand_as(target))
            if not isinstance(source, FakeTensor):
                self.record_copy("HtoD", source, waits=False, target=target)
                self._take_from_host(target, source)
                return target
        return _NOT_MOVED

    def _to_host(self, tensor: Any, is_asynchronous: bool) -> Tensor:
        self.record_copy("DtoH", tensor, waits=not is_asynchronous)
        return self.values.read(tensor)

    def _to_device(self, source: Tensor, kwargs: Mapping[str, Any]) -> Any:
        dtype = kwargs.get("dtype") or source.dtype
        with self.fake:
            result = torch.empty_strided(
                source.size(), source.stride(), dtype=dtype, device=kwargs["device"]
            )
        self.memory.see(result, "activations")
        if not source.is_meta:
            self.record_copy("HtoD", source, waits=False, target=result)
            self._take_from_host(result, source)
        return result

    def _take_from_host(self, target: Any, source: Tensor) -> None:
        if source.is_meta:
            self.values.forget([target])
            return
        with _disable_current_modes():
            self.values.keep(target, source.detach().expand(target.shape))
        setattr(target.untyped_storage(), FROM_HOST, True)

    def record_copy(self, way: str, tensor: Any, waits: bool, target: Any = None) -> None:
        size = tensor.numel() * tensor.element_size()
        op = Op(f"copy {way}", "", 0, size, size)
        self.writer.add(COPY, self.streams.current, code=self.writer.op_code(op), phase=self.phase)
        if self._device.graph is not None:
            self._device.graph.add(op, "memory", self.phase, [tensor], [target])
        if waits:
            self.writer.add(STREAM, self.streams.current, phase=self.phase)
            if self._device.graph is not None:
                self._device.graph.add_wait()

    def _higher_order(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Work out an operator that takes functions: flex attention, as far as its cost goes."""
        name = func.name()
        if name == "triton_kernel_wrapper_mutation":
            self._own_ops.launch_wrapped(args, kwargs)
            return None
        flat = tree_flatten((args, kwargs))[0]
        if not name.startswith("flex_attention") or not any(
            isinstance(value, FakeTensor) for value in flat
        ):
            return func(*args, **kwargs)
        device = self._device
        query, key, value = args[:3]
        is_backward = name == "flex_attention_backward"
        flops = attention_flops(
            query.shape, key.shape[-2], value.shape[-1], causal=True, backward=is_backward
        )
        device.values.assume(CAUSAL)
        with device.fake:
            if is_backward:
                made = tuple(map(torch.empty_like, (query, key, value)))
                result: Any = (*made, ())
            else:
                output = query.new_empty((*query.shape[:-1], value.shape[-1]))
                sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
                made = (output, sums)
                result = (output, sums, query.new_empty(0, dtype=torch.float32))
        for tensor in made:
            device.memory.see(tensor, device.kind_of_memory)
        read = sum(tensor.numel() * tensor.element_size() for tensor in (query, key, value))
        written = sum(tensor.numel() * tensor.element_size() for tensor in made)
        arguments = encode_arguments(
            [
                TensorArgument(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
                for tensor in (query, key, value)
            ],
            {},
        )
        op = Op(name, arguments, flops, read * (2 if is_backward else 1), written)
        code = device.writer.op_code(op)
        device.writer.add(OP, device.streams.current, code=code, phase=device.phase)
        if device.graph is not None:
            device.graph.add(op, "compute", device.phase, flat, made)
        return result

    def _decomposes(self, func: Any) -> bool:
        """Whether an op arrives whole that PyTorch otherwise takes apart before."""
        known = self._composite.get(func)
        if known is None:
            key = self._device.kind.upper()
            is_aten = func.namespace == "aten" and not _has_kernel(func.name(), key)
            composite = _has_kernel(func.name(), "CompositeImplicitAutograd")
            known = self._composite[func] = is_aten and composite
        return known

    def _run_on_host(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an op on tensors of the host, which is recorded where that is the device."""
        if self._device.kind != "cpu" or func.namespace != "aten":
            self.on_host(func, args, kwargs)
            return func(*args, **kwargs)
        arguments = encode_call(func, args, kwargs, "cpu")
        result = func(*args, **kwargs)
        effects = effects_of(func, args, kwargs, result)
        kind = self._kinds.get((func, arguments))
        if kind is None:
            kind = self._described(func, args, kwargs, result, effects, arguments)
            self._kinds[func, arguments] = kind
        self._surround(kind, effects)
        if kind.code >= 0:
            self.writer.add(OP, self.streams.current, code=kind.code, phase=self.phase)
        return result

    def _surround(self, kind: _Kind, effects: Any) -> None:
        surroundings = self._device.surroundings
        if surroundings is not None:
            in_optimizer = self.phase == OPTIMIZER
            surroundings.op(kind.code, in_optimizer, effects.inputs, effects.outputs)

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if self._device.is_silent:
            return self._follow(func, args, kwargs)
        # Before it changes any
        arguments = encode_call(func, args, kwargs, self._device.kind)
        result = worked_out(self._device, func, args, kwargs)
        kind = self._kinds.get((func, arguments))
        effects = effects_of(func, args, kwargs, result)
        if kind is None:
            kind = self._described(func, args, kwargs, result, effects, arguments)
            self._kinds[func, arguments] = kind
        outputs = [output for output in effects.outputs if isinstance(output, FakeTensor)]
        mutated = [tensor for tensor in effects.mutated if isinstance(tensor, FakeTensor)]
        if len(mutated) < len(effects.mutated):
            self.values.assume(_KEPT)
        if not kind.is_view:
            for output in outputs:
                if output.fake_device.type == self._device.kind:
                    self.memory.see(output, self._device.kind_of_memory)
        if str(func.overloadpacket) in _OF_SCALER:
            self.values.assume_no_overflow()
        self.values.follow(func, args, kwargs, outputs, mutated)
        self._surround(kind, effects)
        graph = self._device.graph
        inputs = [tensor for tensor in effects.inputs if isinstance(tensor, FakeTensor)]
        is_compiled = self._compiled.is_used and self._compiled.is_inside()
        if not kind.is_view:
            self.memory.read([*inputs, *outputs, *mutated], is_compiled)
        if kind.code < 0:
            if graph is not None and kind.is_view:
                graph.see(effects.inputs, effects.outputs)
            return result
        if is_compiled and self._compiled.take(func, inputs, [*outputs, *mutated], self.phase):
            if graph is not None:
                graph.add_to_chain(self.phase, inputs, effects.mutated + effects.fresh)
            return result
        self._compiled.add(
            COPY if kind.is_copy else OP, self.streams.current, kind.code, self.phase
        )
        if graph is not None:
            resource = "memory" if kind.is_copy else "compute"
            written = effects.mutated + effects.fresh
            graph.add(self.writer.op(kind.code), resource, self.phase, inputs, written)
        return result

    def _follow(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Work an op out for the values alone: it is part of a collective, whose record it has."""
        result = worked_out(self._device, func, args, kwargs)
        effects = effects_of(func, args, kwargs, result)
        outputs, mutated = (
            [tensor for tensor in tensors if isinstance(tensor, FakeTensor)]
            for tensors in (effects.outputs, effects.mutated)
        )
        self.values.follow(func, args, kwargs, outputs, mutated)
        return result

    def _described(
        self,
        func: Any,
        args: Any,
        kwargs: dict[str, Any],
        result: Any,
        effects: Any,
        arguments: str,
    ) -> _Kind:
        if is_view(func, effects):
            return _Kind(-1, is_view=True)
        resource = resource_of(func, effects, self._device.kind)
        if resource == "host":
            return _Kind(-1)
        read, written = traffic_of(func, effects)
        flops = flops_of(func, args, kwargs, result, effects)
        op = Op(str(func), arguments, flops, read, written)
        return _Kind(self.writer.op_code(op), is_copy=resource == "memory")


_NOT_MOVED = object()
_KEPT = "updates of host tensors left out"
_OF_SCALER = frozenset({"aten._amp_foreach_non_finite_check_and_unscale_"})
_PLAIN = (Tensor, FakeTensor, torch.nn.Parameter, torch.nn.Buffer)


def _ranks_with_equal(indices: Any) -> int:
    """Return how many ranks have the same values, by what a DTensor says; 1 for another tensor."""
    placements = getattr(indices, "placements", ())
    sizes = (indices.device_mesh.size(place) for place in range(len(placements)))
    pairs = zip(sizes, placements, strict=False)
    return prod(size for size, placement in pairs if placement.is_replicate())


def _alias(tensor: Tensor) -> Tensor:
    """Return another object for a tensor of the host: fake modes keep weak references to it."""
    if isinstance(tensor, FakeTensor):
        return tensor
    with _disable_current_modes():
        return tensor.detach()


def _is_foreign(kind: Any) -> bool:
    """Whether a class of tensors answers ops itself."""
    if kind in _PLAIN or issubclass(kind, FakeTensor):
        return False
    dispatch = kind.__torch_dispatch__
    disabled = torch._C._disabled_torch_dispatch_impl
    return dispatch is not Tensor.__torch_dispatch__ and dispatch is not disabled
