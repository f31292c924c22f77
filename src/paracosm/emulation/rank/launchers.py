"""Scripts that start ranks themselves: the real rank runs in this process instead."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn
from urllib.parse import parse_qs, urlparse

import torch.distributed as dist
import torch.multiprocessing
from torch._C._distributed_c10d import HashStore
from torch.distributed import distributed_c10d as c10d

from paracosm.emulation.config import Setting, whole_number
from paracosm.emulation.rank.call_site import NOWHERE, call_site
from paracosm.emulation.rank.refusals import PATIENCE
from paracosm.emulation.records import COLLECTIVES
from paracosm.errors import InputError


def run_spawned_rank(setting: Setting, say: Callable[[str], None]) -> None:
    """Run the real rank of those that a script spawns, and refuse groups in forked processes.

    That is the rank-th of the functions that `torch.multiprocessing.spawn` is given, or of as many
    processes as there are ranks, whose arguments hold their number and how many they are. A process
    that was forked later has none of the threads of its groups; `say` reports such cases.
    """
    sizes = {setting.config.world, setting.config.devices}
    _run_one_of_spawn(setting.rank, sizes)
    _run_one_of_processes(setting.rank, sizes, say)
    os.register_at_fork(after_in_child=_refuse_groups)


def _run_one_of_spawn(rank: int, sizes: set[int]) -> None:
    module: Any = sys.modules["torch.multiprocessing.spawn"]
    spawn = module.start_processes

    def start_processes(
        fn: Callable[..., Any],
        args: Any = (),
        nprocs: int = 1,
        join: bool = True,
        *more: Any,
        **options: Any,
    ) -> Any:
        if dist.is_initialized():
            return spawn(fn, args, nprocs, join, *more, **options)
        if nprocs not in sizes:
            raise InputError(
                f"the script spawns {nprocs} ranks at {call_site() or NOWHERE}, but "
                f"{max(sizes):,} are emulated: --world-size {nprocs}"
            )
        fn(rank % nprocs, *args)
        return None if join else _Ended()

    module.start_processes = start_processes
    setattr(torch.multiprocessing, "start_processes", start_processes)  # noqa: B010


def _run_one_of_processes(rank: int, sizes: set[int], say: Callable[[str], None]) -> None:
    begin = BaseProcess.start
    held: list[Any] = []

    def start(process: Any) -> None:
        given = [
            argument
            for argument in (*process._args, *process._kwargs.values())
            if type(argument) is int
        ]
        size = max(sizes & set(given), default=0)
        theirs = getattr(process._target, "__module__", "").startswith("torch.")
        if theirs or dist.is_initialized() or len(held) not in given or not size:
            begin(process)
            return
        process._popen = _Ended()
        held.append(process)
        if len(held) == size:
            ranks, held[:] = held[:], []
            say(f"of {size} processes that the script started as ranks, that of rank {rank} ran")
            ranks[rank % size].run()

    setattr(BaseProcess, "start", start)  # noqa: B010  # not a method to mypy


class _Ended:
    """Stands for processes that have ended successfully."""

    returncode, pid, pids = 0, 0, ()

    def poll(self, *timeout: Any) -> int:
        return 0

    wait = poll

    def join(self, *timeout: Any, **options: Any) -> bool:
        return True

    def terminate(self) -> None:
        """Do nothing: they have ended."""

    kill = close = terminate


_BY_ANOTHER_NAME = ("all_gather_into_tensor", "reduce_scatter_tensor", "isend", "irecv")


def _refuse_groups() -> None:
    def refused(name: str) -> Callable[..., NoReturn]:
        def call(*args: Any, **options: Any) -> NoReturn:
            raise NotImplementedError(
                f"{name} at {call_site() or NOWHERE}, in a process that the script forked: one "
                "process is the real rank, as torchrun starts it"
            )

        return call

    for name in (*COLLECTIVES, *_BY_ANOTHER_NAME, "init_process_group", "new_group"):
        for module in (c10d, dist):
            setattr(module, name, refused(name))


_bound: list[Any] = []  # the device that the script bound its default group to


def keep_device() -> None:
    """Note which device a script binds its default group to; nothing else depends on it."""
    begin: Callable[..., None] = c10d.init_process_group

    @wraps(begin)
    def init_process_group(*args: Any, device_id: Any = None, **options: Any) -> None:
        is_cpu = device_id is not None and str(device_id) == "cpu"  # to which PyTorch binds none
        _bound[:] = [None if is_cpu else device_id]
        begin(*args, device_id=device_id, **options)

    for module in (c10d, dist):
        setattr(module, "init_process_group", init_process_group)  # noqa: B010


def bound_device() -> Any:
    return _bound[-1] if _bound else None


def redirect_rendezvous(setting: Setting) -> None:
    """Redirect scripts that choose their own rendezvous to the emulator's."""
    address = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    distributed: Any = c10d
    meet = distributed.rendezvous

    def rendezvous(url: str, rank: int = -1, world_size: int = -1, **options: Any) -> Any:
        rank_and_world = identity(url, rank, world_size)
        check_identity(setting, *rank_and_world)
        return meet(address, *rank_and_world, **options)

    distributed.rendezvous = rendezvous


def use_stores_of_ours(setting: Setting) -> None:
    """Meet the emulator also where a script makes a store itself, which no other rank would join.

    Of several real ranks each may join another's store.
    """
    if len(setting.config.rank) > 1:
        return
    begin: Callable[..., None] = c10d.init_process_group

    @wraps(begin)
    def init_process_group(*args: Any, store: Any = None, **options: Any) -> None:
        begin(*args, **options)

    for module in (c10d, dist):
        setattr(module, "TCPStore", LocalStore)  # noqa: B010
        setattr(module, "init_process_group", init_process_group)  # noqa: B010


class LocalStore(HashStore):
    """Takes the place of a TCPStore, without a port.

    A key that only another rank would set never arrives: waiting for one raises PyTorch's own error
    after `PATIENCE` at most.
    """

    def __init__(
        self,
        host_name: str = "127.0.0.1",
        port: int = 0,
        *args: Any,
        **options: Any,
    ) -> None:
        super().__init__()
        self.host, self.port = host_name, port
        super().set_timeout(PATIENCE)

    def set_timeout(self, timeout: timedelta) -> None:
        super().set_timeout(min(timeout, PATIENCE))


def identity(url: str, rank: int, world_size: int) -> tuple[int, int]:
    """Return the rank and the world size that a rendezvous requests."""
    options = {key: values[0] for key, values in parse_qs(urlparse(url).query).items()}

    def number(key: str, variable: str) -> int:
        if key in options:
            return whole_number(f"{key} in {url}", options[key])
        return whole_number(variable, os.environ.get(variable))

    if rank < 0:
        rank = number("rank", "RANK")
    if world_size <= 0:
        world_size = number("world_size", "WORLD_SIZE")
    return rank, world_size


def check_identity(setting: Setting, rank: int, world_size: int) -> None:
    world = setting.config.world
    if world_size != world:
        raise InputError(
            f"the script makes a world of {world_size:,} ranks, but {world:,} are emulated: "
            f"world_size should be {world_size:,}, or the script should read WORLD_SIZE"
        )
    if rank != setting.rank:
        raise InputError(
            f"the script considers itself rank {rank}, but is rank {setting.rank}: it should read "
            "RANK"
        )
