"""The loss curves of the study's runs, and what the findings need of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paracosm.studies import Point, RunFolder

# The training loss at which a run counts as converged: early in training, and well below guessing.
TARGETS = {"digits": 0.3, "cifar10": 1.5}


@dataclass(frozen=True)
class Curve:
    """One run: who ran, and its training loss at every evaluation.

    `compute` is "fast" (a gradient takes 20 ms) or "slow" (200 ms).
    """

    algorithm: str
    workers: int
    latency: float
    compute: str
    lr: float
    seed: int
    target: float
    updates: NDArray[np.int64]
    virtual_time: NDArray[np.float64]
    loss: NDArray[np.float64]

    def updates_to_target(self) -> float:
        """Return the updates until the loss first falls below the target; inf if it never does."""
        below = np.flatnonzero(self.loss < self.target)
        return float(self.updates[below[0]]) if below.size else np.inf

    def time_to_target(self) -> float:
        """Return the virtual seconds until the loss first falls below the target."""
        below = np.flatnonzero(self.loss < self.target)
        return float(self.virtual_time[below[0]]) if below.size else np.inf


def read_curves(points: Iterable[Point], folder: Path) -> list[Curve]:
    """Read the curve of every point's run folder."""
    return [read_curve(point, folder / point.name) for point in points]


def read_curve(point: Point, folder: Path) -> Curve:
    loss = RunFolder.open(folder).series("loss")
    config = point.config
    # A loss that is not a number any more has exploded like one that is infinite.
    value = np.where(np.isnan(loss.value), np.inf, loss.value)
    return Curve(
        str(config.algorithm),
        config.workers,
        config.latency,
        "slow" if "200" in str(point.varied["compute"]) else "fast",
        config.lr,
        point.seed,
        TARGETS[config.data],
        loss.step,
        loss.virtual_time,
        value,
    )


def select(curves: Iterable[Curve], **wanted: object) -> list[Curve]:
    """Return the curves whose fields have the values that are wanted (of all seeds)."""
    return [
        curve
        for curve in curves
        if all(getattr(curve, name) == value for name, value in wanted.items())
    ]
