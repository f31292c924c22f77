"""What the op types of a device have in common: its roofline, and how far off it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.profiling.estimators.describe import Description
from paracosm.profiling.estimators.features import Floats
from paracosm.profiling.estimators.intervals import LEAST, conformal
from paracosm.profiling.estimators.roofline import Roofline, fit_roofline

__all__ = ["Device", "Types", "fit_device", "rows_by_type"]

Types = Mapping[str, npt.NDArray[np.int64]]
"""Rows of the samples of every op type, which is an op's name."""

_MOST_OF_A_TYPE = 30  # samples, so that no op type outweighs the others
_FOLDS = 5
_FEW = 2  # samples with which few-sample fits are tried out
_UNKNOWN = math.log(
    10.0
)  # half-widths of intervals where the database is too small to measure them
_FEW_KNOWN = math.log(4.0)


@dataclass(frozen=True, slots=True)
class Device:
    """The roofline of a whole device.

    Attributes:
        roofline: fitted to all op types alike.
        unknown: half-width (of the logarithm) of the interval of an op whose type was never timed,
            from op types that were left out of the fit.
        few: the same for the roofline of an op type with fewer than `LEAST` samples, from types
            with more of which two were kept.
    """

    roofline: Roofline
    unknown: float
    few: float


def rows_by_type(ops: Sequence[Description]) -> Types:
    """Return the rows of `ops` by their names."""
    found: dict[str, list[int]] = {}
    for row, op in enumerate(ops):
        found.setdefault(op.name, []).append(row)
    return {name: np.array(rows) for name, rows in sorted(found.items())}


def fit_device(ops: Sequence[Description], log_time: Floats, types: Types, seed: int) -> Device:
    """Return the device's roofline and its errors.

    Args:
        ops, log_time: all samples, with logarithms of their times (seconds).
        types: their rows, by op type.
        seed: of the choice of samples where there are many.
    """
    random = np.random.default_rng(seed)
    some = {
        name: np.sort(random.permutation(rows)[:_MOST_OF_A_TYPE]) for name, rows in types.items()
    }

    def fitted(names: Sequence[str]) -> Roofline:
        rows = np.concatenate([some[name] for name in names])
        return fit_roofline([ops[row] for row in rows], log_time[rows])

    def errors(roofline: Roofline, rows: npt.NDArray[np.int64]) -> Floats:
        return np.abs(roofline.log_time([ops[row] for row in rows]) - log_time[rows])

    names = list(some)
    roofline = fitted(names)
    left_out, few = [], []
    if len(names) > _FOLDS:
        fold = random.permutation(len(names)) % _FOLDS
        for number in range(_FOLDS):
            rest = [name for name, its in zip(names, fold, strict=True) if its != number]
            without = fitted(rest)
            left_out += [errors(without, some[name]) for name in names if name not in rest]
    for rows in some.values():
        if len(rows) >= LEAST:
            kept = np.sort(random.permutation(rows)[:_FEW])
            own = fit_roofline([ops[row] for row in kept], log_time[kept], roofline)
            few.append(errors(own, np.setdiff1d(rows, kept)))
    return Device(
        roofline=roofline,
        unknown=conformal(_joined(left_out), _UNKNOWN),
        few=conformal(_joined(few), _FEW_KNOWN),
    )


def _joined(parts: Sequence[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.zeros(0)
