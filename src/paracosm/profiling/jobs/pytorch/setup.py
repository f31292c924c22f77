"""What a process of a job is told when it is started, and the model that it then makes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from paracosm.errors import InputError
from paracosm.graphs.capture import CaptureOptions
from paracosm.models import Workload

if TYPE_CHECKING:
    from torch.nn import Parameter

__all__ = ["Setup", "load", "trained"]


@dataclass(frozen=True)
class Setup:
    """One process of a job, as JSON has it.

    Attributes:
        role: "server" or "worker".
        index: among those of its role.
        servers, workers: how many there are.
        capture: fields of the `CaptureOptions` of the model.
        rate, waiting, threads, seed: as in `JobOptions`.
        interface: of the network; None for the loopback.
        store: a file in which the processes find each other.
    """

    role: str
    index: int
    servers: int
    workers: int
    capture: dict[str, object]
    rate: float
    waiting: tuple[float, float] | None
    threads: int
    seed: int
    interface: str | None
    store: str

    @property
    def rank(self) -> int:
        """The process's rank: servers come first."""
        return self.index + (self.servers if self.role == "worker" else 0)


def load(setup: Setup) -> Workload:
    """Make model and examples, the same ones in every process.

    Raises:
        InputError: the factory cannot be found or fails, or there is nothing to train.
    """
    import torch

    from paracosm.graphs.capture.load import load_workload

    torch.manual_seed(setup.seed)
    options = CaptureOptions(**setup.capture)  # type: ignore[arg-type]  # as they were made
    workload = load_workload(options)
    if not trained(workload):
        raise InputError(f'model "{options.model}" has no parameter to train')
    return workload


def trained(workload: Workload) -> list[tuple[str, Parameter]]:
    """Return names and parameters that have gradients, in the order of their definition."""
    named = workload.module.named_parameters()
    return [(name, parameter) for name, parameter in named if parameter.requires_grad]
