"""Updates to an accuracy with a large batch, from the run with a small one.

Pollux (Qiao et al., OSDI 2021) trains with AdaScale: progress is counted in updates of the first
batch M0, and an update of M examples counts for r = (M / M0) (phi + M0) / (phi + M) of them, with
phi = tr(Sigma) / |G|^2 the gradient noise scale in examples. Two ways to know phi for a batch that
nobody has run:

- *goodput* takes what the run with the small batch measured at the same progress;
- *ours* takes out of it what that run's own noise did. Every update throws the parameters off by
  its noise, and the next gradient points back: part of |G|^2 is no slope that leads to the minimum,
  but a share b of the variance of one batch, tr(Sigma) / M0. As the curvature of the steepest
  directions adapts to the learning rate (Cohen et al., "Gradient Descent on Neural Networks
  Typically Occurs at the Edge of Stability", 2021), b stays the same through a run. So
  1 / phi_M = a + b / M for a batch of M, where the measured 1 / phi_M0 = a + b / M0; and since a is
  not negative, b is at most the least ratio of |G|^2 to tr(Sigma) / M0 that the run has seen, and
  about that where a run ends near a minimum.

Both take the accuracy at a progress from the run with the small batch.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.planning.baselines import efficiency

__all__ = ["LearningCurve", "goodput_updates", "own_noise_updates", "passage", "read_curves"]

Floats = npt.NDArray[np.float64]

COLUMNS = ("progress", "iteration", "metric", "grad_sqr", "grad_var")
HELD = 3  # evaluations in a row that must reach a target


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """n evaluations of one training run.

    Attributes:
        batch: examples of an update.
        progress: n numbers of updates with the first batch that did as much, ascending.
        updates: n numbers of updates made, ascending.
        metric: n values; more is better.
        noise_ratio: n quotients tr(Sigma) / |G|^2 of gradients of the *first* batch, smoothed over
            the updates before.
    """

    batch: int
    progress: Floats
    updates: Floats
    metric: Floats
    noise_ratio: Floats


def read_curves(folder: Path) -> list[LearningCurve]:
    """Read the runs `validation-BATCH.csv` of a folder, the smallest batch first.

    Raises:
        InputError: there are fewer than two, or one lacks a column or holds what is no number.
    """
    paths = {int(path.stem.split("-")[1]): path for path in folder.glob("validation-*.csv")}
    if len(paths) < 2:
        raise InputError(f"{folder}: needs runs with two batches or more (validation-BATCH.csv)")
    return [_read(paths[batch], batch) for batch in sorted(paths)]


def passage(at: Floats, metric: Floats, target: float) -> float:
    """Return where on the axis `at` a metric reaches a target and holds it; NaN where it does not.

    It is the first of `HELD` evaluations in a row that reach it (fewer at the end of the run),
    moved back on the line from the one before.
    """
    reached = metric >= target
    for index in np.flatnonzero(reached):
        if bool(reached[index : index + HELD].all()):
            if index == 0:
                return float(at[0])
            share = (target - metric[index - 1]) / (metric[index] - metric[index - 1])
            return float(at[index - 1] + share * (at[index] - at[index - 1]))
    return math.nan


def goodput_updates(small: LearningCurve, batch: int) -> Floats:
    """Return the updates of a larger batch at each of a run's n progresses, by Pollux's goodput.

    As in Pollux's own simulator, what was measured at the end of an epoch holds for all of it.
    """
    return _updates(small, batch, small.batch * small.noise_ratio)


def own_noise_updates(small: LearningCurve, batch: int) -> Floats:
    """Return the same without what the small batch's own noise did to the noise scale.

    The average at the end of the first epoch is mostly of the gradients at the random start, which
    are larger by far: that epoch has the geometric mean of the first two averages.
    """
    ratio = small.noise_ratio.copy()
    ratio[0] = math.sqrt(ratio[0] * ratio[1])
    share = float((1 / ratio).min())
    inverse = (1 / ratio - share) / small.batch + share / batch
    return _updates(small, batch, 1 / inverse)


def _updates(small: LearningCurve, batch: int, noise_scale: Floats) -> Floats:
    gain = batch / small.batch * efficiency(noise_scale, small.batch, batch)
    return np.asarray(np.cumsum(np.diff(small.progress, prepend=0.0) / gain))


def _read(path: Path, batch: int) -> LearningCurve:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"{path}: lacks the column {', '.join(missing)}")
            rows = [[float(entry[name] or "nan") for name in COLUMNS] for entry in reader]
    except (OSError, csv.Error, ValueError) as error:
        raise InputError(f"{path}: cannot be read as numbers: {error}") from None
    columns = np.array(rows, dtype=np.float64).reshape(-1, len(COLUMNS)).T
    if columns.shape[1] < 2 or not bool(np.isfinite(columns).all() and (columns >= 0).all()):
        raise InputError(f"{path}: needs two evaluations or more, of numbers from 0")
    progress, updates, metric, squared, variance = columns
    return LearningCurve(batch, progress, updates, metric, variance / squared)
