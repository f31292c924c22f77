"""A worker among others: it leaves servers, or averages its gradients without them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from paracosm.profiling.jobs.pytorch.transport import ACKNOWLEDGE, LEAVE, REQUEST
from paracosm.profiling.jobs.pytorch.worker import Step, Worker


class TrainingWorker(Worker):
    @contextmanager
    def all_reducing(self, group: dist.ProcessGroup) -> Iterator[None]:
        """Have gradients averaged over a group by `DistributedDataParallel`, without servers."""
        servers, module = self._servers, self._workload.module
        made = {segment.end.what for segment in self.segments if segment.end.kind == "gradient"}
        unused = len(made) < len(self.parameters)
        shared = DistributedDataParallel(module, process_group=group, find_unused_parameters=unused)
        self._servers, self._workload.module = 0, shared
        try:
            yield
        finally:
            self._servers, self._workload.module = servers, module

    def flat_parameters(self) -> npt.NDArray[np.float32]:
        """Return a copy of all parameters, one after the other."""
        every = [parameter.detach().flatten() for _, parameter in self.parameters]
        flat: npt.NDArray[np.float32] = torch.cat(every).numpy()
        return flat

    def leave(self) -> None:
        """Have no server wait for this worker any longer."""
        for server in range(self._servers):
            dist.send(torch.tensor([LEAVE, 0, 0, 0], dtype=torch.int64), server, tag=REQUEST)
            dist.recv(torch.zeros(1, dtype=torch.float64), server, tag=ACKNOWLEDGE)


def train_all_reducing(
    worker: TrainingWorker,
    steps: Iterator[Step],
    ranks: Sequence[int],
    lr: float,
    order: Mapping[str, Any],
) -> dict[str, Any]:
    """Run steps with the workers of those ranks; each applies the mean gradient to its own copy.

    The first of them writes snapshots of its parameters, flat, and when they were taken
    (microseconds), to the file of the order.
    """
    group = dist.new_group(ranks, backend="gloo", use_local_synchronization=True)
    is_first = dist.get_rank() == ranks[0]
    done: list[Step] = []
    updated: list[int] = []
    times: list[int] = []
    snapshots: list[Any] = []
    with worker.all_reducing(group):
        busy = time.process_time()
        time.sleep(max(0.0, order["begin"] - time.monotonic()))
        due = order["begin"]
        for _ in range(order["steps"]):
            if is_first and time.monotonic() >= due:
                times.append(_microseconds())
                snapshots.append(worker.flat_parameters())
                due += order["snapshot_every"]
            step = next(steps)
            with torch.no_grad():
                for _, parameter in worker.parameters:
                    if parameter.grad is not None:
                        parameter.sub_(parameter.grad, alpha=lr)
            step.end = time.monotonic()
            updated.append(_microseconds())
            done.append(step)
        cpu = time.process_time() - busy
    if is_first:
        times.append(_microseconds())
        snapshots.append(worker.flat_parameters())
        np.savez(order["file"], snapshot_times=times, snapshots=snapshots)
    dist.destroy_process_group(group)
    found = {key: [getattr(step, key) for step in done] for key in ("begin", "end", "loss")}
    return {"cpu": cpu, "updated": updated, **found}


def _microseconds() -> int:
    return time.monotonic_ns() // 1000
