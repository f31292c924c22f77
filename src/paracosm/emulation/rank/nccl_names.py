"""PyTorch's names of NCCL, where it is built without NCCL but scripts are told that it has it.

Functions of `torch.distributed` look for `ProcessGroupNCCL` once `is_nccl_available()` is true.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist
from torch._C import _distributed_c10d
from torch.distributed import distributed_c10d as c10d

_bindings: Any = _distributed_c10d

IsGroup = Callable[[Any], bool]


def give_nccl_names(
    refuse: Callable[[str], Exception],  # says what cannot be, and where
    is_nccl: IsGroup | None = None,  # whether an emulated group stands for one of NCCL
    is_gloo: IsGroup | None = None,
) -> None:
    """Make `ProcessGroupNCCL` and `ProcessGroupGloo` recognise the groups that stand for them.

    `ProcessGroupNCCL.Options()` takes any option of NCCL's. No script can make such a group itself,
    past `init_process_group` and `new_group`: it would not be emulated.
    """
    nccl, gloo = (getattr(c10d, f"ProcessGroup{name}", None) for name in ("NCCL", "Gloo"))
    if nccl is None:
        nccl = _without_nccl(refuse)
    _name("ProcessGroupNCCL", _recognising(nccl, is_nccl, refuse))
    if gloo is not None:
        _name("ProcessGroupGloo", _recognising(gloo, is_gloo, refuse))
    if not hasattr(_bindings, "_hash_tensors"):  # which PyTorch logs with TORCH_DISTRIBUTED_DEBUG
        _bindings._hash_tensors = lambda tensors: hash(tuple(x.numel() for x in tensors))


def _without_nccl(refuse: Callable[[str], Exception]) -> Any:
    class ProcessGroupNCCL:
        Options = _Options

        def __init__(self, *arguments: Any, **options: Any) -> None:
            raise _refused("ProcessGroupNCCL", refuse)

    for number, name in enumerate(_POLICIES):
        setattr(ProcessGroupNCCL, name, number)
    return ProcessGroupNCCL


_POLICIES = ("NCCL_CTA_POLICY_DEFAULT", "NCCL_CTA_POLICY_EFFICIENCY", "NCCL_CTA_POLICY_ZERO")


class _Options:
    """What a script sets for NCCL; nothing here depends on it."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self.config = SimpleNamespace()
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""
        self.split_from: Any = None
        self.split_color = 0
        self.backend = "nccl"
        self._timeout = timedelta(minutes=10)


def _refused(name: str, refuse: Callable[[str], Exception]) -> Exception:
    return refuse(f"{name} (init_process_group and new_group make emulated groups)")


def _recognising(real: Any, recognises: IsGroup | None, refuse: Callable[[str], Exception]) -> Any:
    """Return a class whose instances are those of another, and what stands for them.

    None are made of it, as they would not be emulated.
    """
    if recognises is None:
        return real
    stands_for = recognises

    def recognise(kind: Any, group: Any) -> bool:
        return isinstance(group, real) or stands_for(group)

    def begin(group: Any, *arguments: Any, **options: Any) -> None:
        raise _refused(real.__name__, refuse)

    # A class of C++ has a metaclass of its own.
    Recognised = type("Recognised", (type(real),), {"__instancecheck__": recognise})
    return Recognised(real.__name__, (real,), {"__doc__": real.__doc__, "__init__": begin})


def _name(name: str, by: Any) -> None:
    for module in (c10d, dist, _bindings):
        setattr(module, name, by)
