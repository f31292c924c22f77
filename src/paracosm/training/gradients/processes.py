"""Gradients on a pool of processes, for models whose gradients are expensive."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import joblib
import numpy as np
import numpy.typing as npt
import torch
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.backend.reduction import dumps
from torch import nn

from paracosm.errors import InputError
from paracosm.factory import one_line
from paracosm.models import DataSet, Model
from paracosm.training.gradients.one_by_one import Stepper
from paracosm.training.gradients.pending import Gradient, PendingGradient
from paracosm.training.gradients.traits import Traits
from paracosm.training.parameters import ParameterLayout

__all__ = ["ProcessPool", "available_cores"]

_TASKS_PER_PROCESS = 4  # of one call, so that no process waits long for the last
_MEMORY = 256 * 2**20  # bytes of parameters shared with the processes

Array = npt.NDArray[Any]


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return int(joblib.cpu_count())


class ProcessPool:
    """The method that computes gradients on processes.

    Each process holds the model. Parameters are rows of a matrix in shared memory, where gradients
    take their places; minibatches travel. Processes start with the first task and live until
    `close`.

    Raises:
        InputError: the model cannot be sent to another process.
    """

    def __init__(
        self,
        model: Model,
        layout: ParameterLayout,
        data: DataSet,
        traits: Traits,
        seed: int,
        processes: int,
        workers: int,
    ) -> None:
        self.processes = processes
        self._data = data
        self._module = model.module
        self._moving_buffers = traits.moving_buffers
        rows = min(workers, max(processes, _MEMORY // (4 * layout.size)))
        # The file lives as long as the pool, which `with` cannot say.
        self._file = NamedTemporaryFile(dir=_fast_folder(4 * rows * layout.size))  # noqa: SIM115
        self._matrix = np.memmap(self._file.name, np.float32, "w+", shape=(rows, layout.size))
        try:
            stepper = bytes(dumps((model, layout, traits, seed)))
        except Exception as error:
            raise InputError(f"the model cannot be sent to processes: {one_line(error)}") from error
        threads = max(1, available_cores() // processes)
        self._executor = ProcessPoolExecutor(
            processes,
            timeout=None,
            initializer=_start,
            initargs=(stepper, threads, self._file.name, self._matrix.shape),
        )
        self._warming: list[Future[None]] = []

    def warm_up(self) -> bool:
        """Start the processes without waiting for them; return whether they have started."""
        if not self._warming:
            self._warming = [self._executor.submit(_nothing) for _ in range(self.processes)]
        return all(future.done() for future in self._warming)

    def compute(self, requests: list[PendingGradient]) -> list[Gradient]:
        """Return the gradients of the requests, in their order.

        Every task starts from the buffers as they are now and changes them request by request. A
        running statistic becomes the mean of what the tasks end with; a count adds up.
        """
        rows = len(self._matrix)
        gradients: list[Gradient] = []
        for begin in range(0, len(requests), rows):
            gradients += self._compute(requests[begin : begin + rows])
        return gradients

    def close(self) -> None:
        """End the processes."""
        self._executor.shutdown(wait=True, kill_workers=True)
        self._file.close()

    def _compute(self, requests: list[PendingGradient]) -> Iterator[Gradient]:
        """Compute as many gradients as the matrix has rows."""
        for row, request in zip(self._matrix, requests, strict=False):
            assert request.parameters is not None
            row[:] = request.parameters.numpy()
        moving = dict(self._module.named_buffers()) if self._moving_buffers else {}
        buffers = {name: buffer.numpy().copy() for name, buffer in moving.items()}
        length = -(-len(requests) // (_TASKS_PER_PROCESS * self.processes))
        x, y = self._data.train_x.numpy(), self._data.train_y.numpy()
        tasks: list[Future[tuple[list[float], dict[str, Array]]]] = []
        for first in range(0, len(requests), length):
            batches = [
                _Batch(first + index, x[request.batch], y[request.batch], request.number)
                for index, request in enumerate(requests[first : first + length])
            ]
            tasks.append(self._executor.submit(_gradients, batches, buffers))
        losses: list[float] = []
        for task in tasks:
            more, changes = task.result()
            losses += more
            for name, change in changes.items():
                # A running statistic with the sum of changes from one start would overshoot.
                counts = not torch.is_floating_point(moving[name])
                moving[name] += torch.from_numpy(change if counts else change / len(tasks))
        gradients = torch.from_numpy(np.array(self._matrix[: len(requests)]))
        return map(Gradient, losses, gradients.unbind())


def _fast_folder(size: int) -> str | None:
    """Return a folder in memory with room for a file of some bytes; None if there is none."""
    folder = Path("/dev/shm")
    return str(folder) if folder.is_dir() and shutil.disk_usage(folder).free > 2 * size else None


class _Batch(NamedTuple):
    """The minibatch of one request, and the row of its parameters."""

    row: int
    x: Array
    y: Array
    number: int


# Of each process in the pool, set as it starts.
_module: nn.Module
_stepper: Stepper
_rows: torch.Tensor


def _start(state: bytes, threads: int, path: str, shape: tuple[int, int]) -> None:
    global _module, _stepper, _rows
    torch.set_num_threads(threads)
    model, layout, traits, seed = pickle.loads(state)
    _module = model.module
    _stepper = Stepper(model, layout, traits, seed)
    _rows = torch.from_numpy(np.memmap(path, np.float32, "r+", shape=shape))


def _nothing() -> None:
    """Do nothing, in a process that has started."""


def _gradients(
    batches: list[_Batch], buffers: dict[str, Array]
) -> tuple[list[float], dict[str, Array]]:
    """Put gradients in the places of parameters; return losses and what the buffers gained."""
    moving = dict(_module.named_buffers())
    for name, values in buffers.items():
        moving[name].copy_(torch.from_numpy(values))
    losses = []
    for row, x, y, number in batches:
        loss, gradient = _stepper.step(_rows[row], torch.from_numpy(x), torch.from_numpy(y), number)
        _rows[row] = gradient
        losses.append(loss)
    moving = dict(_module.named_buffers())  # a forward pass may put new tensors in their places
    changes = {name: np.asarray(moving[name].numpy() - old) for name, old in buffers.items()}
    return losses, changes
