"""Simple predictors of the time to a target, from measurements of one worker, without simulation.
Their inputs are the updates that one worker needed, the noise of its gradients, and the examples/s
of a design; they show what a simulation adds. For a batch of M examples instead of M0:

| predictor | examples to the target |
|---|---|
| constant updates | those of one worker, so that twice the throughput takes half the time |
| goodput (Qiao et al. 2021) | (phi + M) / (phi + M0) times as many, phi as it was along the run |
| critical batch (McCandlish et al. 2018) | the same with one phi for the whole run |

phi is the gradient noise scale in examples. All count the gradients in flight as one batch, as in
synchronous training: they ignore staleness.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Floats
from paracosm.errors import InputError
from paracosm.planning.gradient_noise import GradientNoise, measure_noise, points_of_run
from paracosm.results import PlannedDesign, PlanSummary
from paracosm.training import TrainConfig
from paracosm.validation import validated


@dataclass(frozen=True, eq=False)
class SingleWorker:
    """A run of one worker up to the target, and the noise of its gradients on the way.

    Attributes:
        batch: examples per update.
        updates: number to reach the target.
        measured_at: n numbers of updates, ascending, after which the noise was measured.
        noise: n measurements.
    """

    batch: int
    updates: float
    measured_at: Sequence[float]
    noise: Sequence[GradientNoise]


class Baselines(NamedTuple):
    """Seconds to the target, by each predictor."""

    constant_updates: float
    goodput: float
    critical_batch: float


def predict_baselines(single: SingleWorker, batch: float, examples_per_second: float) -> Baselines:
    """Predict how long a design takes to reach the target.

    Goodput adds up the run of one worker piece by piece, each at the efficiency that was measured
    last (the first measurement also holds for what is before it). The critical batch has the
    quotient of the mean noise and the mean signal of the run: S / S_min = 1 + B_noise / M updates,
    S_min being what one worker's updates come to with M0 (McCandlish et al. 2018, section 2.3).

    Args:
        single: the run with one worker.
        batch: examples whose gradients are under way together: workers times the batch of each.
        examples_per_second: on which the design works, all its workers together.
    """
    for what, value in (
        ("batch", batch),
        ("rate in examples/s", examples_per_second),
        ("number of updates", single.updates),
    ):
        if not 0 < value < math.inf:
            raise InputError(f"baselines: a {what} of {value:g}: it must be positive and finite")
    shares = _shares(single)
    signal, variance = np.array(single.noise, dtype=np.float64).T
    whole = GradientNoise(float(shares @ signal), float(shares @ variance))
    pieces = efficiency([noise.scale for noise in single.noise], single.batch, batch)
    seconds = single.batch * single.updates / examples_per_second
    return Baselines(
        constant_updates=seconds,
        goodput=seconds * float(shares @ (1 / pieces)),
        critical_batch=seconds / float(efficiency(whole.scale, single.batch, batch)),
    )


def with_baselines(summary: PlanSummary, learning: Mapping[str, Any]) -> PlanSummary:
    """Return a plan with these predictions for every timed design.

    They start from the best design of one worker: its updates to the target (the median of its
    seeds), and the noise of the first seed's gradients, measured here. A plan without such a
    design, interrupted, or with privacy noise in its gradients is returned unchanged.

    Args:
        summary: of the plan, with the throughput of each design.
        learning: training arguments common to all runs.
    """
    best = next(
        (by_worker.design for by_worker in summary.by_workers if by_worker.workers == 1), None
    )
    has_noise = learning.get("privacy") is not None
    if best is None or summary.status == "interrupted" or has_noise:
        return summary
    alone = summary.designs[best]
    if alone.updates.median is None:
        return summary
    at = points_of_run(int(alone.updates.median))
    one_worker = validated(TrainConfig, {**learning, "workers": 1, "lr": alone.lr}, "plan")
    noise = measure_noise(one_worker, summary.seed, at)
    single = SingleWorker(summary.batch, alone.updates.median, at, noise)

    def predictions_for(design: PlannedDesign) -> Mapping[str, float] | None:
        if not design.steps_per_second:
            return None
        rate = summary.batch * design.steps_per_second
        return predict_baselines(single, summary.batch * design.workers, rate)._asdict()

    designs = [replace(design, baselines=predictions_for(design)) for design in summary.designs]
    return replace(summary, designs=designs)


def efficiency(noise_scale: npt.ArrayLike, base: float, batch: float) -> Floats:
    """Return the statistical efficiency of a batch: progress for each example, relative to `base`.

    EFFICIENCY(M) = (phi + M0) / (phi + M) with the noise scale phi in examples (Qiao et al.,
    "Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021, section
    3.1): 1 where there is nothing but noise, M0 / M where there is none.
    """
    scale = np.asarray(noise_scale, dtype=np.float64)
    finite = np.where(np.isinf(scale), 0.0, scale)
    return np.where(np.isinf(scale), 1.0, (finite + base) / (finite + batch))


def _shares(single: SingleWorker) -> Floats:
    """Return for each measurement the share of updates for which it is the most recent."""
    at = np.array(single.measured_at, dtype=np.float64)
    if len(at) == 0 or len(at) != len(single.noise):
        raise InputError(
            f"baselines: {len(single.noise)} noise scales measured at {len(at)} points"
        )
    if not bool((np.diff(at) > 0).all()):
        raise InputError("baselines: noise scales must be given in ascending order of updates")
    bounds = np.append(np.clip(at, 0.0, single.updates), single.updates)
    bounds[0] = 0.0
    return np.diff(bounds) / single.updates
