"""Gradients on processes that hold the model: of this machine, or the workers of a cluster."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future
from contextlib import ExitStack
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import joblib
import numpy as np
import numpy.typing as npt
import torch
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.backend.reduction import dumps
from torch import Tensor

from paracosm.backends import Backend
from paracosm.errors import InputError
from paracosm.factory import describe_error
from paracosm.files import temporary_folder
from paracosm.models.data_sets import TrainingExamples
from paracosm.models.registry import Model
from paracosm.processes import end_with_parent, ignore_interrupts, submit_call
from paracosm.training.numerics.buffers import SHARED, Buffers, State, averaged_over
from paracosm.training.numerics.gradient_methods import Gradient, Request, Stepper, Traits
from paracosm.training.numerics.parameters import ParameterLayout, Parameters

_TASKS_PER_PROCESS = 4  # of one call, so that no process waits long for the last
_POOL_MEMORY = 256 * 2**20  # bytes of parameters shared with the processes

# Tasks of a cluster do not depend on the number of its workers, so that values do not either:
# running statistics that all share are averaged over tasks.
_CLUSTER_TASKS = 64
_CLUSTER_LENGTH = 16  # gradients of a task at most, for which the model travels once

Array = npt.NDArray[Any]


class Minibatch(NamedTuple):
    x: Array
    y: Array
    number: int  # picks the stream of random numbers
    replica: int  # whose buffers it changes


class Task(NamedTuple):
    """Gradients that one process computes in turn."""

    places: list[int]  # among those computed together
    batches: list[Minibatch]
    states: dict[int, State]  # buffers before the first, by replica; none where they do not change


class Answer(NamedTuple):
    losses: list[float]
    after: list[State]  # buffers after each, if they change
    gradients: Array  # [gradients, parameters]


class Workers(Protocol):
    """The processes that compute tasks."""

    name: str
    most: int  # gradients that are computed together at most

    def length(self, count: int) -> int:
        """Return how many of so many gradients make a task."""

    def warm_up(self) -> bool:
        """Start the processes without waiting for them; return whether they have started."""

    def run(self, parameters: Sequence[Array], tasks: Sequence[Task]) -> Iterator[Answer]:
        """Yield the answers to tasks in order; parameters are flat vectors, by place."""

    def close(self) -> None: ...


class GradientPool:
    """The method that computes gradients on processes, each of which holds the model.

    All of one replica are of one task, in their order. Where replicas share their buffers, every
    task starts from them as they are now; see `averaged_over`.
    """

    def __init__(
        self,
        workers: Workers,
        layout: ParameterLayout,
        data: TrainingExamples,
        traits: Traits,
        buffers: Buffers,
    ) -> None:
        self.workers = workers
        self._layout = layout
        self._examples = data.train_examples
        self._moving_buffers = traits.moving_buffers
        self._buffers = buffers

    def compute(self, requests: Sequence[Request]) -> list[Gradient]:
        most = self.workers.most
        gradients: list[Gradient] = []
        for begin in range(0, len(requests), most):
            gradients += self._together(requests[begin : begin + most])
        return gradients

    def _together(self, requests: Sequence[Request]) -> Iterator[Gradient]:
        shared = self._buffers.state(SHARED) if self._is_shared(requests) else None
        tasks = [self._task(requests, places, shared) for places in self._divided(requests)]
        parameters = [request.parameters for request in requests if request.parameters is not None]
        flat = self._flat(parameters)
        gradients: dict[int, Gradient] = {}  # by place
        ended: list[State] = []
        for task, answer in zip(tasks, self.workers.run(flat, tasks), strict=True):
            states: Sequence[State | None] = [None] * len(task.places)
            if shared is not None:
                ended.append(answer.after[-1])
            elif answer.after:
                states = answer.after
            rows = torch.from_numpy(answer.gradients).unbind()
            answers = zip(task.places, answer.losses, rows, states, strict=True)
            for place, loss, row, after in answers:
                gradients[place] = Gradient(loss, row, after)
                if after is not None:
                    self._buffers.load(requests[place].replica, after)
        if shared is not None:
            self._buffers.load(SHARED, averaged_over(ended, shared))
        for place, form in enumerate(parameters):
            gradient = gradients[place]
            if isinstance(form, tuple):
                views = tuple(self._layout.tensors(gradient.gradient))
                gradient = gradient._replace(gradient=views)
            yield gradient

    def _flat(self, parameters: Sequence[Parameters]) -> list[Array]:
        """Return vectors, one object where the values are one: these travel once with a task."""
        places = [
            tuple(
                tensor.data_ptr()
                for tensor in (parameter if isinstance(parameter, tuple) else (parameter,))
            )
            for parameter in parameters
        ]
        vectors: dict[tuple[int, ...], Array] = {}
        for place, parameter in zip(places, parameters, strict=True):
            if place not in vectors:
                vectors[place] = self._layout.flat(parameter).numpy()
        return [vectors[place] for place in places]

    def _task(self, requests: Sequence[Request], places: list[int], shared: State | None) -> Task:
        chosen = [requests[place] for place in places]
        batches = []
        for request in chosen:
            x, y = self._examples(request.batch)
            batches.append(Minibatch(x.numpy(), y.numpy(), request.number, request.replica))
        replicas = {request.replica for request in chosen if self._moving_buffers}
        states = {replica: shared or self._buffers.state(replica) for replica in sorted(replicas)}
        return Task(places, batches, states)

    def _is_shared(self, requests: Sequence[Request]) -> bool:
        return self._moving_buffers and requests[0].replica == SHARED

    def _divided(self, requests: Sequence[Request]) -> list[list[int]]:
        length = self.workers.length(len(requests))
        places = list(range(len(requests)))
        if not self._moving_buffers or self._is_shared(requests):
            return [places[first : first + length] for first in range(0, len(places), length)]
        tasks: list[list[int]] = []
        places.sort(key=lambda place: requests[place].replica)
        for _, group in groupby(places, key=lambda place: requests[place].replica):
            own = list(group)
            if tasks and len(tasks[-1]) + len(own) <= length:
                tasks[-1] += own
            else:
                tasks.append(own)
        return tasks


def sent(model: Model, layout: ParameterLayout, traits: Traits, seed: int) -> bytes:
    """Return what a process needs to compute gradients.

    Raises:
        InputError: the model cannot be pickled.
    """
    try:
        return bytes(dumps((model, layout, traits, seed)))
    except Exception as error:
        raise InputError(
            f"the model cannot be sent to processes: {describe_error(error)}"
        ) from error


class LocalWorkers:
    """Processes of this machine, which start with the first task and live until `close`.

    Parameters are rows of a matrix in shared memory, where gradients take their places; minibatches
    travel.
    """

    def __init__(self, model: bytes, size: int, processes: int, most: int) -> None:
        self.name = f"{processes} processes"
        self._processes = processes
        self.most = min(most, max(processes, _POOL_MEMORY // (4 * size)))
        self._kept = ExitStack()
        memory = _fast_folder(4 * self.most * size)
        file = str(self._kept.enter_context(temporary_folder(memory)) / "rows")
        self._matrix: Array = np.memmap(file, np.float32, "w+", shape=(self.most, size))
        threads = torch.get_num_threads()  # as here, so that values are the same to the bit
        self._executor = ProcessPoolExecutor(
            processes,
            timeout=None,
            initializer=_start,
            initargs=(os.getpid(), model, threads, file, self._matrix.shape),
        )
        self._warming: list[Future[str | None]] = []
        self._is_checked = False

    def length(self, count: int) -> int:
        return -(-count // (_TASKS_PER_PROCESS * self._processes))

    def warm_up(self) -> bool:
        if not self._warming:
            self._warming = [submit_call(self._executor, _load) for _ in range(self._processes)]
        is_warm = all(future.done() for future in self._warming)
        if is_warm:
            for future in self._warming:
                _check_loaded(_answer_of(future))
        return is_warm

    def run(self, parameters: Sequence[Array], tasks: Sequence[Task]) -> Iterator[Answer]:
        rows = np.asarray(self._matrix)
        for row, values in zip(rows, parameters, strict=False):
            row[:] = values
        if not self._is_checked:
            _check_loaded(_answer_of(submit_call(self._executor, _load)))
            self._is_checked = True
        answers = [submit_call(self._executor, _in_shared_memory, task) for task in tasks]
        for task, answer in zip(tasks, answers, strict=True):
            losses, after = _answer_of(answer)
            yield Answer(losses, after, rows[task.places])

    def close(self) -> None:
        self._executor.shutdown(wait=True, kill_workers=True)
        self._kept.close()


def _answer_of(future: Future[Any]) -> Any:
    try:
        return future.result()
    except BrokenExecutor as error:
        raise ChildProcessError(
            "a process for gradients was killed: out of memory? --lookahead off uses none"
        ) from error


def _check_loaded(problem: str | None) -> None:
    if problem is not None:
        raise InputError(f"the model cannot be loaded in processes: {problem}")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return int(joblib.cpu_count())


def _fast_folder(size: int) -> str | None:
    folder = Path("/dev/shm")
    return str(folder) if folder.is_dir() and shutil.disk_usage(folder).free > 2 * size else None


class ClusterWorkers:
    """The workers of a cluster, to which parameters travel, and gradients back."""

    def __init__(self, model: bytes, backend: Backend, most: int) -> None:
        self.name = f"the workers of {backend.name}"
        self.most = most
        self._backend = backend
        self._model = model
        self._threads = torch.get_num_threads()

    def length(self, count: int) -> int:
        return min(_CLUSTER_LENGTH, -(-count // _CLUSTER_TASKS))

    def warm_up(self) -> bool:
        return True

    def run(self, parameters: Sequence[Array], tasks: Sequence[Task]) -> Iterator[Answer]:
        calls = (
            (self._model, self._threads, [parameters[place] for place in task.places], task)
            for task in tasks
        )
        return self._backend.each(_on_cluster, calls, in_order=True)

    def close(self) -> None:
        """Leave the cluster as it is."""


class _Held(NamedTuple):
    stepper: Stepper
    buffers: Buffers


# Of each process of this machine, set as it starts.
_model: bytes
_rows: Tensor


@lru_cache(maxsize=1)
def _loaded(model: bytes) -> _Held:
    built, layout, traits, seed = pickle.loads(model)
    buffers = Buffers(built.module)
    return _Held(Stepper(built, layout, traits, seed, buffers), buffers)


def _start(parent: int, model: bytes, threads: int, path: str, shape: tuple[int, int]) -> None:
    global _model, _rows
    ignore_interrupts()
    end_with_parent(parent=parent)
    torch.set_num_threads(threads)
    _model = model
    _rows = torch.from_numpy(np.memmap(path, np.float32, "r+", shape=shape))


def _load() -> str | None:
    """Load the model; return why that fails, if it does."""
    try:
        _loaded(_model)
    except Exception as error:  # of the user's own code
        return describe_error(error)
    return None


def _in_shared_memory(task: Task) -> tuple[list[float], list[State]]:
    return _compute(_loaded(_model), [_rows[place] for place in task.places], task)


def _on_cluster(model: bytes, threads: int, parameters: list[Array], task: Task) -> Answer:
    torch.set_num_threads(threads)
    rows = torch.from_numpy(np.stack(parameters))
    losses, after = _compute(_loaded(model), rows.unbind(), task)
    return Answer(losses, after, rows.numpy())


def _compute(held: _Held, rows: Sequence[Tensor], task: Task) -> tuple[list[float], list[State]]:
    """Replace parameters by gradients; return losses, and buffers if the task has some."""
    held.buffers.clear()
    for replica, state in task.states.items():
        held.buffers.load(replica, state)
    losses: list[float] = []
    after: list[State] = []
    for row, (x, y, number, replica) in zip(rows, task.batches, strict=True):
        batch = torch.from_numpy(x), torch.from_numpy(y)
        loss, gradient, _ = held.stepper.step(row, *batch, number, replica)
        assert not isinstance(gradient, tuple), "a row is a flat vector"
        row.copy_(gradient)
        losses.append(loss)
        if task.states:
            after.append(held.buffers.state(replica))
    return losses, after
