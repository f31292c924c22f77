"""Records every op that PyTorch dispatches, below autograd: what eager really runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from paracosm.graphs.build import Node
from paracosm.graphs.capture.effects import Effects, effects_of, is_view, resource_of
from paracosm.graphs.capture.encode import encode_call
from paracosm.graphs.capture.groups import group_of
from paracosm.graphs.capture.places import Places
from paracosm.graphs.capture.storages import Ledger
from paracosm.graphs.capture.work import flops_of, traffic_of
from paracosm.graphs.op import Op

__all__ = ["Recorder"]

# Questions about metadata, and marks for PyTorch's profiler: nothing that is computed.
_IGNORED = frozenset({"prim", "profiler"})
_SHARING = frozenset({"fsdp", "c10d"})  # what FSDP2 gathers and scatters with
_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes a node for every op; subclasses of tensors are followed into the ops they make."""

    def __init__(self, ledger: Ledger, places: Places, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ledger = ledger
        self._places = places
        self._device = device
        self._phase = "other"
        self._nodes: list[Node] = []

    def enter(self, phase: str) -> None:
        """Say that a phase of the step begins."""
        self._phase = phase

    def nodes(self) -> Iterator[Node]:
        """Yield what was recorded; the ledger's books are closed."""
        for node in self._nodes:
            yield dataclasses.replace(node, allocates=self._ledger.allocations(node.id))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not all(kind in _PLAIN for kind in types):
            return NotImplemented  # a DTensor or the like turns into ops on plain tensors
        kwargs = kwargs or {}
        if func.namespace in _IGNORED:
            return func(*args, **kwargs)
        arguments = encode_call(func, args, kwargs, self._device)  # before it changes any
        place = self._place()
        outputs = func(*args, **kwargs)
        self._note(func, args, kwargs, outputs, arguments, place)
        return outputs

    def _note(
        self, func: Any, args: Any, kwargs: dict[str, Any], outputs: Any, arguments: str, place: str
    ) -> None:
        effects = effects_of(func, args, kwargs, outputs)
        number = len(self._nodes)
        place = self._place_by_data(func, effects) or place
        if idle := is_view(func, effects):
            self._ledger.see(number, effects.inputs, effects.outputs)
            waits: tuple[int, ...] = ()
        else:
            written = effects.mutated + effects.fresh
            claims = func.namespace in _SHARING
            waits = self._ledger.book(number, effects.inputs, written, place, claims)
        resource = resource_of(func, effects, self._device)
        read, wrote = (0, 0) if resource == "host" else traffic_of(func, effects)
        op = Op(
            name=str(func),
            arguments=arguments,
            flops=0 if idle else flops_of(func, args, kwargs, outputs, effects),
            bytes_read=read,
            bytes_written=wrote,
        )
        self._nodes.append(
            Node(
                id=number,
                op=op,
                name=place,
                phase=self._phase,
                resource=resource,
                dependencies=waits,
                group=group_of(func, args, kwargs) if resource == "communication" else (),
            )
        )

    def _place(self) -> str:
        if self._phase == "backward":
            return self._places.backward()
        return self._places.forward() if self._phase == "forward" else ""

    def _place_by_data(self, func: Any, effects: Effects) -> str:
        """Return the module whose parameters an op of the optimizer is about, or a gathering one.

        FSDP2 fetches the parameters of one module while another one runs.
        """
        if func.namespace in _SHARING:
            changed = {id(tensor) for tensor in effects.mutated}
            return self._ledger.owner(t for t in effects.inputs if id(t) not in changed)
        if self._phase == "optimizer":
            return self._ledger.owner(effects.mutated or effects.inputs)
        return ""
