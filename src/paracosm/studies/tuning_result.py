"""What a tuning came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

import numpy as np

from paracosm.faults import advice
from paracosm.studies.tuning_runs import Array, Outcomes, Setting
from paracosm.studies.tuning_space import Parameter

__all__ = ["Measured", "Spread", "Status", "Trial", "Tuning", "measured", "spread"]

Status = Literal["done", "interrupted", "failed"]
_EDGE = 0.05


@dataclass(frozen=True)
class Spread:
    """Median and quartiles."""

    median: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Measured:
    """One setting under several seeds.

    Attributes:
        ratio: time to tolerance over the seed's time without faults; runs that did not converge
            count as if they had at the limit.
        time: virtual time, seconds; counted likewise.
        mean: mean of the ratio.
        failures: share of the runs that did not converge.
        runs: how many there were.
    """

    ratio: Spread
    time: Spread
    mean: float
    failures: float
    runs: int


@dataclass(frozen=True)
class Trial:
    """One point of the search.

    Attributes:
        values: of the parameters, by name.
        setting: the same, as it is run.
        measured: under the seeds of the search.
    """

    number: int
    values: Mapping[str, float]
    setting: Setting
    measured: Measured


@dataclass(frozen=True)
class Tuning:
    """The outcome of a search.

    Attributes:
        status: "done"; "interrupted": by the user; "failed": no trial's median run converged.
        space: what was varied.
        trials: in the order in which they were made.
        best: the trial with the least median ratio, and among equals the least mean ratio.
        near_best: least and greatest value of each parameter among the trials whose median ratio
            is within 1 % of the best one's.
        fault_free: virtual time without faults, seconds, over the seeds of the search.
        between_faults: mean time between faults, seconds; None: there are none.
        suggestions: Young's and Daly's intervals, seconds, where checkpoints cost something.
        seeds, fresh_seeds: of the search, and of the validation.
        validation: by name, settings under the fresh seeds: "best", "no checkpoints", and "young"
            and "daly" with the best alpha; empty if the search was interrupted.
        limit: times the fault-free time at which a run counts as not converging.
    """

    status: Status
    space: tuple[Parameter, ...]
    trials: tuple[Trial, ...]
    best: Trial
    near_best: Mapping[str, tuple[float, float]]
    fault_free: Spread
    between_faults: float | None
    suggestions: Mapping[str, float]
    seeds: range
    fresh_seeds: range
    validation: Mapping[str, Measured]
    limit: float

    def summary(self) -> dict[str, Any]:
        """Return the key numbers: plain numbers, strings, lists and mappings."""
        checkpoint = self.best.setting.checkpoint
        return {
            "status": self.status,
            "space": {parameter.name: [parameter.low, parameter.high] for parameter in self.space},
            "trials": len(self.trials),
            "seeds": [self.seeds.start, self.seeds.stop - 1],
            "fresh_seeds": [self.fresh_seeds.start, self.fresh_seeds.stop - 1],
            "limit": self.limit,
            "fault_free_time": _plain(self.fault_free),
            "time_between_faults": self.between_faults,
            "best": {
                "trial": self.best.number,
                **self.best.values,
                "checkpoint": None if checkpoint is None else str(checkpoint),
                "in_search": _measured(self.best.measured),
            },
            "near_best": {name: list(bounds) for name, bounds in self.near_best.items()},
            "suggested_intervals": dict(self.suggestions),
            "validation": {name: _measured(found) for name, found in self.validation.items()},
            "remarks": self.remarks(),
        }

    def remarks(self) -> list[str]:
        """Return sentences on what the numbers do not say themselves."""
        said = []
        policy = self.best.setting.checkpoint
        free = policy is not None and policy.cost == 0
        if policy is not None and (sentence := advice(policy)) is not None:
            said.append(sentence)
        for parameter in self.space:
            share = parameter.share(self.best.values[parameter.name])
            if parameter.name == "omega" and free:
                said.append(
                    "Checkpoints cost nothing here, so the more the better: give their cost, such "
                    'as --checkpoint "cost=1s".'
                )
            elif min(share, 1 - share) < _EDGE:
                end = "lower" if share < _EDGE else "upper"
                said.append(
                    f"The best value of {parameter.name} is at the {end} end of its range: a "
                    "wider one may hold a better one."
                )
        return said


def measured(outcomes: Outcomes) -> Measured:
    """Return median, quartiles and failures of some runs."""
    return Measured(
        ratio=spread(outcomes.ratios),
        time=spread(outcomes.times),
        mean=float(outcomes.ratios.mean()),
        failures=outcomes.failures,
        runs=outcomes.ratios.size,
    )


def spread(values: Array) -> Spread:
    """Return median and quartiles of `values`, shape (k,)."""
    lower, median, upper = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return Spread(median, lower, upper)


def _plain(found: Spread) -> dict[str, float | None]:
    return {
        name: value if isfinite(value) else None
        for name, value in (
            ("median", found.median),
            ("lower_quartile", found.lower),
            ("upper_quartile", found.upper),
        )
    }


def _measured(found: Measured) -> dict[str, Any]:
    return {
        "time_over_fault_free": _plain(found.ratio),
        "time": _plain(found.time),
        "failures": found.failures,
        "runs": found.runs,
    }
