"""The ranks that a recorded collective is between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

__all__ = ["group_of"]

# Torch's own collectives find their groups in these ways.
_by_name: Any = c10d._resolve_process_group  # type: ignore[attr-defined]
_unboxed: Any = dist.ProcessGroup.unbox


def group_of(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[int, ...]:
    """Return the ranks of the group that a collective names; none where it names none."""
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
