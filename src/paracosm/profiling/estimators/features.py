"""From descriptions of ops to the columns of a matrix, in a layout that is kept with the fit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.profiling.estimators.describe import Description

__all__ = ["Floats", "Layout", "Seen", "layout_of", "seen_in"]

Floats = npt.NDArray[np.float64]

VIEWS = ("raw", "derived")

_TOO_ALIKE = 0.9995  # correlation at which the second column says nothing new


@dataclass(frozen=True, eq=False)
class Layout:
    """The columns that an estimator was fitted on.

    Attributes:
        view: "raw": the arguments as they are, sizes and numbers on a logarithmic scale; "derived":
            `quantities` and the numbers.
        numbers: paths of the numeric columns; where an op has no such path, the column holds 0.
        categories: (path, value) of the columns that are 1 where the op has this value, else 0.
        mean, scale: of each column among the samples; the matrix is standardised by them.
    """

    view: str
    numbers: tuple[str, ...]
    categories: tuple[tuple[str, str], ...]
    mean: Floats
    scale: Floats

    def matrix(self, ops: Sequence[Description]) -> Floats:
        """Return the standardised columns of `ops`, of shape (ops, columns)."""
        rows = np.zeros((len(ops), len(self.mean)))
        for row, op in zip(rows, ops, strict=True):
            values = _numbers_of(op, self.view)
            here = [values.get(path, 0.0) for path in self.numbers]
            here += [float(op.categories.get(path) == value) for path, value in self.categories]
            row[:] = here
        return (rows - self.mean) / self.scale


def layout_of(ops: Sequence[Description], view: str) -> Layout:
    """Return the layout of what varies among `ops`; of columns that say the same, the first."""
    numbers = tuple(sorted({path for op in ops for path in _numbers_of(op, view)}))
    categories = tuple(sorted({pair for op in ops for pair in op.categories.items()}))
    count = len(numbers) + len(categories)
    everything = Layout(view, numbers, categories, np.zeros(count), np.ones(count))
    matrix = everything.matrix(ops)
    mean, scale = matrix.mean(axis=0), matrix.std(axis=0)
    kept = _different((matrix - mean) / np.where(scale > 1e-9, scale, np.inf))
    names = len(numbers)
    return Layout(
        view=view,
        numbers=tuple(numbers[i] for i in kept if i < names),
        categories=tuple(categories[i - names] for i in kept if i >= names),
        mean=mean[kept],
        scale=scale[kept],
    )


@dataclass(frozen=True, eq=False)
class Seen:
    """What the samples of an op type covered.

    Attributes:
        categories: every (path, value) among them.
        always: paths of the categories that each of them has.
        numbers: paths of the numbers of the "derived" view.
        low, high: their range.
    """

    categories: tuple[tuple[str, str], ...]
    always: tuple[str, ...]
    numbers: tuple[str, ...]
    low: Floats
    high: Floats

    def outside(self, op: Description) -> float:
        """Return how far `op` lies outside: the largest distance of a number from its range (the
        logarithm of a ratio, for most); infinite if a category was never seen, or is missing, as
        where an op's arguments were recorded in part or not at all."""
        if not set(op.categories.items()) <= set(self.categories):
            return math.inf
        if not set(self.always) <= op.categories.keys():
            return math.inf
        values = _numbers_of(op, "derived")
        if not self.numbers:
            return 0.0
        here = np.array([values.get(path, 0.0) for path in self.numbers])
        return float(np.maximum(self.low - here, here - self.high).max(initial=0.0))


def seen_in(ops: Sequence[Description]) -> Seen:
    """Return what `ops` cover."""
    values = [_numbers_of(op, "derived") for op in ops]
    numbers = sorted(_union(values))
    table = np.array([[each.get(path, 0.0) for path in numbers] for each in values])
    return Seen(
        categories=tuple(sorted({pair for op in ops for pair in op.categories.items()})),
        always=tuple(sorted(set.intersection(*(set(op.categories) for op in ops)))),
        numbers=tuple(numbers),
        low=table.min(axis=0),
        high=table.max(axis=0),
    )


def _numbers_of(op: Description, view: str) -> dict[str, float]:
    numbers = {path: _logarithm(value) for path, value in op.numbers.items()}
    if view == "derived":
        return numbers | dict(op.derived)
    return numbers | {path: _logarithm(value) for path, value in op.sizes.items()}


def _logarithm(value: float) -> float:
    return math.copysign(math.log1p(abs(value)), value)


def _union(mappings: Iterable[Mapping[str, float]]) -> set[str]:
    return {key for mapping in mappings for key in mapping}


def _different(columns: Floats) -> list[int]:
    """Return the indices of columns that vary (standardised) and are not alike to one before."""
    kept: list[int] = []
    for index in np.flatnonzero(columns.any(axis=0)):
        alike = columns[:, kept].T @ columns[:, index] / len(columns)
        if not np.any(np.abs(alike) > _TOO_ALIKE):
            kept.append(int(index))
    return kept
