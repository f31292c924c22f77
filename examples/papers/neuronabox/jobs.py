"""Jobs whose ranks are all real, or one real and the others emulated; over the wire or modelled."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from network import FIRST, Network, Node

from paracosm.emulation.config import VARIABLE, EmulateConfig, Setting

__all__ = ["LIMIT", "PORT", "Job", "JobError", "backend_job", "real_job", "wire_job"]

LIMIT = 300.0  # seconds that an answer or an end may take
PORT = 29617  # of the rendezvous: jobs that run at a time get others
PEER = "peer"  # the process that plays, or is, what rank 0 talks to


class JobError(Exception):
    """A process of a job ended, or did not answer."""


@dataclass
class Job:
    """Processes that were started.

    Attributes:
        ranks: the real ranks.
        emulator: None where all are real, and in backend mode.
        errors: what each of them wrote to its standard error.
        first: whether they run before all others on the machine, which is for those that wait.
    """

    ranks: list[subprocess.Popen[str]] = field(default_factory=list)
    emulator: subprocess.Popen[str] | None = None
    errors: list[Path] = field(default_factory=list)
    first: bool = False

    @property
    def processes(self) -> list[subprocess.Popen[str]]:
        """All that were started."""
        return [*self.ranks, *([self.emulator] if self.emulator else [])]

    def ask(self, **command: object) -> Any:
        """Have all real ranks do something; return rank 0's answer.

        Raises:
            JobError: a rank ended, or took too long.
        """
        text = json.dumps(command) + "\n"
        for rank in self.ranks:
            assert rank.stdin is not None
            try:
                rank.stdin.write(text)
                rank.stdin.flush()
            except BrokenPipeError:
                raise JobError(self._why("a rank ended")) from None
        return self.answers()[0]

    def answers(self) -> list[Any]:
        """Return the next line of each real rank.

        Raises:
            JobError: a rank ended, or took too long.
        """
        return [json.loads(self._line(rank)) for rank in self.ranks]

    def cpu(self) -> tuple[float, float]:
        """Return seconds of processor time: of rank 0; of rank 1, or of the emulator."""
        peer = self.emulator or (self.ranks[1] if len(self.ranks) > 1 else None)
        return cpu_of(self.ranks[0].pid), 0.0 if peer is None else cpu_of(peer.pid)

    def pause(self) -> None:
        """Stop all processes, so that another job has the machine for itself."""
        for process in self.processes:
            process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        for process in self.processes:
            process.send_signal(signal.SIGCONT)

    def wait(self) -> None:
        """Wait until all real ranks have ended.

        Raises:
            JobError: one failed or took too long.
        """
        limit = time.monotonic() + LIMIT
        for rank in self.ranks:
            try:
                code = rank.wait(max(1.0, limit - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise JobError(self._why("a rank did not end")) from None
            if code:
                raise JobError(self._why(f"a rank ended with {code}"))

    def _line(self, rank: subprocess.Popen[str]) -> str:
        assert rank.stdout is not None
        limit = time.monotonic() + LIMIT
        with selectors.DefaultSelector() as selector:
            selector.register(rank.stdout, selectors.EVENT_READ)
            while not selector.select(1.0):
                if self.emulator is not None and self.emulator.poll() is not None:
                    raise JobError(self._why("the emulator ended"))
                if time.monotonic() > limit:
                    raise JobError(self._why("a rank does not answer"))
        line = rank.stdout.readline()
        if not line:
            raise JobError(self._why("a rank ended"))
        return line

    def _why(self, what: str) -> str:
        said = [line for path in self.errors for line in path.read_text().splitlines()[-12:]]
        return "\n  ".join([what, *said])


def cpu_of(pid: int) -> float:
    """Return the processor time of a process, all its threads together."""
    return time.clock_gettime(~pid << 3 | 2)


@contextmanager
def real_job(
    network: Network, world: int, command: Sequence[str], first: bool = True, port: int = PORT
) -> Iterator[Job]:
    """Run a script as all ranks of a world, each on its node."""
    with _job(first) as (job, folder):
        for rank in range(world):
            node = network.ranks[rank]
            environment = _environment(rank, world, network, node, port)
            job.ranks.append(_start(job, folder, node, [sys.executable, *command], environment))
        yield job


@contextmanager
def wire_job(
    network: Network,
    world: int,
    command: Sequence[str],
    options: Mapping[str, Any] | None = None,
    first: bool = True,
    port: int = PORT,
) -> Iterator[Job]:
    """Run a script as rank 0 of a world whose other ranks are emulated, as `paracosm emulate` does.

    With two ranks the emulator is on the node of rank 1, else on a node of its own.

    Args:
        network: with nodes for both.
        world: how many ranks.
        command: script and arguments.
        options: further fields of `EmulateConfig`.
        first: as in `Job`.
        port: of the rendezvous.
    """
    with _job(first) as (job, folder):
        node = network.ranks[1] if world == 2 else network.emulator
        config = EmulateConfig(
            script=Path(command[0]),
            arguments=tuple(command[1:]),
            world_size=world,
            mode="wire",
            port=port,
            **(options or {}),
        )
        told = Setting(config, 0, -1, folder / "emulator.records")
        environment = {
            "MASTER_ADDR": network.ranks[0].address,
            "MASTER_PORT": str(port),
            **told.environment(),
        }
        job.emulator = _start(
            job, folder, node, [sys.executable, "-m", "paracosm.emulation.wire.main"], environment
        )
        own = network.ranks[0]
        environment = _environment(0, world, network, own, port)
        runner = [sys.executable, "-m", "paracosm.emulation.rank.main"]
        told = Setting(config, 0, 0, folder / "rank0.records")
        environment[VARIABLE] = told.environment()[VARIABLE]
        job.ranks.append(_start(job, folder, own, [*runner, *command], environment))
        yield job


@contextmanager
def backend_job(
    network: Network,
    world: int,
    command: Sequence[str],
    options: Mapping[str, Any],
    first: bool = False,
) -> Iterator[Job]:
    """Run a script as rank 0 of a world with modelled communication."""
    with _job(first) as (job, folder):
        config = EmulateConfig(
            script=Path(command[0]),
            arguments=tuple(command[1:]),
            world_size=world,
            live=True,  # what the script itself sees is measured
            **options,
        )
        node = network.ranks[0]
        environment = _environment(0, world, network, node, PORT)
        told = Setting(config, 0, 0, folder / "rank0.records")
        environment[VARIABLE] = told.environment()[VARIABLE]
        runner = [sys.executable, "-m", "paracosm.emulation.rank.main"]
        job.ranks.append(_start(job, folder, node, [*runner, *command], environment))
        yield job


@contextmanager
def _job(first: bool) -> Iterator[tuple[Job, Path]]:
    """Give a job without processes, and a folder; kill in the end whatever was added."""
    job = Job(first=first and bool(FIRST))
    with tempfile.TemporaryDirectory(prefix="neuronabox-") as folder:
        try:
            yield job, Path(folder)
        finally:
            job.resume()
            for process in job.processes:
                if process.stdin is not None and process is not job.emulator:
                    process.stdin.close()  # ends a rank that waits to be asked
            for process in job.ranks:
                _end(process, 3.0)
            if job.emulator is not None:
                job.emulator.terminate()
                _end(job.emulator, 3.0)


def _end(process: subprocess.Popen[str], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _environment(rank: int, world: int, network: Network, node: Node, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": network.ranks[0].address,
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": node.interface,
        "OMP_NUM_THREADS": "1",
    }


def _start(
    job: Job, folder: Path, node: Node, command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[str]:
    errors = folder / f"{len(job.errors)}.errors"
    job.errors.append(errors)
    with errors.open("w") as file:
        return subprocess.Popen(
            [*node.prefix, *(FIRST if job.first else ()), *command],
            env=os.environ | dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
        )
