"""The options of a PyTorch job: its model, its data, and where it runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from paracosm.arrays import Ints
from paracosm.errors import InputError
from paracosm.graphs.capture import CaptureOptions
from paracosm.models.data_sets import check_trainable, load_data
from paracosm.models.registry import Workload
from paracosm.models.shards import MOST_BATCH, BatchSampler
from paracosm.profiling.environment import cores_for
from paracosm.rng import TrainingStream, generator, integer_seed

if TYPE_CHECKING:
    from torch.nn import Parameter


@dataclass(frozen=True)
class Node:
    """Where a process runs."""

    # A command that runs it as the rest of its own command line, and becomes it, such as
    # ("nsenter", "--net=/run/netns/worker0", "--")
    prefix: tuple[str, ...] = ()
    interface: str | None = None  # of the network, such as "eth0"; None for the loopback


@dataclass(frozen=True)
class JobOptions:
    """A job of SGD."""

    model: str  # as of `CaptureOptions`
    batch: int = 8  # examples of a step
    shape: tuple[int, ...] | None = None  # of one example; None for the model's default
    classes: int | None = None  # to tell apart; None for the model's default
    # A name of `models.DATA_SETS` or a factory of the user's, whose training examples each worker
    # draws batches from, the same ones as `paracosm train` draws for the seed; None for one batch
    # for all workers and steps, made from the seed
    data: str | None = None
    data_dir: str | None = None  # folder of the data set's files
    servers: int = 1  # parameter servers; parameter i is on server i modulo their number
    lr: float = 0.01  # learning rate
    # Seconds that the forward and the backward pass take at least, shared among the layers by their
    # floating-point operations; None for no waiting
    waiting: tuple[float, float] | None = None
    # The waiting of each step is multiplied by a log-normal factor of mean 1; standard deviation of
    # its logarithm
    noise: float = 0.0
    # Bytes/s that each server sends, and receives, of all workers together, by waiting: where the
    # processes are on a network that is faster; None for no waiting
    port: float | None = None
    threads: int = 1  # of PyTorch, in each process
    seed: int = 0  # of parameters and examples
    # Of the servers, then of the workers; empty for this machine's loopback
    nodes: tuple[Node, ...] = ()
    timeout: float = 120.0  # seconds without a sign of life after which a process is given up

    def __post_init__(self) -> None:
        if self.servers < 1:
            raise InputError(f"servers: {self.servers}, but at least 1 is needed")
        cores_for(self.threads)
        if self.batch > MOST_BATCH:
            raise InputError(f"batch: {self.batch:,}, but {MOST_BATCH:,} examples at most")
        for name, number in (("lr", self.lr), ("timeout", self.timeout)):
            if not 0 < number < math.inf:
                raise InputError(f"{name}: {number:g}, not above 0")
        if self.port is not None and not 0 < self.port < math.inf:
            raise InputError(f"port: {self.port:g} bytes/s, not above 0")
        if self.waiting is not None and not all(
            0 <= seconds < math.inf for seconds in self.waiting
        ):
            raise InputError("waiting: give the seconds of the forward and of the backward pass")
        if not 0 <= self.noise < math.inf:
            raise InputError(f"noise: {self.noise:g}, not a standard deviation")
        if self.noise and self.waiting is None:
            raise InputError("noise: it is that of the waiting; give the seconds of that as well")
        self.capture()
        if self.data is None:
            if self.data_dir is not None:
                raise InputError("data_dir: no effect without data")
        else:
            for name in ("shape", "classes"):
                if getattr(self, name) is not None:
                    raise InputError(
                        f'{name}: the data set "{self.data}" has its own; leave it out'
                    )
            check_trainable(self.model, self.data)

    def capture(self) -> CaptureOptions:
        """Return the model and its examples if there is no data set."""
        return CaptureOptions(self.model, self.batch, self.shape, self.classes, dropout=True)


@dataclass(frozen=True)
class Setup:
    """What one process of a job gets when it is started."""

    options: JobOptions
    rank: int  # servers come first
    workers: int
    interface: str | None  # of the network; None for the loopback
    store: str  # a file in which the processes find each other

    @property
    def is_worker(self) -> bool:
        return self.rank >= self.options.servers

    @property
    def number(self) -> int:
        """The worker's number."""
        return self.rank - self.options.servers

    @classmethod
    def of_json(cls, text: str) -> Setup:
        """Read the JSON of `asdict`."""
        content = json.loads(text)
        return cls(JobOptions(**content.pop("options")), **content)


def load(options: JobOptions, worker: int = 0) -> tuple[Workload, Callable[[], None]]:
    """Return the workload, with the same parameters in every process, and its feeder.

    The feeder puts the worker's next minibatch into the workload.
    """
    import torch

    if options.data is not None:
        return _with_data(options, worker)
    from paracosm.graphs.capture.step import load_workload

    torch.manual_seed(options.seed % 2**63)
    workload = load_workload(options.capture())
    _check_trained(options.model, workload)
    return workload, lambda: None


def _with_data(options: JobOptions, worker: int) -> tuple[Workload, Callable[[], None]]:
    """Draw parameters and batches from the streams of `paracosm train`."""
    from paracosm.models.build import build_model

    assert options.data is not None
    data = load_data(options.data, None if options.data_dir is None else Path(options.data_dir))
    seed = integer_seed(options.seed, TrainingStream.MODEL)
    model = build_model(options.model, data, seed, options.batch)
    every = np.arange(len(data.train_x))
    batches = generator(options.seed, TrainingStream.BATCHES, worker)
    sampler = BatchSampler(every, options.batch, batches)
    workload = Workload(model.module, (), lambda outputs: outputs, options.batch)
    _check_trained(options.model, workload)

    def feed(chosen: Ints) -> None:
        targets = data.train_y[chosen]
        if model.takes_labels:
            raise InputError(
                f'model "{options.model}" takes labels, which the profile of a job does not give '
                "it: return (module, loss) from its factory, with loss(outputs, targets)"
            )
        workload.inputs = (data.train_x[chosen],)
        workload.loss = lambda outputs: model.loss(outputs, targets)

    feed(every[: options.batch])
    return workload, lambda: feed(sampler.next())


def _check_trained(model: str, workload: Workload) -> None:
    if not trained(workload):
        raise InputError(f'model "{model}" has no parameter to train')


def trained(workload: Workload) -> list[tuple[str, Parameter]]:
    """Return names and parameters that have gradients, in the order of their definition."""
    named = workload.module.named_parameters()
    return [(name, parameter) for name, parameter in named if parameter.requires_grad]
