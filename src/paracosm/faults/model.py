"""What a fault does: to numbers in memory (data faults), or to a processor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, fields
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from paracosm.timing.distribution import Parameter

__all__ = ["DataFault", "FaultModel", "ProcessorFault"]


class FaultModel(ABC):
    """What goes wrong, wherever and whenever it does.

    Subclasses are frozen dataclasses. `name` and `parameters` (one per field, in order) say how
    they are written: `str(model)` is `name(argument, ...)` and parses back to an equal one.
    """

    name: ClassVar[str]
    parameters: ClassVar[dict[str, Parameter]] = {}

    def __str__(self) -> str:
        arguments = [
            parameter.format(getattr(self, field.name))
            for field, parameter in zip(
                fields(cast(Any, self)), self.parameters.values(), strict=True
            )
            if field.default is MISSING or getattr(self, field.name) != field.default
        ]
        return f"{self.name}({', '.join(arguments)})" if arguments else self.name


class DataFault(FaultModel):
    """A transient fault of memory: some numbers change, once, and nobody is told."""

    least_components: ClassVar[int] = 1  # with fewer, the fault changes nothing

    @abstractmethod
    def corrupt(
        self, values: NDArray[np.float64], rows: NDArray[np.int64] | None, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Change `values` in place, shape (n,), at the indices `rows` (None: at all of them).

        Returns the indices touched, shape (k,). A touched value may come out infinite or NaN, or,
        by chance, as it was.
        """


class ProcessorFault(FaultModel):
    """A fault of one processor, which lasts for `duration` seconds (inf: to the end of the run)."""

    duration: float


def all_or(rows: NDArray[np.int64] | None, values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return `rows`, or all indices of `values` for None."""
    return np.arange(len(values), dtype=np.int64) if rows is None else rows
