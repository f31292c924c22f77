"""Collectives of Python objects that come from an emulated rank: as if it had what this rank has.

PyTorch's own receive the length of a pickled object before the object, and no emulated rank knows
one. Where this rank is the source, or there is none, PyTorch's own do.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from paracosm.emulation.backend.runtime import Runtime

__all__ = ["replace_object_collectives"]

_broadcast = c10d.broadcast_object_list
_scatter = c10d.scatter_object_list
_receive = c10d.recv_object_list


def replace_object_collectives(runtime: Runtime) -> None:
    """Replace what receives objects in torch.distributed, for the groups of this process."""

    def broadcast_object_list(
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: torch.device | None = None,
        group_src: int | None = None,
        **options: Any,
    ) -> None:
        _broadcast(object_list, dist.get_rank(), group, device, **options)

    def scatter_object_list(
        scatter_object_output_list: list[Any],
        scatter_object_input_list: list[Any] | None = None,
        src: int | None = None,
        group: Any = None,
        group_src: int | None = None,
    ) -> None:
        if not scatter_object_input_list:
            raise runtime.refuse("scatter_object_list from an emulated rank")
        own = dist.get_rank()
        _scatter(scatter_object_output_list, scatter_object_input_list, own, group)

    def recv_object_list(
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: torch.device | None = None,
        **options: Any,
    ) -> int:
        where = device or c10d._get_object_coll_device(group or dist.group.WORLD)
        sizes = torch.empty(len(object_list), dtype=torch.long, device=where)
        if not runtime.sent.has(sizes):
            raise runtime.refuse("recv_object_list before a send_object_list of as many objects")
        return _receive(object_list, src, group, device, **options)  # type: ignore[no-any-return]

    for module in (c10d, dist):
        for function in (broadcast_object_list, scatter_object_list, recv_object_list):
            setattr(module, function.__name__, function)
