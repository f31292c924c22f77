"""What an emulated root scatters: the parts that a real rank would scatter in its place.

A rank that is not the root gives `torch.distributed.scatter` no tensors. Functions of PyTorch's
that are built on it have them on every rank, and the root's are like the real rank's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from operator import itemgetter
from typing import Any

from torch import Tensor

from paracosm.emulation.rank.on_import import on_import


class Parts(threading.local):
    """The tensors, one for each rank of the group, that this rank holds while it calls `scatter`.

    Attributes:
        held: None where the caller holds none.
    """

    held: Sequence[Tensor] | None = None


def watch_parts(parts: Parts) -> None:
    """Note the parts in those functions of PyTorch's that have them on every rank."""

    def holding(call: Callable[..., Any], parts_of: Callable[[Any], Sequence[Tensor]]) -> Any:
        @wraps(call)
        def held(*arguments: Any, **options: Any) -> Any:
            before, parts.held = parts.held, parts_of(arguments)
            try:
                return call(*arguments, **options)
            finally:
                parts.held = before

        return held

    def change_functions(module: Any) -> None:
        for function in (module._AlltoAll, module._Scatter):
            function.forward = staticmethod(holding(function.forward, itemgetter(_PARTS)))

    def change_meshes(module: Any) -> None:
        module.mesh_scatter = holding(module.mesh_scatter, itemgetter(1))

    on_import("torch.distributed.nn.functional", change_functions)
    on_import("torch.distributed.tensor._collective_utils", change_meshes)


_PARTS = slice(3, None)  # behind the context, and two of the group, the root and the outputs
