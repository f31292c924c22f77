"""Put the emulated process group where a script asks for gloo or nccl."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlparse

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from paracosm.emulation.backend.checkpoint_plan import allow_parts
from paracosm.emulation.backend.group import BACKEND, register
from paracosm.emulation.backend.local_store import LocalStore
from paracosm.emulation.backend.pipeline_stage import tell_stages
from paracosm.emulation.backend.runtime import Runtime
from paracosm.emulation.records import Note
from paracosm.errors import InputError

__all__ = ["install"]

Made = tuple[Any, Any]

_HOOKS = (
    *("_new_process_group_helper", "rendezvous", "_store_based_barrier", "split_group"),
    *("BackendConfig", "_world"),
)


def install(runtime: Runtime) -> None:
    """Register the emulated process group and give it to whoever asks for one.

    A script may ask for any backend that PyTorch knows ("gloo", "nccl", "cpu:gloo,cuda:nccl", none
    at all) and meet the other ranks anywhere (env://, tcp://, file://, a store of its own).
    `torch.distributed.get_backend` still answers what it asked for.

    Args:
        runtime: of this process.

    Raises:
        InputError: this PyTorch lacks what is replaced.
    """
    for name in _HOOKS:
        if not hasattr(c10d, name):
            raise InputError(
                f"PyTorch {torch.__version__} has no torch.distributed.distributed_c10d.{name}, "
                "which backend mode replaces: it is tested with PyTorch 2.13"
            )
    register(runtime)
    rank, world = runtime.setting.rank, runtime.setting.config.world
    _replace("_new_process_group_helper", _maker(runtime, rank, world))
    _replace("rendezvous", _rendezvous(rank, world))
    _replace("_store_based_barrier", lambda *ignored, **options: None)
    _replace("split_group", _split_group)
    for name in ("is_nccl_available", "is_gloo_available"):
        _replace(name, lambda: True)
    if not isinstance(getattr(c10d, "default_pg_nccl_timeout", None), timedelta):
        _replace("default_pg_nccl_timeout", timedelta(minutes=10))  # as where NCCL is built in
    _replace("TCPStore", LocalStore)
    tell_stages()
    allow_parts(lambda text: runtime.recorder.append(Note(rank, False, text)))


def _replace(name: str, by: Any) -> None:
    """Replace a name of torch.distributed wherever PyTorch itself has imported it to."""
    from torch.distributed import device_mesh

    setattr(c10d, name, by)
    for module in (dist, device_mesh):
        # `torch.distributed.rendezvous` is a module.
        if callable(getattr(module, name, None)):
            setattr(module, name, by)


def _maker(runtime: Runtime, rank: int, world: int) -> Callable[..., Made]:
    """Return what makes process groups."""
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
        if not _is_known(wanted):
            return make(
                group_size, group_rank, members, wanted, store, *arguments, **options
            )  # PyTorch has the right words for it
        if not members:
            if wanted == c10d.Backend.MPI:  # whose launcher says who is who
                group_size, group_rank, store = world, rank, LocalStore()
            _check_world(group_size, group_rank, world, rank)
        runtime.asked_backend = wanted
        group, prefixed = make(
            group_size, group_rank, members, BACKEND, store, *arguments, **options
        )
        if isinstance(group, dist.ProcessGroup):
            c10d._world.pg_map[group] = (wanted, prefixed)
            c10d._world.pg_backend_config[group] = str(c10d.BackendConfig(c10d.Backend(wanted)))
        return group, prefixed

    return made


def _is_known(wanted: str) -> bool:
    names = [part.rpartition(":")[2] for part in str(wanted).lower().split(",")]
    return all(name in c10d.Backend.backend_list for name in names)


def _check_world(size: int, own: int, world: int, rank: int) -> None:
    if size != world:
        raise InputError(
            f"the script makes a world of {size:,} ranks, but {world:,} are emulated: "
            f"world_size should be {size:,}, or the script should read WORLD_SIZE"
        )
    if own != rank:
        raise InputError(
            f"the script takes itself for rank {own}, but is rank {rank}: it should read RANK"
        )


def _rendezvous(rank: int, world: int) -> Callable[..., Iterator[tuple[Any, int, int]]]:
    """Return what meets nobody, and knows which rank of how many this is."""

    def meet(
        url: str, own: int = -1, size: int = -1, **options: Any
    ) -> Iterator[tuple[Any, int, int]]:
        told = {key: int(values[0]) for key, values in parse_qs(urlparse(url).query).items()}
        own = own if own >= 0 else told.get("rank", int(os.environ.get("RANK", rank)))
        size = (
            size if size > 0 else told.get("world_size", int(os.environ.get("WORLD_SIZE", world)))
        )
        yield LocalStore(), own, size

    return meet


def _split_group(
    parent_pg: Any = None,
    split_ranks: list[list[int]] | None = None,
    timeout: timedelta | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> Any:
    """Do what `torch.distributed.split_group` does, with a group that is made rather than split."""
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    parent = dist.get_process_group_ranks(parent_pg or dist.group.WORLD)
    own = parent.index(dist.get_rank())
    for ranks in split_ranks:
        if own in ranks:
            return dist.new_group(
                [parent[rank] for rank in sorted(ranks)],
                timeout=timeout,
                backend=backend or dist.get_backend(parent_pg),
                use_local_synchronization=True,
                group_desc=group_desc,
            )
    return None
