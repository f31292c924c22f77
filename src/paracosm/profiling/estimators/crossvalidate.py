"""Which estimator an op type deserves: held-out errors of each, as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.profiling.estimators.describe import Description, Floats, seen_in
from paracosm.profiling.estimators.methods import METHODS
from paracosm.profiling.estimators.roofline import Roofline, fit_roofline
from paracosm.profiling.estimators.timed import cells_of

FOLDS = 5


@dataclass(frozen=True, slots=True)
class Score:
    """How well the estimators of one op type did on ops that they had not seen."""

    name: str
    samples: int  # distinct ops that were timed
    # Mean absolute error of the logarithm of the time, by method: 0.1 is about 10 %. Empty
    # for types of fewer than `LEAST` samples; the roofline alone where it errs by less than 2
    # %.
    errors: Mapping[str, float]
    # The method of the least error, or a preferred one that errs no more than the noise of
    # this comparison beyond it (`HeldOut.best`)
    chosen: str
    # How many held-out ops had a near neighbour (`timed.FARTHEST`) among the others
    near: int = 0
    near_error: float = float("nan")  # the error of scaling from it; NaN without any


def score_of(name: str, held_out: HeldOut) -> Score:
    """Return the score of the op type `name` that follows from its held-out errors."""
    near = np.abs(held_out.near[np.isfinite(held_out.distance)])
    return Score(
        name=name,
        samples=len(held_out.near),
        errors={each: float(np.abs(error).mean()) for each, error in held_out.errors.items()},
        chosen=held_out.best,
        near=len(near),
        near_error=float(near.mean()) if len(near) else float("nan"),
    )


def format_scores(scores: Sequence[Score]) -> str:
    """Return the scores as a table of text, a line for each op type."""
    width = max([len("op type"), *(len(score.name) for score in scores)])
    titles = "".join(f"{method:>10}" for method in METHODS)
    lines = [f"{'op type':{width}} {'samples':>8}{titles}{'nearest':>16}  chosen"]
    for score in scores:
        errors = "".join(
            f"{score.errors[method]:>10.3f}" if method in score.errors else f"{'-':>10}"
            for method in METHODS
        )
        near = f"{score.near_error:.3f} of {score.near}" if score.near else "-"
        lines.append(f"{score.name:{width}} {score.samples:>8}{errors}{near:>16}  {score.chosen}")
    return "\n".join(lines)


_GOOD_ENOUGH = 0.02  # mean error of a roofline (a view's, a constant) that nobody need compete with


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Of n ops of one type, each estimated from folds that it is not in."""

    errors: Mapping[str, Floats]  # by method, (n,): logarithm of estimate over measured time
    scales: Mapping[str, Floats]  # by method, (n,): the scale of that error, as the method has it
    near: Floats  # (n,), as `errors`, of the nearest neighbour; NaN where none is near
    distance: Floats  # (n,), to it

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
