"""Start the processes of an emulated job, watch them, and end them in good order."""

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
from typing import IO

from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.rank.identity import identity
from paracosm.emulation.records import Record, RecordReader
from paracosm.emulation.setting import VARIABLE, Setting
from paracosm.emulation.wire.open_files import allow_open_files
from paracosm.errors import InputError, require

__all__ = ["PLAN", "Ended", "run_job"]

PLAN = "plan.npz"
"""The file of a backend run that says what the real rank communicated."""

_STEP = 0.1  # seconds between two looks
_GRACE = 5.0  # seconds in which a process that was asked to end may do so
_GRACE_ALONE = 30.0  # seconds in which a rank without its peers may notice and end
_EMULATOR = "emulator"
_PYTHON = (sys.executable, "-P", "-m")  # modules in the current folder are not to hide others


@dataclass(frozen=True)
class Ended:
    """How a job ended.

    Attributes:
        exit_code: of the first real rank that failed, else 0; -N where signal N killed it.
        emulator: exit code of the emulator; None in backend mode.
        interrupted: whether the user ended it.
    """

    exit_code: int
    emulator: int | None
    interrupted: bool


@dataclass
class _Job:
    """The processes of a job, by name, and their records."""

    ranks: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    emulator: subprocess.Popen[bytes] | None = None
    readers: list[RecordReader] = field(default_factory=list)

    @property
    def processes(self) -> list[subprocess.Popen[bytes]]:
        """All that were started."""
        return [*self.ranks.values(), *([self.emulator] if self.emulator else [])]

    def records(self) -> list[Record]:
        """Return what was recorded since the last call."""
        return [record for reader in self.readers for record in reader.more()]


def run_job(
    config: EmulateConfig, seed: int, folder: Path, heard: Callable[[list[Record]], None]
) -> Ended:
    """Run the script as the real ranks of the job until they end.

    Ctrl-C is passed on to the script, and so is SIGTERM or SIGHUP to this process; what has been
    recorded until then is heard.

    Args:
        config: what is emulated.
        seed: of all that is random.
        folder: where the processes write records, and in backend mode the plan.
        heard: is told the records as they come.

    Raises:
        InputError: PyTorch is missing; the port is in use; the world needs more open files than
            are allowed.
    """
    require("torch", "torch", "emulation")
    port = _free_port(config.port)
    job = _Job()
    interrupted = False
    failed = 0
    try:
        if config.mode == "wire":
            allow_open_files(config.world)  # gloo has a socket for each peer
            job.emulator = _start_emulator(config, seed, folder, port, job)
        for rank in config.rank:
            job.ranks[rank] = _start_rank(config, seed, rank, folder, port, job)
        try:
            with _ended_by_signals():
                failed = _watch(job, heard)
        except KeyboardInterrupt:
            interrupted = True
            _interrupt(job)
        emulator = _end_emulator(job)
    finally:
        for process in job.processes:
            process.kill()
            process.wait()
    heard(job.records())
    return Ended(failed or _failed(job), emulator, interrupted)


def _start_rank(
    config: EmulateConfig, seed: int, rank: int, folder: Path, port: int, job: _Job
) -> subprocess.Popen[bytes]:
    records = folder / f"rank{rank}.records"
    job.readers.append(RecordReader(records))
    plan = folder / PLAN if config.mode == "backend" else None
    told = Setting(config, seed, rank, records, plan)
    environment = {
        **identity(config, rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        VARIABLE: told.to_text(),
    }
    script = str(config.script)
    command = [*_PYTHON, "paracosm.emulation.rank.main", script, *config.arguments]
    with _output(config.output) as out:
        return _start(command, environment, out)


def _start_emulator(
    config: EmulateConfig, seed: int, folder: Path, port: int, job: _Job
) -> subprocess.Popen[bytes]:
    records = folder / f"{_EMULATOR}.records"
    job.readers.append(RecordReader(records))
    environment = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        VARIABLE: Setting(config, seed, -1, records).to_text(),
    }
    command = [*_PYTHON, "paracosm.emulation.wire.main"]
    return _start(command, environment, None)


def _start(
    command: list[str], environment: dict[str, str], out: IO[bytes] | int | None
) -> subprocess.Popen[bytes]:
    """Start a process in a process group of its own, so that Ctrl-C is ours to pass on.

    It has no standard input: what reads from a terminal in the background would be stopped.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    return subprocess.Popen(
        command,
        env=inherited | environment,
        stdin=subprocess.DEVNULL,
        stdout=out,
        process_group=0,
    )


# They speak to processes that the user starts.
_NOT_INHERITED = ("PARACOSM_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE")


@contextlib.contextmanager
def _output(where: str) -> Iterator[IO[bytes] | int | None]:
    """Give the standard output of a script."""
    if where == "none":
        yield subprocess.DEVNULL
    elif where == "stderr":
        yield sys.stderr.fileno()
    else:
        sys.stdout.flush()
        yield None


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP do what Ctrl-C does, but where they are ignored or handled."""
    ours = []
    if threading.current_thread() is threading.main_thread():
        candidates = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
        ours = [each for each in candidates if signal.getsignal(each) is signal.SIG_DFL]
    for each in ours:
        signal.signal(each, signal.default_int_handler)
    try:
        yield
    finally:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)


def _watch(job: _Job, heard: Callable[[list[Record]], None]) -> int:
    """Hear records until every rank has ended, or one has failed and the others do not.

    Ranks whose emulator has failed mostly get an error of gloo's; those that wait for connections
    would wait for half an hour.

    Returns:
        The exit code of the rank that failed first; 0 where none has.
    """
    failed = 0
    until: float | None = None
    while any(process.poll() is None for process in job.ranks.values()):
        time.sleep(_STEP)
        heard(job.records())
        failed = failed or _failed(job)
        if until is None and failed:
            until = time.monotonic() + _GRACE
        elif until is None and job.emulator is not None and job.emulator.poll():
            until = time.monotonic() + _GRACE_ALONE
        if until is not None and time.monotonic() > until:
            break
    return failed


def _failed(job: _Job) -> int:
    """Return the exit code of a rank that has failed by now; 0 where none has."""
    return next((code for each in job.ranks.values() if (code := each.poll())), 0)


def _interrupt(job: _Job) -> None:
    """Pass Ctrl-C on to the script, and end it if it does not end itself."""
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
    """Let the emulator write what it has, and return its exit code."""
    if job.emulator is None:
        return None
    # Another Ctrl-C shortens the wait, and costs nothing of what was recorded.
    with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
        # It notices by itself that the last real rank has gone.
        job.emulator.wait(1.0)
    if job.emulator.poll() is None:
        job.emulator.terminate()
        with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            job.emulator.wait(_GRACE)
    return job.emulator.poll()


def _free_port(asked: int | None) -> int:
    """Return a port that nobody listens on.

    Raises:
        InputError: the one that was asked for is in use.
    """
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", asked or 0))
        except OSError as error:
            raise InputError(
                f"port {asked}: {error.strerror}; leave --port out for a free one"
            ) from None
        return int(trial.getsockname()[1])
