"""Which estimator an op type deserves: held-out errors of each, as a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.profiling.estimators.device import fit_device, rows_by_type
from paracosm.profiling.estimators.exact import Key, pool
from paracosm.profiling.estimators.heldout import HeldOut, hold_out
from paracosm.profiling.estimators.intervals import LEAST
from paracosm.profiling.estimators.methods import METHODS
from paracosm.profiling.estimators.threads import one_thread
from paracosm.profiling.samples import OpTiming

__all__ = ["FOLDS", "Score", "cross_validate", "format_scores", "score_of"]

FOLDS = 5


@dataclass(frozen=True, slots=True)
class Score:
    """How well the estimators of one op type did on ops that they had not seen.

    Attributes:
        name: the op type.
        samples: distinct ops that were timed.
        errors: mean absolute error of the logarithm of the time, by method: 0.1 is about 10 %.
            Empty for types of fewer than `LEAST` samples; the roofline alone where it errs by less
            than 2 %.
        chosen: the method of the least error, or a preferred one that errs no more than the
            noise of this comparison beyond it (`HeldOut.best`).
        near: how many held-out ops had a near neighbour (`nearest.FARTHEST`) among the others.
        near_error: the error of scaling from it; NaN without any.
    """

    name: str
    samples: int
    errors: Mapping[str, float]
    chosen: str
    near: int = 0
    near_error: float = float("nan")


def cross_validate(
    timings: Sequence[OpTiming],
    *,
    exclude: Collection[Key] = (),
    folds: int = FOLDS,
    seed: int = 0,
) -> list[Score]:
    """Return the scores of every op type of `timings`, ordered by name.

    The folds are of distinct ops, those of equal sizes together, drawn by `seed`; the order of
    `timings` does not matter. `fit_estimators` chooses by these same scores and keeps them.

    Raises:
        InputError: as `fit_estimators`.
        MissingExtraError: scikit-learn is not installed.
    """
    exact, ops = pool(timings, exclude)
    types = rows_by_type(ops)
    device = fit_device(ops, exact.log_time, types, seed)
    scores = []
    with one_thread():
        for name, rows in types.items():
            if len(rows) < LEAST:
                scores.append(Score(name, len(rows), {}, "roofline"))
                continue
            its = [ops[row] for row in rows]
            held_out = hold_out(its, exact.log_time[rows], device.roofline, folds, seed)
            scores.append(score_of(name, held_out))
    return scores


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
