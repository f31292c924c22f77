"""Worker processes that stand by for orders, and what is said when one of them dies or hangs."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from paracosm.profiling.links.scenario import Scenario

__all__ = ["Team", "WorkerError", "team"]

_GRACE = 1.0  # seconds in which the worker that died first is told from those that then complain


class WorkerError(RuntimeError):
    """A worker failed; the message is one line."""


@contextlib.contextmanager
def team(processes: int, backend: str, largest: int, timeout: float) -> Iterator[Team]:
    """Start `processes` workers, and end them with the block.

    Args:
        processes: their number.
        backend: of `torch.distributed`, "gloo" or "nccl".
        largest: bytes of the largest message.
        timeout: seconds for any one answer.

    Raises:
        WorkerError: one of them could not start.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paracosm-")))
        memory = _shared_memory()
        pipes = [os.pipe(), os.pipe()]
        inherited = [memory, *pipes[0], *pipes[1]]
        for descriptor in inherited:
            stack.callback(os.close, descriptor)
        os.ftruncate(memory, 4 * largest)
        made = Team(timeout)
        stack.callback(made.end)
        for rank in range(processes):
            signals = (pipes[rank][0], pipes[1 - rank][1]) if rank < 2 else (-1, -1)
            setup = {
                "rank": rank,
                "ranks": processes,
                "memory": memory,
                "signals": signals,
                "backend": backend,
                "store": str(folder / "store"),
                "timeout": timeout,
            }
            made.add(setup, inherited, folder / f"{rank}.txt")
        made.answers("start")
        yield made


class Team:
    """Workers that carry out every order together."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._workers: list[subprocess.Popen[bytes]] = []
        self._said: list[Path] = []
        self._heard: list[bytes] = []

    def add(self, setup: dict[str, Any], inherited: list[int], said: Path) -> None:
        """Start one more worker; what it prints goes to the file `said`."""
        with said.open("wb") as errors:
            worker = subprocess.Popen(
                [sys.executable, "-m", "paracosm.profiling.links.worker", json.dumps(setup)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                pass_fds=inherited,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C is for us; we end them
            )
        self._workers.append(worker)
        self._said.append(said)
        self._heard.append(b"")

    def run(self, scenario: Scenario, size: int, times: int, rows: int) -> list[float]:
        """Return seconds of one message, one number a row: those of the slowest worker.

        Args:
            scenario: what to do.
            size: bytes of a message.
            times: calls in a row.
            rows: how many rows.

        Raises:
            WorkerError: a worker died, failed, or did not answer in time.
        """
        order = {"scenario": asdict(scenario), "size": size, "times": times, "rows": rows}
        line = (json.dumps(order) + "\n").encode()
        for worker in self._workers:
            with contextlib.suppress(BrokenPipeError):  # `answers` finds out why
                _pipe(worker.stdin).write(line)
                _pipe(worker.stdin).flush()
        by_worker = [answer["seconds"] for answer in self.answers(str(scenario))]
        return [max(row) for row in zip(*by_worker, strict=True)]

    def answers(self, what: str) -> list[dict[str, Any]]:
        """Return one answer of each worker."""
        deadline = time.monotonic() + self._timeout
        found: dict[int, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for rank, worker in enumerate(self._workers):
                selector.register(_pipe(worker.stdout), selectors.EVENT_READ, rank)
            while len(found) < len(self._workers):
                ready = selector.select(deadline - time.monotonic())
                if not ready:
                    late = next(r for r in range(len(self._workers)) if r not in found)
                    raise WorkerError(
                        f"{self._name(late)} did not answer within {self._timeout:g} s ({what})"
                    )
                for key, _ in ready:
                    answer = self._hear(key.data)
                    if answer is not None:
                        found[key.data] = answer
        return [found[rank] for rank in sorted(found)]

    def end(self) -> None:
        """End all workers at once."""
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.wait()
            _pipe(worker.stdout).close()
            with contextlib.suppress(BrokenPipeError):
                _pipe(worker.stdin).close()

    def _hear(self, rank: int) -> dict[str, Any] | None:
        """Read what there is from a worker, and return its answer if that was all of it."""
        more = os.read(_pipe(self._workers[rank].stdout).fileno(), 1 << 16)
        self._heard[rank] += more
        line, newline, rest = self._heard[rank].partition(b"\n")
        if not newline:
            if not more:
                raise WorkerError(self._why(rank, "ended"))
            return None
        self._heard[rank] = rest
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(self._why(rank, str(answer["error"])))
        return answer

    def _why(self, rank: int, reason: str) -> str:
        """Say who failed first: the others complain that a connection is closed."""
        deadline = time.monotonic() + _GRACE
        while time.monotonic() < deadline:
            for each, worker in enumerate(self._workers):
                if (code := worker.poll()) not in (None, 0):
                    return f"{self._name(each)} {_ending(code or 0)}{self._last_words(each)}"
            time.sleep(0.02)
        return f"{self._name(rank)}: {reason}"

    def _name(self, rank: int) -> str:
        return f"worker {rank} of {len(self._workers)}"

    def _last_words(self, rank: int) -> str:
        lines = self._said[rank].read_text(errors="replace").strip().splitlines()
        return f": {lines[-1].strip()}" if lines else ""


def _ending(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _shared_memory() -> int:
    """Return the descriptor of memory that has no name, and so is never left behind."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("paracosm")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
