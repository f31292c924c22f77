"""A fault: what goes wrong, in which data, where and when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from paracosm.errors import InputError, unknown
from paracosm.faults.model import DataFault, FaultModel, ProcessorFault
from paracosm.faults.when import AtRandom, Every, When
from paracosm.faults.where import Count, OnProcessor, Rows, Where

__all__ = ["TARGETS", "Fault", "Target", "check_fault", "fault_times", "mean_time_between_faults"]

Target = Literal["x", "halo", "A", "b"]
TARGETS: tuple[Target, ...] = get_args(Target)
_AT_RANDOM = AtRandom()


@dataclass(frozen=True)
class Fault:
    """One source of faults; `str(fault)` is its shortest spelling, which parses back equal.

    Args:
        model: what happens.
        target: the data struck by a data fault: the iterate x, a halo message, the non-zeros of A
            or the right-hand side b. Of no meaning for a fault of a processor.
        where: which components (None: all of them), or which processor (None: a random one).
        when: once or repeatedly; at random by default.

    Raises:
        InputError: parts that do not go together.
    """

    model: FaultModel
    target: Target = "x"
    where: Where | None = None
    when: When = _AT_RANDOM

    def __post_init__(self) -> None:
        name = self.model.name
        if self.target not in TARGETS:
            raise unknown("target of a fault", self.target, TARGETS)
        if isinstance(self.model, ProcessorFault):
            if self.target != "x":
                raise InputError(f'{name} strikes a processor, not data: drop "in {self.target}"')
            if not isinstance(self.where, OnProcessor | None):
                raise InputError(
                    f'{name} strikes a processor: write "on processor 3", not "on {self.where}"'
                )
        if isinstance(self.model, DataFault) and self._most_components() < (
            least := self.model.least_components
        ):
            raise InputError(
                f"{name} on {self.where} changes nothing: it needs {least} components or more"
            )

    @property
    def needs_horizon(self) -> bool:
        """Whether `fault_times` needs the run time of the same run without faults."""
        return isinstance(self.when, AtRandom) and self.when.high is None

    def _most_components(self) -> float:
        match self.where:
            case Count(number):
                return number
            case Rows(first, last) if self.target != "A":  # a row of A has several non-zeros
                return last - first + 1
        return float("inf")

    def __str__(self) -> str:
        parts = [str(self.model)]
        if self.target != "x":
            parts.append(f"in {self.target}")
        if self.where is not None:
            parts.append(f"on {self.where}")
        return " ".join([*parts, str(self.when)])


def fault_times(fault: Fault, horizon: float | None, rng: np.random.Generator) -> Iterator[float]:
    """Return the instants of `fault`, in seconds of virtual time, ascending; maybe without end.

    The instants come from a child of `rng` (the fault's own generator), so that `rng` is free for
    what happens at them: how many numbers a fault draws does not move the next one.

    Args:
        horizon: seconds; the run time without faults, for `at random` alone (`needs_horizon`).

    Raises:
        InputError: at the first instant, if the horizon is needed and not given.
    """
    return fault.when.times(horizon, rng.spawn(1)[0])


def mean_time_between_faults(faults: Iterable[Fault]) -> float | None:
    """Return the mean interval, in seconds, of all Poisson processes taken together; None: none."""
    rate = sum(1 / fault.when.mean for fault in faults if isinstance(fault.when, Every))
    return 1 / rate if rate else None


def check_fault(
    fault: Fault, *, unknowns: int, entries: int, processors: int, distributed: bool
) -> None:
    """Hold `fault` against the run: what it names must be there.

    Args:
        unknowns, entries: rows and non-zeros of A.
        distributed: whether halo values travel as messages.

    Raises:
        InputError: a row, processor or number of components that the run does not have; a halo
            message in shared memory.
    """
    if fault.target == "halo" and not distributed:
        raise InputError(f'fault "{fault}": shared memory has no halo messages; write "in x"')
    match fault.where:
        case OnProcessor(index) if index >= processors:
            raise InputError(
                f'fault "{fault}": no processor {index}; there are {processors}, from 0'
            )
        case Rows(_, last) if last >= unknowns:
            raise InputError(f'fault "{fault}": no row {last}; there are {unknowns}, from 0')
        case Count(number) if number > (size := entries if fault.target == "A" else unknowns):
            raise InputError(f'fault "{fault}": {fault.target} has only {size} components')
