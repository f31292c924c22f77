"""Designs of a training job, and the results of their runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from paracosm.results import JsonObject
from paracosm.training import Algorithm
from paracosm.training.learning_rate import LearningRateScaling, scaled_learning_rate
from paracosm.units import format_number


@dataclass(frozen=True)
class Design:
    """A candidate of a plan; `str` returns its unique name."""

    workers: int
    algorithm: Algorithm
    lr: float  # as used, after scaling

    def __str__(self) -> str:
        workers = "1 worker" if self.workers == 1 else f"{self.workers:,} workers"
        return f"{workers}, {self.algorithm}, lr {format_number(self.lr)}"


def designs_of(
    workers: Sequence[int],
    algorithms: Sequence[Algorithm],
    rates: Sequence[float],
    scaling: LearningRateScaling | None = None,
) -> list[Design]:
    """Return every combination once, in order of input. With `scaling` the rates are those of one
    worker (`scaled_learning_rate`). One worker is never stale, so algorithms that differ only in
    their handling of staleness or waiting are the same design there.
    """
    designs: list[Design] = []
    for count in workers:
        alike: set[float] = set()
        for algorithm in algorithms:
            for rate in rates:
                lr = scaled_learning_rate(rate, count, scaling)
                if count == 1 and _is_plain(algorithm):
                    if lr in alike:
                        continue
                    alike.add(lr)
                designs.append(Design(count, algorithm, lr))
    return designs


def _is_plain(algorithm: Algorithm) -> bool:
    """Whether it is plain SGD with one worker."""
    rule = algorithm.rule(1)
    return rule is not None and rule.pushes == 1 and algorithm.weight(0, 1) == 1


class Outcome(JsonObject):
    """The result of one run of a design; times in virtual seconds.

    Attributes:
        status: whether the target was reached, not within the updates allowed, not within the time
            allowed ("stopped"), or the loss diverged.
        time, updates: at the first of the evaluations that held the target.
        spent, made: seconds and updates until the run ended.
        steps: minibatches of all workers until then.
        first, best: the metric before training, and its best value.
        staleness: mean over gradients and tensors.
        curve: time, updates and metric of each evaluation.
        why: of a divergence, a sentence.
        effective: share of the workers' time left by failures; None where nothing fails.
    """

    status: Literal["reached", "not reached", "stopped", "diverged"]
    time: float | None
    updates: int | None
    spent: float
    made: int
    steps: int
    first: float
    best: float
    staleness: float | None
    curve: Sequence[Sequence[float]]
    why: str | None = None
    effective: float | None = None

    @property
    def time_or_never(self) -> float:
        return inf if self.time is None else self.time

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.spent if self.spent else 0.0
