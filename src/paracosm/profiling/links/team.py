"""Worker processes that transfer to each other, as they are told."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from paracosm.profiling.links.scenario import Scenario
from paracosm.profiling.processes import Processes, WorkerError

__all__ = ["Team", "WorkerError", "team"]


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
        made = Team("paracosm.profiling.links.worker", timeout)
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
            name = f"worker {rank} of {processes}"
            made.start(name, setup, folder / f"{rank}.txt", inherited=inherited)
        made.answers("start")
        yield made


class Team(Processes):
    """Workers that carry out every order together."""

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
        self.order(dict.fromkeys(range(len(self._workers)), order))
        by_worker = [answer["seconds"] for answer in self.answers(str(scenario))]
        return [max(row) for row in zip(*by_worker, strict=True)]


def _shared_memory() -> int:
    """Return the descriptor of memory that has no name, and so is never left behind."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("paracosm")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
