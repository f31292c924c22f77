"""Pickled objects of emulated ranks: copies of a real rank's.

PyTorch's own functions receive the length of a pickled object first, which no emulated rank knows,
and would unpickle what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from paracosm.emulation.rank.on_import import on_import

_broadcast = c10d.broadcast_object_list
_scatter = c10d.scatter_object_list
_receive = c10d.recv_object_list


def replace_object_collectives(
    real: Sequence[int],  # global ranks
    refuse: Callable[[str], Exception],  # says what cannot be, and where
    # whether something like a tensor may be received from a rank; None where any may send it
    may_receive: Callable[[torch.Tensor, int | None], bool],
) -> None:
    """Make a real rank supply the objects that an emulated one would.

    If the root of a broadcast or scatter is emulated, the group's first real rank takes its place,
    so that every real rank agrees on the root.
    """

    def root_of(src: int | None, group: Any, group_src: int | None) -> int:
        members = dist.get_process_group_ranks(group or dist.group.WORLD)
        wanted = members[group_src] if group_src is not None else src
        root = members[0] if wanted is None else wanted
        return root if root in real else min(set(members) & set(real))

    def broadcast_object_list(
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: torch.device | None = None,
        group_src: int | None = None,
        **options: Any,
    ) -> None:
        _broadcast(object_list, root_of(src, group, group_src), group, device, **options)

    def scatter_object_list(
        scatter_object_output_list: list[Any],
        scatter_object_input_list: list[Any] | None = None,
        src: int | None = None,
        group: Any = None,
        group_src: int | None = None,
    ) -> None:
        root = root_of(src, group, group_src)
        if root == dist.get_rank() and not scatter_object_input_list:
            raise refuse("scatter_object_list from an emulated rank")
        _scatter(scatter_object_output_list, scatter_object_input_list, root, group)

    def recv_object_list(
        object_list: list[Any],
        src: int | None = None,
        group: Any = None,
        device: torch.device | None = None,
        **options: Any,
    ) -> int:
        where = device or c10d._get_object_coll_device(group or dist.group.WORLD)
        sizes = torch.empty(len(object_list), dtype=torch.long, device=where)
        if not may_receive(sizes, src):
            raise refuse("recv_object_list before a send_object_list of as many objects")
        return _receive(object_list, src, group, device, **options)  # type: ignore[no-any-return]

    for module in (c10d, dist):
        for function in (broadcast_object_list, scatter_object_list, recv_object_list):
            setattr(module, function.__name__, function)
    on_import(
        "torch.distributed.optim.zero_redundancy_optimizer",
        lambda module: _share_states(module, real),
    )


def gather_objects_from_all() -> None:
    """Gather objects to all ranks instead: in an all-gather emulated ranks return copies."""

    def gather_object(
        obj: Any,
        object_gather_list: list[Any] | None = None,
        dst: int | None = None,
        group: Any = None,
        group_dst: int | None = None,
    ) -> None:
        gathered: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(gathered, obj, group)
        if object_gather_list is not None:
            object_gather_list[:] = gathered

    for module in (c10d, dist):
        module.gather_object = gather_object  # type: ignore[attr-defined]


def _share_states(module: Any, real: Sequence[int]) -> None:
    """Give emulated ranks the real rank's part of a ZeroRedundancyOptimizer's state."""
    consolidate = module.ZeroRedundancyOptimizer.consolidate_state_dict
    broadcast = module._broadcast_object
    held: list[Any] = []

    def consolidate_state_dict(optimizer: Any, to: int = 0) -> None:
        held[:] = [optimizer.optim.state_dict()]
        consolidate(optimizer, to)

    def _broadcast_object(obj: Any, src_rank: int, *args: Any, **options: Any) -> Any:
        if src_rank in real:
            return broadcast(obj, src_rank, *args, **options)
        return broadcast(held[0], min(real), *args, **options)

    module.ZeroRedundancyOptimizer.consolidate_state_dict = consolidate_state_dict
    module._broadcast_object = _broadcast_object
