"""Run the processes of an emulated job: its real ranks, and in wire mode the emulator."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from paracosm.emulation.config import EmulateConfig, RecordedDevice, Setting
from paracosm.emulation.records import Record, RecordReader
from paracosm.emulation.wire.connection import allow_open_files
from paracosm.errors import InputError, check_installed
from paracosm.processes import interrupts_held

_STEP = 0.1  # seconds between two looks
_GRACE = 5.0  # seconds in which a process that was asked to end may do so
_GRACE_ALONE = 30.0  # seconds in which a rank without its peers may notice and end
_PYTHON = (sys.executable, "-P", "-m")  # modules in the current folder are not to hide others


@dataclass(frozen=True)
class Ended:
    exit_code: int  # of the first rank that failed, else 0; -N where signal N killed it
    emulator: int | None  # exit code of the emulator; None in backend mode
    interrupted: bool


@dataclass
class _Job:
    ranks: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    emulator: subprocess.Popen[bytes] | None = None
    readers: list[RecordReader] = field(default_factory=list)

    def news(self) -> list[Record]:
        return [record for reader in self.readers for record in reader.more()]


def run_job(
    config: EmulateConfig,
    seed: int,
    folder: Path,
    on_records: Callable[[list[Record]], None],
    device: RecordedDevice | None = None,
    messages: Path | None = None,
) -> Ended:
    """Run the script as the real ranks of the job until they end; with `device`, on that.

    With `messages`, the folder of what ranks tell those that are run after them.

    Ctrl-C is passed on to the script, and so is SIGTERM or SIGHUP to this process. New
    records go to `on_records`, their files to `folder`.
    """
    check_installed("torch", "torch", "emulation")
    port = _free_port(config.port)
    job = _Job()
    costs = contextlib.ExitStack()
    interrupted = False
    failed = 0
    try:
        if config.mode == "wire":
            allow_open_files(config.world)  # gloo has a socket for each peer
            job.emulator = _start_emulator(config, seed, folder, port, job)
        for rank in config.rank:
            setting = Setting(
                *(config, seed, rank, folder / f"rank{rank}.records", os.getpid(), device, messages)
            )
            job.ranks[rank] = _start_rank(setting, port, job, costs)
        try:
            with _signals_raise_interrupt():
                failed = _watch(job, on_records)
        except KeyboardInterrupt:
            interrupted = True
            _interrupt(job)
        emulator = _end_emulator(job)
    finally:
        for process in (*job.ranks.values(), job.emulator):
            if process is not None:
                process.kill()
                process.wait()
        costs.close()
    on_records(job.news())
    return Ended(failed or _failed(job), emulator, interrupted)


def _start_rank(
    setting: Setting,
    port: int,
    job: _Job,
    costs: contextlib.ExitStack,  # is closed when the rank has ended
) -> subprocess.Popen[bytes]:
    config = setting.config
    command = ["paracosm.emulation.rank.main", str(config.script), *config.arguments]
    out = subprocess.DEVNULL if config.output == "none" else None
    if config.output == "stderr":
        out = sys.stderr.fileno()
    sys.stdout.flush()
    variables = None
    if config.nccl:
        from paracosm.emulation.nccl.table import CostTable

        about = setting.records.parent, config, setting.seed, setting.rank
        table = costs.enter_context(CostTable(*about, setting.records))
        job.readers.append(RecordReader(table.records))
        variables = table.environment()
    return _start(command, setting, port, job, out, variables)


def _start_emulator(
    config: EmulateConfig, seed: int, folder: Path, port: int, job: _Job
) -> subprocess.Popen[bytes]:
    setting = Setting(config, seed, -1, folder / "emulator.records", os.getpid())
    return _start(["paracosm.emulation.wire.main"], setting, port, job)


def _start(
    module: list[str],
    setting: Setting,
    port: int,
    job: _Job,
    out: int | None = None,
    variables: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a process group of its own, so that it is we who pass on Ctrl-C."""
    job.readers.append(RecordReader(setting.records))
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with interrupts_held():
        return subprocess.Popen(
            [*_PYTHON, *module],
            env=inherited | address | setting.environment() | (variables or {}),
            stdin=subprocess.DEVNULL,  # in the background, reading a terminal would stop it
            stdout=out,
            process_group=0,
        )


# They are for processes that the user starts.
_NOT_INHERITED = ("PARACOSM_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE")


@contextlib.contextmanager
def _signals_raise_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP do what Ctrl-C does, unless they are ignored or handled."""
    ours = []
    if threading.current_thread() is threading.main_thread():
        candidates = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
        ours = [
            candidate for candidate in candidates if signal.getsignal(candidate) is signal.SIG_DFL
        ]
    for our_signal in ours:
        signal.signal(our_signal, signal.default_int_handler)
    try:
        yield
    finally:
        for our_signal in ours:
            signal.signal(our_signal, signal.SIG_DFL)


def _watch(job: _Job, on_records: Callable[[list[Record]], None]) -> int:
    """Pass on records until every rank has ended, or some time after one has failed.

    Return the exit code of the rank that failed first, or 0. Ranks whose emulator has failed mostly
    get an error from gloo; those that wait for connections would wait for half an hour.
    """
    failed = 0
    until: float | None = None
    while any(process.poll() is None for process in job.ranks.values()):
        time.sleep(_STEP)
        on_records(job.news())
        failed = failed or _failed(job)
        if until is None and failed:
            until = time.monotonic() + _GRACE
        elif until is None and job.emulator is not None and job.emulator.poll():
            until = time.monotonic() + _GRACE_ALONE
        if until is not None and time.monotonic() > until:
            break
    return failed


def _failed(job: _Job) -> int:
    return next((code for rank in job.ranks.values() if (code := rank.poll())), 0)


def _interrupt(job: _Job) -> None:
    """Pass Ctrl-C on to the script, and terminate it if it does not end."""
    for sign in (signal.SIGINT, signal.SIGTERM):
        for process in job.ranks.values():
            if process.poll() is None:
                process.send_signal(sign)
        deadline = time.monotonic() + _GRACE
        with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            for process in job.ranks.values():
                process.wait(max(0.0, deadline - time.monotonic()))
            return


def _end_emulator(job: _Job) -> int | None:
    if job.emulator is None:
        return None
    # Another Ctrl-C shortens the wait, and costs nothing of what was recorded.
    with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
        # It notices by itself that the last real rank has gone.
        return job.emulator.wait(1.0)
    job.emulator.terminate()
    with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
        job.emulator.wait(_GRACE)
    return job.emulator.poll()


def _free_port(asked: int | None) -> int:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", asked or 0))
        except OSError as error:
            raise InputError(
                f"port {asked}: {error.strerror}; leave --port out for a free one"
            ) from None
        return int(trial.getsockname()[1])
