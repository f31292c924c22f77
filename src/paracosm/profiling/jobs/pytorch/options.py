"""What a job with parameter servers is asked for."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paracosm.errors import InputError
from paracosm.graphs.capture import CaptureOptions
from paracosm.models import Workload

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
    """A job of asynchronous SGD."""

    model: str  # as of `CaptureOptions`
    batch: int = 8  # examples of a step
    shape: tuple[int, ...] | None = None  # of one example; None for the model's default
    classes: int | None = None  # to tell apart; None for the model's default
    servers: int = 1  # parameter servers; parameter i is on server i modulo their number
    rate: float = 0.01  # learning rate
    # Seconds that the forward and the backward pass take at least, shared among the layers by their
    # floating-point operations; None for no waiting
    waiting: tuple[float, float] | None = None
    threads: int = 1  # of PyTorch, in each process
    seed: int = 0  # of parameters and examples, the same in all processes
    # Of the servers, then of the workers; empty for this machine's loopback
    nodes: tuple[Node, ...] = ()
    timeout: float = 120.0  # seconds without a sign of life after which a process is given up

    def __post_init__(self) -> None:
        for name, value in (("servers", self.servers), ("threads", self.threads)):
            if value < 1:
                raise InputError(f"{name}: {value}, but at least 1 is needed")
        for name, number in (("rate", self.rate), ("timeout", self.timeout)):
            if not 0 < number < math.inf:
                raise InputError(f"{name}: {number:g}, not above 0")
        if self.waiting is not None and not all(0 <= each < math.inf for each in self.waiting):
            raise InputError("waiting: give the seconds of the forward and of the backward pass")
        self.capture()

    def capture(self) -> CaptureOptions:
        """Return how the model and its examples are made."""
        return CaptureOptions(self.model, self.batch, self.shape, self.classes, dropout=True)


@dataclass(frozen=True)
class Setup:
    """What one process of a job is told when it is started."""

    options: JobOptions
    rank: int  # servers come first
    workers: int
    interface: str | None  # of the network; None for the loopback
    store: str  # a file in which the processes find each other

    @property
    def is_worker(self) -> bool:
        return self.rank >= self.options.servers

    @classmethod
    def of_json(cls, text: str) -> Setup:
        """Return what `asdict` has made JSON of."""
        found = json.loads(text)
        return cls(JobOptions(**found.pop("options")), **found)


def load(options: JobOptions) -> Workload:
    """Make model and examples, the same ones in every process."""
    import torch

    from paracosm.graphs.capture.step import load_workload

    torch.manual_seed(options.seed)
    workload = load_workload(options.capture())
    if not trained(workload):
        raise InputError(f'model "{options.model}" has no parameter to train')
    return workload


def trained(workload: Workload) -> list[tuple[str, Parameter]]:
    """Return names and parameters that have gradients, in the order of their definition."""
    named = workload.module.named_parameters()
    return [(name, parameter) for name, parameter in named if parameter.requires_grad]
