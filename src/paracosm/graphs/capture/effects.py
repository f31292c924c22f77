"""Which tensors a dispatched op looks at, which it changes, and which it makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from paracosm.graphs.capture.encode import require_strided

__all__ = ["ALLOCATE", "COLLECTIVES", "Effects", "effects_of", "is_view", "resource_of"]

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
        "lift_fresh",
    )
)


@dataclass(frozen=True)
class Effects:
    """Tensors of one call.

    Attributes:
        inputs: all that it is given.
        mutated: those among them that it changes.
        outputs: what it returns.
    """

    inputs: list[Tensor]
    mutated: list[Tensor]
    outputs: list[Tensor]

    @property
    def fresh(self) -> list[Tensor]:
        """Those outputs that are no input, seen in another way."""
        held = {tensor.untyped_storage()._cdata for tensor in self.inputs}
        return [t for t in self.outputs if t.untyped_storage()._cdata not in held]


def effects_of(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Any
) -> Effects:
    """Return the tensors of a call by what its schema says happens to them."""
    inputs: list[Tensor] = []
    mutated: list[Tensor] = []
    if str(func.overloadpacket) == "aten.lift_fresh":  # it was made beside the dispatcher
        return Effects([], [], list(_tensors(outputs)))
    changed = _CHANGED.get(str(func.overloadpacket), frozenset())
    # Only the metadata changes of a tensor that is transposed in place.
    metadata_only = torch.Tag.inplace_view in func.tags
    for at, place in enumerate(func._schema.arguments):
        value = args[at] if at < len(args) else kwargs.get(place.name)
        tensors = list(_tensors(value))
        inputs += tensors
        alias = place.alias_info
        written = alias is not None and alias.is_write and not metadata_only
        if written or place.name in changed or (at == 0 and _first_is_changed(func)):
            mutated += tensors
    return Effects(inputs, mutated, list(_tensors(outputs)))


def is_view(func: torch._ops.OpOverload, effects: Effects) -> bool:
    """Whether an op changes nothing, and returns nothing but its inputs, seen in another way.

    To wait for a collective is that too: who uses what it returns waits for the collective itself.
    """
    if torch.Tag.inplace_view in func.tags or str(func) == "_c10d_functional.wait_tensor.default":
        return True
    return not effects.mutated and not effects.fresh and bool(effects.outputs)


def resource_of(func: torch._ops.OpOverload, effects: Effects, device: str) -> str:
    """Return what an op keeps busy, one of `RESOURCES`.

    The host alone: views, tensors made without anything in them, and work on tensors of the host
    where the graph's device is another one.
    """
    packet = str(func.overloadpacket)
    if packet in ALLOCATE or is_view(func, effects):
        return "host"
    if func.namespace in COLLECTIVES:
        return "communication"
    places = {tensor.device.type for tensor in effects.inputs + effects.outputs}
    if packet == "aten._local_scalar_dense":  # what it returns is on the host
        return "host" if places == {"cpu"} else "memory"
    if len(places) > 1 and packet in ("aten._to_copy", "aten.copy_"):
        return "memory"
    return "compute" if device in places or not places else "host"


def _first_is_changed(func: torch._ops.OpOverload) -> bool:
    """Whether it is a collective of c10d, whose schemas say nothing of their first argument."""
    return func.namespace == "c10d" and str(func.overloadpacket) not in _C10D_READS_ONLY


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        require_strided(value)
        yield value
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for each in value:
            yield from _tensors(each)
