"""Tuning a relaxation under faults: each run is compared with the same run without them.

Time to tolerance is measured in units of the same seed's time without faults and checkpoints, since
a right-hand side drawn from the seed may double it: at a ratio of 1, faults cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paracosm.errors import InputError, unknown
from paracosm.faults import INTERVALS, CheckpointPolicy, advice, mean_time_between_faults
from paracosm.quantities import read_duration
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.settings import Setting, Simulations, spread
from paracosm.results.kind import Hooks
from paracosm.results.tuning import (
    Argument,
    Measured,
    Parameter,
    Ran,
    Trial,
    Values,
    read_space,
)
from paracosm.units import format_number
from paracosm.validation import validated

ARGUMENTS: Mapping[str, Argument] = {
    "alpha": Argument(log=True, positive=True),
    "omega": Argument(log=True, positive=True, read=read_duration),
    "relaxation": Argument(positive=True),
    "processors": Argument(log=True, positive=True, whole=True),
    "blocks": Argument(log=True, positive=True, whole=True),
}
"""alpha and omega of the checkpoint policy (omega in seconds), the method's relaxation factor, the
number of processors, the number of blocks of the patterns random and rotating."""

_POLICY = ("alpha", "omega")
_FIRST_ALPHA = 2.0
_NEAR = 1.01
_EDGE = 0.05


class TimeOverFaultFree:
    """The median over seeds of the time to tolerance, over that without faults.

    All trials see the same seeds: the same durations, the same faults at the same instants. The
    first trial is the literature's suggestion, a third of all is spread evenly over the space (a
    Halton sequence). The best is compared with fresh seeds with the same without checkpoints, and
    with Young's and Daly's intervals.

    Args:
        arguments: of the relaxation; the trials override the parts of its policy that are tuned.
        space: what to vary (`ARGUMENTS`); an update takes time in proportion to its rows where
            `processors` or `blocks` are varied, and `time` is that of the given numbers of them.
        limit: times the time without faults at which a run counts as not converging.

    Raises:
        InputError: a parameter cannot be tuned.
    """

    objective = "time_over_fault_free"
    maximize = False
    trials = 60
    seeds = 20
    at_a_time = 1

    def __init__(self, arguments: Mapping[str, Any], space: str, limit: float = 20.0) -> None:
        self.space = read_space(space, _argument)
        self.config = validated(RelaxConfig, _completed(arguments, self.space), "relax")
        self.limit = limit
        self._check()
        self.runs = Simulations(self.config, limit)
        for share in (0.0, 1.0):  # what is refused is so at an end
            ends = {name: parameter.at(share) for name, parameter in self.space.items()}
            self.runs.check(self._setting(ends))

    def _check(self) -> None:
        config = self.config
        for is_wrong, message in (
            (
                not self.limit > 1,
                f"limit: must be above 1 (the time without faults), not {self.limit}",
            ),
            (
                any(name in _POLICY for name in self.space) and not config.fault,
                "alpha and omega have no effect without faults: give a fault",
            ),
            (
                config.tolerance is None and config.error_tolerance is None,
                "tolerance: required to tune the time to tolerance",
            ),
            (
                "timeline" in config.model_fields_set,
                "timeline: a tuning records none: leave it out",
            ),
        ):
            if is_wrong:
                raise InputError(message)

    def total(self, trials: int, seeds: int) -> int:
        """Return the number of runs, including those that can be skipped."""
        compared = 1 + bool(self.config.fault) + len(self._suggestions(1.0))
        return seeds * (2 + trials + compared)

    def drawn_first(self, trials: int) -> int:
        """Return the number of trials that are spread evenly, and the suggested one."""
        return _spread_out(trials) + 1

    def points(self, trials: int, seed: int) -> list[dict[str, float]]:
        """Return the suggested policy, where the space has it, and points spread evenly."""
        from scipy.stats import qmc

        shares = qmc.Halton(len(self.space), seed=seed).random(_spread_out(trials)).tolist()
        points = [
            {
                name: parameter.at(share)
                for (name, parameter), share in zip(self.space.items(), row, strict=True)
            }
            for row in shares
        ]
        suggested = {"alpha": _FIRST_ALPHA, "omega": self.suggestions.get("young")}
        first = {
            name: value
            for name, parameter in self.space.items()
            if (value := suggested.get(name)) is not None
            and parameter.low <= value <= parameter.high
        }
        return ([{**points[0], **first}, *points] if first else points)[:trials]

    def begin(self, seeds: range, folder: Path, hooks: Hooks, ran: Ran) -> None:
        """Run without faults; nothing is written."""
        self.runs = Simulations(self.config, self.limit, hooks.backend, ran)
        self.fault_free = spread(self.runs.fault_free(seeds))
        self.suggestions = self._suggestions(self.fault_free["median"])

    def measure(self, trials: Mapping[int, Values], seeds: range) -> list[Measured]:
        """Run each trial; one whose median will not converge is not run with all seeds."""
        settings = map(self._setting, trials.values())
        return [self.runs.outcomes(setting, seeds, whole=False).measured for setting in settings]

    def validate(self, best: Values, seeds: range) -> dict[str, Measured]:
        """Run the best and what it is compared with."""
        self.runs.fault_free(seeds)
        setting = self._setting(best)
        compared = {"best": setting}
        if self.config.fault:
            compared["no checkpoints"] = replace(setting, checkpoint=None)
        if setting.checkpoint is not None:
            for name, omega in self.suggestions.items():
                policy = replace(setting.checkpoint, omega=omega)
                compared[name] = replace(setting, checkpoint=policy)
        return {
            name: self.runs.outcomes(setting, seeds).measured for name, setting in compared.items()
        }

    def result(
        self, trials: Sequence[Trial], best: Trial, validation: Mapping[str, Measured]
    ) -> dict[str, Any]:
        """Return the policy, the values of trials nearly as good, and remarks; a tuning has failed
        if no trial's median run has converged.
        """
        policy = self._setting(best.values).checkpoint
        near = [
            trial.values
            for trial in trials
            if trial.measured.objective <= _NEAR * best.measured.objective
        ]
        failed = {"status": "failed"} if best.measured.columns["failures"] > 0.5 else {}
        return {
            **(failed if validation else {}),
            "limit": self.limit,
            "fault_free_time": self.fault_free,
            "time_between_faults": self._time_between_faults(self.fault_free["median"]),
            "best": {"checkpoint": None if policy is None else str(policy)},
            "near_best": {
                name: [min(values[name] for values in near), max(values[name] for values in near)]
                for name in self.space
            },
            "suggested_intervals": self.suggestions,
            "remarks": self._remarks(best, policy),
        }

    def study(self, best: Trial, validation: Mapping[str, Measured]) -> None:
        """Return None: the time of an update may change with the values."""

    def _setting(self, values: Values) -> Setting:
        policy = self.config.checkpoint
        if policy is not None:
            alpha, omega = values.get("alpha", policy.alpha), values.get("omega", policy.omega)
            policy = replace(policy, alpha=alpha, omega=omega)
        whole = {name: int(values[name]) for name in ("processors", "blocks") if name in values}
        return Setting(checkpoint=policy, relaxation=values.get("relaxation"), **whole)

    def _time_between_faults(self, fault_free: float) -> float | None:
        """Return seconds between faults; a single fault occurs once per run."""
        faults = self.config.fault
        mean = mean_time_between_faults(faults)
        return mean if mean is not None or not faults else fault_free / len(faults)

    def _suggestions(self, fault_free: float) -> dict[str, float]:
        """Return Young's and Daly's intervals, where checkpoints cost something."""
        policy, between = self.config.checkpoint, self._time_between_faults(fault_free)
        if policy is None or between is None or not policy.cost > 0:
            return {}
        return {
            name: float(f"{interval(policy.cost, between):.4g}")
            for name, interval in INTERVALS.items()
        }

    def _remarks(self, best: Trial, policy: CheckpointPolicy | None) -> list[str]:
        remarks = []
        sentence = None if policy is None else advice(policy, self.fault_free["median"])
        if sentence is not None:
            remarks.append(sentence)
        for name, parameter in self.space.items():
            share = parameter.share(best.values[name])
            if name == "omega" and policy is not None and policy.cost == 0:
                remarks.append(
                    "Checkpoints are free here, so more are better: give their cost, such as "
                    '--checkpoint "cost=1s".'
                )
            elif min(share, 1 - share) < _EDGE:
                end = "lower" if share < _EDGE else "upper"
                remarks.append(
                    f"The best value of {name} is at the {end} end of its range: a wider range "
                    "may contain a better one."
                )
        return remarks


def _argument(name: str) -> Argument:
    if name not in ARGUMENTS:
        raise unknown("parameter to tune", name, ARGUMENTS)
    return ARGUMENTS[name]


def _completed(arguments: Mapping[str, Any], space: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the arguments with a policy that has the lower bounds of what is tuned."""
    completed = dict(arguments)
    policy = completed.pop("checkpoint", None)
    if isinstance(policy, Mapping):
        policy = ", ".join(f"{key}={value}" for key, value in policy.items())
    policy = complete_checkpoint(policy, space.values())
    return completed if policy is None else {**completed, "checkpoint": policy}


def complete_checkpoint(text: str | None, space: Iterable[Parameter]) -> str | None:
    """Return a policy with the lower bounds of the tuned parameters filled in."""
    tuned = {parameter.name: parameter.low for parameter in space if parameter.name in _POLICY}
    if not tuned:
        return text
    written = [part.strip() for part in (text or "").split(",") if part.strip()]
    for part in written:
        if (name := part.partition("=")[0].strip()) in tuned:
            raise InputError(f"checkpoint: {name} is to be tuned: leave it out here")
    units = {"omega": "s"}
    first = (f"{name}={format_number(low)}{units.get(name, '')}" for name, low in tuned.items())
    return ", ".join([*written, *first])


def _spread_out(trials: int) -> int:
    return -(-trials // 3)
