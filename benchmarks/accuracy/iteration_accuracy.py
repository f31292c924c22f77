"""How far predictions are from a measured iteration, and where the rest comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.errors import InputError
from paracosm.graphs import Graph
from paracosm.prediction.iteration import predict
from paracosm.profiling.estimators.estimators import fit_estimators
from paracosm.profiling.estimators.roofline import Estimate
from paracosm.profiling.profiler import ModelProfile
from paracosm.profiling.samples import OpTiming, at_one_speed, usual_probe

__all__ = ["Accuracy", "accuracy", "from_others"]


@dataclass(frozen=True)
class Accuracy:
    """One model's measured iteration beside its predictions, in seconds.

    Attributes:
        measured: mean of its real iterations.
        low, high: 10 % of them were faster, 10 % slower: no predictor is better than this spread.
        own: predicted from its own ops, timed with cold data.
        warm: predicted from its own ops, timed in a row: the paper's way.
        held_out: predicted from the others' timings, its own left out; None where there are none.
        interval: of `held_out`.
        per_op: mean relative error of the held-out estimates, each op weighted by its time.
        in_situ: what its ops take in real iterations; None where they were not timed.
        faults: page faults in an iteration.
    """

    measured: float
    low: float
    high: float
    own: float
    warm: float
    held_out: float | None
    interval: tuple[float, float] | None
    per_op: float | None
    in_situ: float | None
    faults: float

    @property
    def gaps(self) -> float | None:
        """Seconds between the ops: Python, autograd, dispatch."""
        return None if self.in_situ is None else self.measured - self.in_situ

    @property
    def caches(self) -> float | None:
        """Seconds that the ops take in place beyond what they take alone with cold data."""
        return None if self.in_situ is None else self.in_situ - self.own

    def error(self, predicted: float) -> float:
        """Return the relative error of a prediction; negative where it is too short."""
        return predicted / self.measured - 1


def accuracy(done: ModelProfile, others: Sequence[OpTiming] = ()) -> Accuracy:
    """Compare one model's measured iteration with what is predicted of it.

    The model's own ops and its iterations were timed in turn, and met the same machine. The others'
    timings are brought to the speed that it had then, by the speed probes beside both.

    Args:
        done: the model's profile, with its iterations.
        others: timings of other models and of grids; this model's ops are left out of them.

    Raises:
        InputError: no iteration was measured, it was one of a GPU, or an op has no timing.
    """
    if done.profile.environment.device != "cpu":
        raise InputError("gaps between ops are told from their times on a CPU, not on a GPU")
    if done.iteration is None:
        raise InputError("no iteration was measured: there is nothing to compare with")
    timings = done.profile.timings
    others = at_one_speed(others, usual_probe(timings))
    held_out, interval, per_op = None, None, None
    if others:
        estimates = from_others(done.graph, others, timings)
        prediction = predict(done.graph, estimates)
        held_out, interval = prediction.iteration_time, prediction.interval
        per_op = _weighted_error(done.graph, estimates, timings)
    p10, p90 = np.percentile(done.samples, (10, 90))
    return Accuracy(
        measured=done.iteration.duration,
        low=float(p10),
        high=float(p90),
        own=_own(done.graph, timings, "cold"),
        warm=_own(done.graph, timings, "warm"),
        held_out=held_out,
        interval=interval,
        per_op=per_op,
        in_situ=sum(done.in_situ) if done.in_situ else None,
        faults=done.faults,
    )


def from_others(
    graph: Graph, others: Sequence[OpTiming], left_out: Sequence[OpTiming] = ()
) -> list[Estimate]:
    """Estimate the ops of a graph from timings with cold data of something else.

    The estimates are for the speed that all of `others` were timed at, or their median.

    Args:
        graph: whose ops.
        others: what the estimators are trained from, of one environment.
        left_out: timings whose ops they must not know.
    """
    known = {(timing.op.name, timing.op.arguments) for timing in left_out}
    cold = [timing for timing in others if timing.cache == "cold"]
    estimators = fit_estimators(cold, exclude=known)
    return [estimators.estimate(op) for op in graph.ops]


def _own(graph: Graph, timings: Sequence[OpTiming], cache: str) -> float:
    """Return the iteration predicted from the model's own timings."""
    known = {timing.op: timing for timing in timings if timing.cache == cache}
    estimates = [None if (timing := known.get(op)) is None else _exact(timing) for op in graph.ops]
    return predict(graph, estimates).iteration_time


def _exact(timing: OpTiming) -> Estimate:
    time = timing.duration
    return Estimate(time, timing.time.p10, timing.time.p90, "exact", "exact")


def _weighted_error(
    graph: Graph, estimates: Sequence[Estimate], timings: Sequence[OpTiming]
) -> float:
    known = {timing.op: timing.duration for timing in timings if timing.cache == "cold"}
    real = np.array([known.get(op, np.nan) for op in graph.ops])
    told = np.array([estimate.duration for estimate in estimates])
    count = graph.count()
    return float(np.nansum(count * abs(told - real)) / np.nansum(count * real))
