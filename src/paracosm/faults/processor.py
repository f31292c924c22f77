"""Faults of processors: one stops, or goes on with what it read long ago."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.faults.model import ProcessorFault
from paracosm.timing.distribution import DURATION, Parameter

__all__ = ["Stale", "Stop"]


@dataclass(frozen=True)
class Stop(ProcessorFault):
    """The processor does nothing for `duration` seconds, then restarts; by default it never does.

    The update that it was computing is lost: it restarts by reading x afresh.

    Raises:
        InputError: a duration that is not above 0.
    """

    duration: float = inf
    name: ClassVar[str] = "stop"
    parameters: ClassVar[dict[str, Parameter]] = {"duration": DURATION}

    def __post_init__(self) -> None:
        _check_duration(self)


@dataclass(frozen=True)
class Stale(ProcessorFault):
    """For `duration` seconds the processor writes values computed from the x at the fault's begin.

    It reads x when the fault begins and not again before the fault ends, so that every update in
    between writes the same stale values over what the components had become.

    Raises:
        InputError: a duration that is not above 0.
    """

    duration: float
    name: ClassVar[str] = "stale"
    parameters: ClassVar[dict[str, Parameter]] = {"duration": DURATION}

    def __post_init__(self) -> None:
        _check_duration(self)


def _check_duration(fault: Stop | Stale) -> None:
    if not fault.duration > 0:
        raise InputError(f"{fault.name}: duration must be above 0, not {fault.duration}")
