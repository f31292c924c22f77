"""Replace gloo and nccl in a script by the emulated process group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from paracosm.emulation.backend.group import BACKEND, EmulatedGroup, register
from paracosm.emulation.backend.runtime import GroupRuntime
from paracosm.emulation.rank.checkpoints import allow_parts
from paracosm.emulation.rank.launchers import (
    LocalStore,
    bound_device,
    check_identity,
    identity,
)
from paracosm.emulation.rank.nccl_names import give_nccl_names
from paracosm.emulation.rank.objects import replace_object_collectives
from paracosm.emulation.rank.pipelines import tell_stages
from paracosm.emulation.rank.scatters import watch_parts
from paracosm.emulation.records import Note
from paracosm.errors import InputError

Made = tuple[Any, Any]

_HOOKS = (
    *("_new_process_group_helper", "rendezvous", "_store_based_barrier", "split_group"),
    *("BackendConfig", "_world"),
)


def install(runtime: GroupRuntime) -> None:
    """Register the emulated process group and use it for every group of the script's.

    A script may ask for any backend that PyTorch knows ("gloo", "nccl", "cpu:gloo,cuda:nccl", none
    at all) and meet the other ranks anywhere (env://, tcp://, file://, a store of its own).
    `torch.distributed.get_backend` still returns what it asked for.
    """
    for name in _HOOKS:
        if not hasattr(c10d, name):
            raise InputError(
                f"PyTorch {torch.__version__} has no torch.distributed.distributed_c10d.{name}, "
                "which backend mode replaces: it is tested with PyTorch 2.13"
            )
    register(runtime)
    rank = runtime.setting.rank
    replace_object_collectives((rank,), runtime.refuse, runtime.may_receive)
    _replace("_new_process_group_helper", _maker(runtime))
    skip_rendezvous()
    for name in ("is_nccl_available", "is_gloo_available"):
        _replace(name, lambda: True)
    give_nccl_names(runtime.refuse, _stands_for("nccl"), _stands_for("gloo"))
    if not isinstance(getattr(c10d, "default_pg_nccl_timeout", None), timedelta):
        _replace("default_pg_nccl_timeout", timedelta(minutes=10))  # as where NCCL is built in
    tell_stages(neighbours=runtime.neighbours)
    watch_parts(runtime.parts)
    allow_parts(lambda text: runtime.recorder.append(Note(rank, False, text)))


def _stands_for(library: str) -> Callable[[Any], bool]:
    def stands(group: Any) -> bool:
        return isinstance(group, EmulatedGroup) and library in group.libraries

    return stands


def skip_rendezvous() -> None:
    """Make rendezvous and new groups return at once, without waiting for other ranks."""
    _replace("rendezvous", _rendezvous)
    _replace("_store_based_barrier", lambda *ignored, **options: None)
    _replace("split_group", _split_group)
    _replace("TCPStore", LocalStore)


def _replace(name: str, by: Any) -> None:
    from torch.distributed import device_mesh

    setattr(c10d, name, by)
    for module in (dist, device_mesh):
        # `torch.distributed.rendezvous` is a module.
        if callable(getattr(module, name, None)):
            setattr(module, name, by)


def _maker(runtime: GroupRuntime) -> Callable[..., Made]:
    rank, world = runtime.setting.rank, runtime.setting.config.world
    make: Callable[..., Made] = c10d._new_process_group_helper

    def made(
        group_size: int,
        group_rank: int,
        members: list[int],
        wanted: str,
        store: Any,
        *arguments: Any,
        **options: Any,
    ) -> Made:
        names = [part.rpartition(":")[2] for part in str(wanted).lower().split(",")]
        if any(name not in c10d.Backend.backend_list for name in names):
            # PyTorch has the right words for it
            return make(group_size, group_rank, members, wanted, store, *arguments, **options)
        if not members:
            if wanted == c10d.Backend.MPI:  # whose launcher says who is who
                group_size, group_rank, store = world, rank, LocalStore()
            check_identity(runtime.setting, group_rank, group_size)
        runtime.asked_backend = wanted
        group, prefixed = make(
            group_size, group_rank, members, BACKEND, store, *arguments, **options
        )
        if isinstance(group, dist.ProcessGroup):
            c10d._world.pg_map[group] = (wanted, prefixed)
            c10d._world.pg_backend_config[group] = str(c10d.BackendConfig(c10d.Backend(wanted)))
        return group, prefixed

    return made


def _rendezvous(url: str, rank: int = -1, world_size: int = -1, **options: Any) -> Iterator[Any]:
    yield LocalStore(), *identity(url, rank, world_size)


def _split_group(
    parent_pg: Any = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> Any:
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    if bound_device() is None:
        raise RuntimeError(
            "No device associated with the default pg, not safe to split any process groups"
        )
    parent = dist.get_process_group_ranks(parent_pg or dist.group.WORLD)
    member = parent.index(dist.get_rank())
    for ranks in split_ranks:
        if member in ranks:
            return dist.new_group(
                [parent[rank] for rank in sorted(ranks)],
                timeout=timeout,
                backend=backend or dist.get_backend(parent_pg),
                use_local_synchronization=True,
                group_desc=group_desc,
            )
    return None
