"""Errors of every method on ops that it had not seen: k-fold cross-validation of one op type."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.profiling.estimators.describe import Description
from paracosm.profiling.estimators.features import Floats, seen_in
from paracosm.profiling.estimators.methods import METHODS
from paracosm.profiling.estimators.nearest import cells_of
from paracosm.profiling.estimators.roofline import Roofline, fit_roofline

__all__ = ["HeldOut", "fold_of", "hold_out"]

_GOOD_ENOUGH = 0.02  # mean error of a roofline (a view's, a constant) that nobody need compete with


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Of n ops of one type, each estimated from folds that it is not in.

    Attributes:
        errors: by method, (n,): logarithm of estimate over measured time.
        scales: by method, (n,): the scale of that error, as the method has it.
        near: (n,), as `errors`, of the nearest neighbour; NaN where none is near.
        distance: (n,), to it.
    """

    errors: Mapping[str, Floats]
    scales: Mapping[str, Floats]
    near: Floats
    distance: Floats

    @property
    def best(self) -> str:
        """The last of `METHODS` whose mean absolute error is the least, or greater by no more than
        one standard error of the difference: the later ones generalise better."""
        absolute = {method: np.abs(error) for method, error in self.errors.items()}
        least = min(absolute.values(), key=lambda each: float(each.mean()))
        noise = math.sqrt(len(least))
        return [
            method
            for method, each in absolute.items()
            if (each - least).mean() <= (each - least).std() / noise
        ][-1]

    def scores(self, method: str) -> Floats:
        """Return the absolute errors of `method` over their scales."""
        return np.abs(self.errors[method]) / self.scales[method]


def hold_out(
    ops: Sequence[Description], log_time: Floats, device: Roofline, folds: int, seed: int
) -> HeldOut:
    """Return the held-out errors of the `METHODS` on `ops` of one type.

    If the roofline errs by less than 2 %, no other is tried.

    Args:
        ops, log_time: samples, with logarithms of their times (seconds).
        device: roofline that the type's own one is pulled to.
        folds, seed: as `fold_of`.
    """
    fold = fold_of(ops, folds, seed)
    count = len(ops)
    errors = {method: np.full(count, np.nan) for method in METHODS}
    scales = {method: np.ones(count) for method in METHODS}
    near, distance, outside = np.full(count, np.nan), np.full(count, np.inf), np.zeros(count)
    rooflines: dict[int, Roofline] = {}
    for number in np.unique(fold):
        rest, held = _split(fold == number)
        training = [ops[i] for i in rest]
        roofline = rooflines[number] = fit_roofline(training, log_time[rest], device)
        cells, seen = cells_of(training, log_time[rest], roofline), seen_in(training)
        for i in held:
            estimate, distance[i] = cells.estimate(ops[i], roofline)
            near[i] = estimate - log_time[i]
            away = seen.outside(ops[i])
            outside[i] = away if np.isfinite(away) else 0.0
        errors["roofline"][held] = roofline.log_time([ops[i] for i in held]) - log_time[held]
    if np.abs(errors["roofline"]).mean() < _GOOD_ENOUGH:
        only = {"roofline": errors["roofline"]}
        return HeldOut(only, {"roofline": 1 + outside}, near, distance)
    for number, roofline in rooflines.items():
        rest, held = _split(fold == number)
        training, tested = [ops[i] for i in rest], [ops[i] for i in held]
        for method, fit in METHODS.items():
            fitted = fit(training, log_time[rest], roofline, seed)
            estimates, scales[method][held] = fitted.predict(tested)
            errors[method][held] = estimates - log_time[held]
    scales = {method: scale * (1 + outside) for method, scale in scales.items()}
    return HeldOut(errors, scales, near, distance)


def fold_of(ops: Sequence[Description], folds: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the fold of every op; ops of equal sizes are in the same one.

    An op would otherwise be estimated from one that differs from it in a learning rate. If all
    sizes are equal, each op is on its own.
    """
    shapes: list[Any] = [op.shapes for op in ops]
    if len(set(shapes)) < 2:
        shapes = [op.arguments for op in ops]
    groups = sorted(set(shapes))
    order = np.random.default_rng(seed).permutation(len(groups))
    number = {group: int(place) % folds for group, place in zip(groups, order, strict=True)}
    return np.array([number[shape] for shape in shapes], dtype=np.int64)


def _split(held: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    return np.flatnonzero(~held), np.flatnonzero(held)
