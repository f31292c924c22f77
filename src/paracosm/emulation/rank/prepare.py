"""Prepare this process to be a real rank: records, observation, and in backend mode the backend."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import socket
import sys
import traceback
from collections.abc import Callable
from functools import cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.distributed import distributed_c10d as c10d

from paracosm.addresses import is_local
from paracosm.emulation.config import Setting
from paracosm.emulation.rank.announce import announce, tell_members
from paracosm.emulation.rank.call_site import NOWHERE, is_inside
from paracosm.emulation.rank.checkpoints import TOO_EARLY, allow_parts, watch_checkpoints
from paracosm.emulation.rank.cuda_on_cpu import use_cpu_for_cuda
from paracosm.emulation.rank.gloo_threads import wait_before_groups_end, wait_for_gloo
from paracosm.emulation.rank.launchers import (
    keep_device,
    redirect_rendezvous,
    run_spawned_rank,
    use_stores_of_ours,
)
from paracosm.emulation.rank.objects import gather_objects_from_all, replace_object_collectives
from paracosm.emulation.rank.observe import Waits, observe, watch_works
from paracosm.emulation.rank.on_import import on_import
from paracosm.emulation.rank.pipelines import tell_stages, watch_steps
from paracosm.emulation.rank.refusals import refuse_what_needs_peers, refuser
from paracosm.emulation.records import CPU_FOR_CUDA, Note, RecordWriter
from paracosm.emulation.wire.announcements import AnnouncementWriter, announcements_file
from paracosm.emulation.wire.store import bound
from paracosm.errors import InputError

if TYPE_CHECKING:
    from paracosm.emulation.backend.runtime import GroupRuntime, Runtime

_EMULATOR = "emulator.records"


def prepare(setting: Setting) -> None:
    """Make this process the rank that `setting` describes; its records are complete at its end."""
    recorder = RecordWriter(setting.records)
    end = _End(setting, recorder)  # first, since what is registered later is called before
    refuse_what_needs_peers(setting.config, recorder)

    def note(text: str) -> None:
        recorder.append(Note(setting.rank, False, text))

    run_spawned_rank(setting, note)
    where = "with --nccl" if setting.config.nccl else f"in {setting.config.mode} mode"
    refuse = refuser(recorder, setting.rank, f"not supported {where}")
    runtime: GroupRuntime | None = None
    if setting.device is not None:
        from paracosm.emulation.device.prepare import prepare_device

        prepare_device(setting, setting.device, recorder, end.watch_groups)
        return
    if setting.config.nccl:
        from paracosm.emulation.nccl.rank import prepare_nccl

        end.record_ended = prepare_nccl(setting, recorder, refuse)
    elif setting.config.mode == "backend":
        runtime = _prepare_backend(setting, recorder, end)
        if setting.messages is not None:
            refuse_early = refuser(recorder, setting.rank, TOO_EARLY)
            watch_checkpoints(setting.messages, setting.rank, note, refuse_early)
    else:
        redirect_rendezvous(setting)
        replace_object_collectives(setting.config.rank, refuse, lambda sizes, source: True)
        gather_objects_from_all()
        _bind_store_locally()
        use_stores_of_ours(setting)
        if len(setting.config.rank) == 1:
            allow_parts(note)
        tell_stages(setting.config.rank)
        tell_members()
        writer = AnnouncementWriter(announcements_file(setting.records, setting.rank))
        announce(writer, setting.config.rank)
        signals = Signals(setting.records.with_name(_EMULATOR))
        waits = Waits(recorder, setting.rank, signals.wait_ended)
        watch_works(waits)
        observe(recorder, setting.rank, waits, signals.iteration_ended)
        watch_steps(setting.rank, waits.now, writer.step)
        wait_before_groups_end()

    @cache
    def asked() -> None:
        note(CPU_FOR_CUDA)
        if runtime is not None:
            runtime.cpu_is_cuda = True

    has_gpu = setting.config.nccl or torch.cuda.is_available()
    if setting.config.device == "cpu" or not has_gpu:
        why = (
            "the CPU takes the place of a GPU here (--device cpu), and cannot do that; emulate "
            "--hardware NAME says what the script does on a GPU that is not there"
        )
        use_cpu_for_cuda(setting.config, refuser(recorder, setting.rank, why), asked)
    keep_device()
    end.watch_groups()
    # What torch.compile finds of this package runs as it is.
    on_import("torch._dynamo.trace_rules", lambda rules: rules.add("paracosm"))


def _bind_store_locally() -> None:
    """Bind the store of a real rank 0 to this machine; PyTorch listens on all interfaces."""
    # A function of the same name hides the module.
    rendezvous: Any = importlib.import_module("torch.distributed.rendezvous")
    make = rendezvous.TCPStore

    def store(*, host_name: str, port: int, is_master: bool, **options: Any) -> Any:
        if is_master and is_local(host_name):
            with contextlib.suppress(OSError):  # it listens already, since an earlier group
                options["master_listen_fd"] = bound(host_name, port).detach()
        return make(host_name=host_name, port=port, is_master=is_master, **options)

    rendezvous.TCPStore = store


def _prepare_backend(setting: Setting, recorder: RecordWriter, end: _End) -> Runtime:
    from paracosm.emulation.backend.install import install
    from paracosm.emulation.backend.runtime import Runtime
    from paracosm.emulation.communication import communication_of
    from paracosm.emulation.peers import peers_of, time_factors

    config, rank = setting.config, setting.rank
    peers = peers_of(config, rank, setting.seed)
    has_device = config.device != "cpu" and torch.cuda.is_available()
    is_live = has_device if config.live is None else config.live
    measures = setting.messages is not None or not is_live
    if not measures and time_factors(config)[rank] != 1:
        raise InputError(
            f"rank {rank} is real and computes as fast as its device: --device cpu, or --no-live, "
            "to change that"
        )
    waits = Waits(recorder, rank, peers.resumed, measures)
    communication = communication_of(config)
    runtime = Runtime(setting, recorder, communication, peers, waits, measures)
    end.record_ended = runtime.record_ended
    install(runtime)
    observe(recorder, rank, waits, peers.iteration_ended)
    if measures:
        watch_steps(rank, waits.now, recorder.append)
    return runtime


class _End:
    def __init__(self, setting: Setting, recorder: RecordWriter) -> None:
        self.record_ended: Callable[[float], None] = lambda now: None
        self._setting = setting
        self._recorder = recorder
        self._process = os.getpid()
        self._never = ""  # what to say of a script that never made a group
        at_once = os._exit

        def exit_at_once(status: int) -> NoReturn:
            if os.getpid() == self._process:
                self.record_ended(inf)
                self._recorder.flush()
            at_once(status)

        os._exit = exit_at_once
        os.register_at_fork(after_in_child=self._recorder.abandon)
        atexit.register(self._end)

    def watch_groups(self) -> None:
        make: Callable[..., Any] = c10d._new_process_group_helper
        self._never = _NEVER

        def made(*arguments: Any, **options: Any) -> Any:
            self._never = ""
            return make(*arguments, **options)

        c10d._new_process_group_helper = made

    def _end(self) -> None:
        if os.getpid() != self._process:
            return
        has_failed = self._setting.device is not None and hasattr(sys, "last_value")
        error = getattr(sys, "last_value", None)
        refused = isinstance(error, NotImplementedError)  # which was noted where it was
        if self._setting.messages is not None and error is not None and not refused:
            self._recorder.append(Note(self._setting.rank, True, _alone(self._setting, error)))
        elif self._never and not has_failed:  # its own error says more
            self._recorder.append(Note(self._setting.rank, True, self._never))
        self._recorder.close()
        wait_for_gloo()  # the interpreter ends next


_NEVER = (
    "the script never called torch.distributed.init_process_group: nothing was emulated; see its "
    "output. It must be one rank, as torchrun starts it, or start all emulated ranks: with "
    "torch.multiprocessing.spawn, or as processes that are given rank and world size; it finds as "
    "many CUDA devices as its machine has ranks (--local-world-size)"
)


def _alone(setting: Setting, error: BaseException) -> str:
    """Say why a rank cannot run while all others are emulated, and what to do instead."""
    frames = list(traceback.walk_tb(error.__traceback__))
    sites = [
        f"{Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in frames
        if not is_inside(frame.f_code.co_filename)
    ]
    site = sites[-1] if sites else NOWHERE
    first, *_ = str(error).splitlines() or [""]
    return (
        f"rank {setting.rank}, which runs alone, ended with {type(error).__name__} at {site}: "
        f"{first:.300}; if it lacks what another rank gives, run both at a time: --mode wire "
        f"--rank {setting.rank},N"
    )


class Signals:
    """Sends datagrams to the emulator: b"w" when a wait has ended, b"i" when an iteration has.

    An emulator that is not listening misses them; sending never blocks.
    """

    def __init__(self, records: Path) -> None:
        self._address = f"{records}.signals"  # next to the emulator's records
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def wait_ended(self, now: float) -> None:
        self._send(b"w")

    def iteration_ended(self, now: float) -> None:
        self._send(b"i")

    def _send(self, message: bytes) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(message, self._address)
