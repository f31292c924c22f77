"""The arguments of a dispatched op, the tensors that it reads, changes and makes, and its work.

Floating-point operations are as `graphs/flops.py` says, convolutions by PyTorch's own formulas
(torch.utils.flop_counter). Ops that only move or fill memory, random numbers and views count none.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from paracosm.errors import InputError
from paracosm.graphs.flops import aten_product_flops, call_flops, convolution_flops
from paracosm.graphs.graph import TensorArgument, encode_arguments

COLLECTIVES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd"})
"""Namespaces of ops that communicate."""

# Arguments that are changed though the schema does not say so.
_CHANGED: dict[str, frozenset[str]] = {
    "aten.native_batch_norm": frozenset({"running_mean", "running_var"}),
    "aten.cudnn_batch_norm": frozenset({"running_mean", "running_var"}),
    "aten.miopen_batch_norm": frozenset({"running_mean", "running_var"}),
    "fsdp.all_gather_copy_in": frozenset({"all_gather_output"}),
}
_C10D_READS_ONLY = frozenset({"c10d.send", "c10d.barrier", "c10d.monitored_barrier_"})

# Ops that make a tensor and put nothing into it, or a number that the host has at hand.
ALLOCATE = frozenset(
    f"aten.{name}"
    for name in (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
        *("lift_fresh", "is_coalesced", "_coalesced_"),
    )
)


@dataclass(frozen=True)
class Effects:
    """Tensors of one call: its inputs, those of them that it changes, and its outputs.

    A sparse tensor is two: positions and values.
    """

    inputs: list[Tensor]
    mutated: list[Tensor]
    outputs: list[Tensor]
    # Elements of any tensor that are touched at most, where one is sparse: those of its rows
    most: int | None = None

    @property
    def fresh(self) -> list[Tensor]:
        """The outputs in storage of their own: neither inputs nor views of them."""
        held = {tensor.untyped_storage()._cdata for tensor in self.inputs}
        return [t for t in self.outputs if t.untyped_storage()._cdata not in held]


def effects_of(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Any
) -> Effects:
    """Return the tensors of a call, with their roles from its schema."""
    inputs: list[Tensor] = []
    mutated: list[Tensor] = []
    values = [tensor._values().numel() for tensor in sparse_ones((args, kwargs.values(), outputs))]
    if str(func.overloadpacket) == "aten.lift_fresh":  # it was made outside of the dispatcher
        return Effects([], [], list(strided_parts(outputs)))
    changed = _CHANGED.get(str(func.overloadpacket), frozenset())
    # The schemas of c10d's collectives say nothing of their first argument.
    first_changes = func.namespace == "c10d" and str(func.overloadpacket) not in _C10D_READS_ONLY
    # Only the metadata changes of a tensor that is transposed in place.
    metadata_only = torch.Tag.inplace_view in func.tags
    for at, place in enumerate(func._schema.arguments):
        value = args[at] if at < len(args) else kwargs.get(place.name)
        tensors = list(strided_parts(value))
        inputs += tensors
        alias = place.alias_info
        written = alias is not None and alias.is_write and not metadata_only
        if written or place.name in changed or (at == 0 and first_changes):
            mutated += tensors
    return Effects(inputs, mutated, list(strided_parts(outputs)), max(values, default=None))


def is_view(func: torch._ops.OpOverload, effects: Effects) -> bool:
    """Whether an op changes nothing, and returns only views of its inputs.

    Waiting for a collective counts as well: users of its output wait for the collective itself.
    """
    if torch.Tag.inplace_view in func.tags or str(func) == "_c10d_functional.wait_tensor.default":
        return True
    return not effects.mutated and not effects.fresh and bool(effects.outputs)


def resource_of(func: torch._ops.OpOverload, effects: Effects, device: str) -> str:
    """Return what an op keeps busy, one of `RESOURCES`.

    The host alone: views, empty tensors, and work on tensors of the host if the graph's device is
    another one.
    """
    packet = str(func.overloadpacket)
    if packet in ALLOCATE or is_view(func, effects):
        return "host"
    if func.namespace in COLLECTIVES:
        return "communication"
    devices = {tensor.device.type for tensor in effects.inputs + effects.outputs}
    if packet == "aten._local_scalar_dense":  # what it returns is on the host
        return "host" if devices == {"cpu"} else "memory"
    if len(devices) > 1 and packet in ("aten._to_copy", "aten.copy_"):
        return "memory"
    return "compute" if device in devices or not devices else "host"


def strided_parts(value: Any) -> Iterator[Tensor]:
    """Yield the tensors among arguments or results; of a sparse one its positions and values."""
    for tensor in _each(value):
        if _is_sparse(tensor):
            yield tensor._indices()
            yield tensor._values()
        else:
            yield tensor


def sparse_ones(value: Any) -> list[Tensor]:
    """Return the sparse tensors among arguments or results, of the one kind that is supported."""
    return [tensor for tensor in _each(value) if _is_sparse(tensor)]


def _each(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for item in value:
            yield from _each(item)


def encode_call(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], device: str
) -> str:
    """Return the text of the arguments of one call.

    The name of a process group is null, like the group itself: its number in this process is not
    part of the op.
    """
    declared = func._schema.arguments
    positional = [
        None if place.name == "group_name" else _plain(value, device)
        for place, value in zip(declared, args, strict=False)
    ]
    named = {
        name: None if name == "group_name" else _plain(value, device)
        for name, value in kwargs.items()
    }
    return encode_arguments(positional, named)


def _is_sparse(tensor: Tensor) -> bool:
    if tensor.layout is torch.strided:
        return False
    if tensor.layout is torch.sparse_coo and tensor.sparse_dim() == 1:
        return True
    raise InputError(
        f"the model makes {_name(tensor.layout)} tensors: capture knows strided ones, and sparse "
        "gradients of embeddings"
    )


def _plain(value: Any, device: str) -> Any:
    match value:
        case torch.Tensor():
            return _tensor(value, device)
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_plain(item, device) for item in value]
        case torch.dtype():
            return {"dtype": _name(value)}
        case torch.layout():
            return {"layout": _name(value)}
        case torch.memory_format():
            return {"memory_format": _name(value)}
    return None  # a device, a generator, a process group


def _tensor(tensor: torch.Tensor, device: str) -> TensorArgument:
    sparse = _is_sparse(tensor)
    where = tensor.device.type
    return TensorArgument(
        shape=tuple(tensor.shape),
        dtype=_name(tensor.dtype),
        stride=None if sparse or tensor.is_contiguous() else tensor.stride(),
        on=None if where == device else where,
        entries=tensor._nnz() if sparse else None,
    )


def _name(value: Any) -> str:
    return str(value).removeprefix("torch.")


# Torch's own collectives find their groups in these ways.
_by_name: Any = c10d._resolve_process_group  # type: ignore[attr-defined]
_unboxed: Any = dist.ProcessGroup.unbox


def group_of(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[int, ...]:
    """Return the ranks of the group that a collective names; empty if it names none."""
    for at, place in enumerate(func._schema.arguments):
        value = args[at] if at < len(args) else kwargs.get(place.name)
        if place.name == "group_name" and isinstance(value, str):
            group = _by_name(value)
        elif place.name == "process_group":
            group = value if isinstance(value, dist.ProcessGroup) else _unboxed(value)
        else:
            continue
        return tuple(sorted(dist.get_process_group_ranks(group)))
    return ()


def flops_of(
    func: torch._ops.OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    outputs: Any,
    effects: Effects,
) -> int:
    packet = func.overloadpacket
    name, shapes = str(packet), _shapes(args)
    if (attention := call_flops(str(func), shapes, args, kwargs)) is not None:
        return attention
    if (product := aten_product_flops(name.removeprefix("aten."), shapes)) is not None:
        return product
    if name == "aten.convolution_backward":
        return _convolution_gradients(args)
    if packet in flop_registry:
        return int(flop_registry[packet](*args, **kwargs, out_val=outputs))
    if name in _MOVES or name in ALLOCATE or func.namespace not in ("aten", "prims"):
        return 0
    if name.startswith("aten._foreach_"):
        return sum(tensor.numel() for tensor in effects.mutated or effects.outputs)
    largest = max((tensor.numel() for tensor in effects.inputs + effects.outputs), default=0)
    return largest if effects.most is None else min(largest, effects.most)


def _convolution_gradients(args: Sequence[Any]) -> int:
    """Return the operations of the gradients of a convolution: of its input, of its weight.

    Each is as much as the convolution. PyTorch's own formula counts the weight's as often as there
    are groups.
    """
    gradient, values, weight = args[:3]
    is_transposed, wanted = args[7], args[10]
    moved = values if is_transposed else gradient
    return int(sum(wanted[:2])) * convolution_flops(moved.shape, weight.shape[1:])


def traffic_of(func: torch._ops.OpOverload, effects: Effects) -> tuple[int, int]:
    """Return the bytes that a call reads and writes.

    Each tensor among the arguments counts once, the elements of an expanded one once each, and with
    a sparse tensor no more than its rows. What is only overwritten is not read; a gather reads as
    much as it returns, plus its indices.
    """
    packet = str(func.overloadpacket)
    written = _bytes(effects.mutated + effects.fresh, effects.most)
    inputs = effects.inputs
    has_out = any(argument.is_out for argument in func._schema.arguments)
    if packet in _OVERWRITES or func.namespace in COLLECTIVES or has_out:
        changed = {id(tensor) for tensor in effects.mutated}
        inputs = [tensor for tensor in inputs if id(tensor) not in changed]
    if packet in _GATHERS:
        return _bytes(inputs[1:]) + min(_bytes(inputs[:1]), _bytes(effects.fresh)), written
    return _bytes(inputs, effects.most), written


def _bytes(tensors: Sequence[Tensor], most: int | None = None) -> int:
    limit = math.inf if most is None else most
    return sum(int(min(_elements(tensor), limit)) * tensor.element_size() for tensor in tensors)


def _elements(tensor: Tensor) -> int:
    if tensor.is_contiguous():
        return tensor.numel()
    extent = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        extent *= size if stride else min(size, 1)
    return extent


def _shapes(args: Sequence[Any]) -> list[tuple[int, ...] | None]:
    return [tuple(argument.shape) if isinstance(argument, Tensor) else None for argument in args]


_GATHERS = frozenset(
    f"aten.{name}" for name in ("embedding", "index", "index_select", "gather", "take")
)
_OVERWRITES = frozenset(
    f"aten.{name}"
    for name in (
        *("copy_", "fill_", "zero_", "_foreach_copy_", "_foreach_zero_"),
        *("uniform_", "normal_", "bernoulli_", "random_", "exponential_"),
    )
)
_MOVES = (
    frozenset(
        f"aten.{name}"
        for name in (
            *("clone", "_to_copy", "cat", "stack", "slice_backward", "select_backward"),
            *("full", "full_like", "new_full", "zeros", "zeros_like", "new_zeros", "ones"),
            *("ones_like", "new_ones", "scalar_tensor", "arange", "rand", "randn", "randint"),
            *("rand_like", "randn_like", "bernoulli", "_local_scalar_dense", "constant_pad_nd"),
            *("index_put", "index_put_", "repeat", "roll", "flip", "split_with_sizes_copy"),
            *("masked_fill", "masked_fill_", "tril", "triu", "native_dropout", "repeat_interleave"),
            *("scatter", "scatter_", "as_strided_copy", "_unsafe_index", "_foreach_clone"),
        )
    )
    | _GATHERS
    | _OVERWRITES
)
