"""Tuning of the checkpoint policy and other parameters for the shortest time to tolerance."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from paracosm.backends import HERE, Backend
from paracosm.errors import InputError, require
from paracosm.faults import INTERVALS, CheckpointPolicy, advice, mean_time_between_faults
from paracosm.files import replacing
from paracosm.relaxation.config import RelaxConfig
from paracosm.results import TuningSummary, to_builtin
from paracosm.studies.run_folder import TRIALS, TUNE, RunFolder
from paracosm.studies.tune import add_trial, quiet, stored
from paracosm.studies.tuning_runs import (
    Outcomes,
    Parameter,
    Ran,
    Setting,
    Simulations,
    Spread,
    spread,
)

_NEAR = 1.01
_FIRST_ALPHA = 2.0


def tune(
    config: RelaxConfig,
    space: Sequence[Parameter],
    *,
    seeds: int = 20,
    trials: int = 60,
    seed: int = 0,
    limit: float = 20.0,
    backend: Backend = HERE,
    ran: Ran | None = None,
    storage: str | None = None,
) -> Tuning:
    """Minimise the median time to tolerance over seeds, by a tree-structured Parzen estimator.

    All trials see the same seeds: the same durations, the same faults at the same instants. Each
    run's time is divided by the same seed's time without faults. The first trial is the
    literature's suggestion, a third of all is spread evenly over the space (a Halton sequence), the
    others are Optuna's. Last, the best is run with the same number of fresh seeds: its median in
    the search is biased, since it was selected by it. An interrupt (Ctrl-C) ends the search with
    the best so far, without validation.

    Args:
        config: the configuration; the trials override the parts of its policy that are tuned.
        space: what to vary; an update takes time in proportion to its rows where `processors` or
            `blocks` are varied, and `config.time` is that of the configured numbers of them.
        seeds: runs of each trial, with the seeds seed, seed + 1, ...; the validation's come next.
        trials: how many.
        seed: of all random streams.
        limit: times the fault-free time at which a run counts as not converging.
        backend: where runs run.
        ran: called after each run.
        storage: address of an Optuna storage that gets the trials, for optuna-dashboard.

    Raises:
        InputError: a parameter cannot be tuned, or the iteration does not converge even without
            faults.
        MissingExtraError: Optuna is not installed.
        KeyboardInterrupt: interrupted before the end of the first trial.
    """
    optuna = require("optuna", "tune", "tuning")
    _check(config, space, seeds, trials, limit)
    runs = Simulations(config, limit, backend)
    policy = _policy(config, space)
    for share in (0.0, 1.0):
        runs.check(_setting(policy, {parameter.name: parameter.at(share) for parameter in space}))
    searched, fresh = range(seed, seed + seeds), range(seed + seeds, seed + 2 * seeds)
    fault_free = spread(runs.fault_free(searched, ran))
    between = _between_faults(config, fault_free.median)
    suggestions = _suggestions(policy, between)

    done: list[Trial] = []
    validation: dict[str, Outcomes] = {}
    status: Status = "done"
    try:
        with quiet(optuna):
            study, copy = _study(optuna, space, trials, seed, suggestions), None
            if storage is not None:
                asked_for = [seeds, trials, seed, limit, *map(str, space)]
                wanted = {**to_builtin(config.model_dump()), TUNE: asked_for}
                copy = stored(optuna, storage, "minimize", "time over fault-free", wanted)
            for number in range(trials):
                asked = study.ask(_distributions(optuna, space))
                values = {each.name: each.rounded(asked.params[each.name]) for each in space}
                setting = _setting(policy, values)
                found = runs.outcomes(setting, searched, ran, whole=False)
                done.append(Trial(number, values, setting, found))
                add_trial(copy, study.tell(asked, found.ratio.median), number)
        best = _best(done)
        runs.fault_free(fresh, ran)
        for name, setting in _compared(best, config, suggestions).items():
            validation[name] = runs.outcomes(setting, fresh, ran)
    except KeyboardInterrupt:
        if not done:
            raise
        status, validation = "interrupted", {}
    best = _best(done)
    if status == "done" and best.measured.failures > 0.5:
        status = "failed"
    return Tuning(
        status=status,
        space=tuple(space),
        trials=tuple(done),
        best=best,
        near_best=_near(best, done),
        fault_free=fault_free,
        between_faults=between,
        suggestions=suggestions,
        seeds=searched,
        fresh_seeds=fresh,
        validation=validation,
        limit=limit,
    )


def count_runs(config: RelaxConfig, space: Sequence[Parameter], seeds: int, trials: int) -> int:
    """Return the number of runs of `tune`, including those that it can skip."""
    policy = _policy(config, space)
    compared = 1 + bool(config.fault) + len(_suggestions(policy, _between_faults(config, 1.0)))
    return seeds * (2 + trials + compared)


def _check(
    config: RelaxConfig, space: Sequence[Parameter], seeds: int, trials: int, limit: float
) -> None:
    names = [parameter.name for parameter in space]
    policy_tuned = any(name in ("alpha", "omega") for name in names)
    for wrong, message in (
        (not names, "tune: name a parameter to vary, such as alpha=1.05..20"),
        (len(set(names)) < len(names), "tune: a parameter is given twice"),
        (seeds < 1 or trials < 1, "tune: at least one seed and one trial"),
        (not limit > 1, f"limit: must be above 1 (the time without faults), not {limit}"),
        (
            policy_tuned and not config.fault,
            "alpha and omega have no effect without faults: give a fault",
        ),
        (
            config.tolerance is None and config.error_tolerance is None,
            "tolerance: required to tune the time to tolerance",
        ),
        ("timeline" in config.model_fields_set, "timeline: a tuning records none: leave it out"),
    ):
        if wrong:
            raise InputError(message)


def _policy(config: RelaxConfig, space: Collection[Parameter]) -> CheckpointPolicy | None:
    tuned = {each.name: each.low for each in space if each.name in ("alpha", "omega")}
    policy = config.checkpoint
    if policy is not None or not tuned:
        return policy
    for name in ("alpha", "omega"):
        if name not in tuned:
            raise InputError(f"{name}: set it in the checkpoint policy, or tune it")
    return CheckpointPolicy(tuned["alpha"], tuned["omega"])


def _setting(policy: CheckpointPolicy | None, values: Mapping[str, float]) -> Setting:
    if policy is not None:
        alpha, omega = values.get("alpha", policy.alpha), values.get("omega", policy.omega)
        policy = replace(policy, alpha=alpha, omega=omega)
    return Setting(
        checkpoint=policy,
        relaxation=values.get("relaxation"),
        processors=_whole(values.get("processors")),
        blocks=_whole(values.get("blocks")),
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _between_faults(config: RelaxConfig, fault_free: float) -> float | None:
    """Return seconds between faults; a single fault occurs once per run."""
    faults = config.fault
    mean = mean_time_between_faults(faults)
    return mean if mean is not None or not faults else fault_free / len(faults)


def _suggestions(policy: CheckpointPolicy | None, between: float | None) -> dict[str, float]:
    if policy is None or between is None or not policy.cost > 0:
        return {}
    return {name: float(f"{of(policy.cost, between):.4g}") for name, of in INTERVALS.items()}


def _study(
    optuna: Any,
    space: Sequence[Parameter],
    trials: int,
    seed: int,
    suggestions: Mapping[str, float],
) -> Any:
    from scipy.stats import qmc

    spread_out = -(-trials // 3)
    sampler = optuna.samplers.TPESampler(
        seed=seed % 2**32, multivariate=True, n_startup_trials=spread_out + 1
    )
    study = optuna.create_study(sampler=sampler)
    shares = qmc.Halton(len(space), seed=seed).random(spread_out).tolist()
    points = [
        {each.name: each.at(share) for each, share in zip(space, row, strict=True)}
        for row in shares
    ]
    known = {"alpha": _FIRST_ALPHA, "omega": suggestions.get("young")}
    first = {
        each.name: value
        for each in space
        if (value := known.get(each.name)) is not None and each.low <= value <= each.high
    }
    whole = {each.name for each in space if each.is_whole}
    for point in ([{**points[0], **first}, *points] if first else points)[:trials]:
        study.enqueue_trial({key: int(at) if key in whole else at for key, at in point.items()})
    return study


def _distributions(optuna: Any, space: Sequence[Parameter]) -> dict[str, Any]:
    def of(each: Parameter) -> Any:
        if each.is_whole:
            return optuna.distributions.IntDistribution(
                int(each.low), int(each.high), log=each.is_log
            )
        return optuna.distributions.FloatDistribution(each.low, each.high, log=each.is_log)

    return {each.name: of(each) for each in space}


def _best(done: Sequence[Trial]) -> Trial:
    return min(
        done, key=lambda trial: (trial.measured.ratio.median, float(trial.measured.ratios.mean()))
    )


def _near(best: Trial, done: Sequence[Trial]) -> dict[str, tuple[float, float]]:
    near = [
        trial.values
        for trial in done
        if trial.measured.ratio.median <= _NEAR * best.measured.ratio.median
    ]
    return {
        name: (min(values[name] for values in near), max(values[name] for values in near))
        for name in best.values
    }


def _compared(
    best: Trial, config: RelaxConfig, suggestions: Mapping[str, float]
) -> dict[str, Setting]:
    compared = {"best": best.setting}
    if config.fault:
        compared["no checkpoints"] = replace(best.setting, checkpoint=None)
    policy = best.setting.checkpoint
    if policy is not None:
        for name, omega in suggestions.items():
            compared[name] = replace(best.setting, checkpoint=replace(policy, omega=omega))
    return compared


Status = Literal["done", "interrupted", "failed"]
_EDGE = 0.05


@dataclass(frozen=True)
class Trial:
    """One point of the search."""

    number: int
    values: Mapping[str, float]  # of the parameters, by name
    setting: Setting  # the resulting setting
    measured: Outcomes  # under the seeds of the search


@dataclass(frozen=True)
class Tuning:
    """The outcome of a search."""

    status: Status  # "failed": no trial's median run converged
    space: tuple[Parameter, ...]
    trials: tuple[Trial, ...]
    best: Trial  # by median ratio, then by mean ratio
    # least and greatest value of trials within 1 % of the best median ratio
    near_best: Mapping[str, tuple[float, float]]
    fault_free: Spread  # virtual seconds without faults, over the seeds of the search
    between_faults: float | None  # mean time, seconds; None without faults
    # Young's and Daly's intervals, seconds, where checkpoints cost something
    suggestions: Mapping[str, float]
    seeds: range
    fresh_seeds: range  # of the validation
    # "best", "no checkpoints", "young", "daly", where applicable; empty if interrupted
    validation: Mapping[str, Outcomes]
    limit: float  # times the fault-free time at which a run counts as not converging

    def summary(self) -> TuningSummary:
        """Return the key numbers."""
        checkpoint = self.best.setting.checkpoint
        return TuningSummary(
            status=self.status,
            space={parameter.name: [parameter.low, parameter.high] for parameter in self.space},
            trials=len(self.trials),
            seeds=[self.seeds.start, self.seeds.stop - 1],
            fresh_seeds=[self.fresh_seeds.start, self.fresh_seeds.stop - 1],
            limit=self.limit,
            fault_free_time=_plain(self.fault_free),
            time_between_faults=self.between_faults,
            best={
                "trial": self.best.number,
                **self.best.values,
                "checkpoint": None if checkpoint is None else str(checkpoint),
                "in_search": _measured(self.best.measured),
            },
            near_best={name: list(bounds) for name, bounds in self.near_best.items()},
            suggested_intervals=dict(self.suggestions),
            validation={name: _measured(found) for name, found in self.validation.items()},
            remarks=self.remarks(),
        )

    def remarks(self) -> list[str]:
        """Return remarks that explain the numbers."""
        said = []
        policy = self.best.setting.checkpoint
        free = policy is not None and policy.cost == 0
        if policy is not None and (sentence := advice(policy, self.fault_free.median)) is not None:
            said.append(sentence)
        for parameter in self.space:
            share = parameter.share(self.best.values[parameter.name])
            if parameter.name == "omega" and free:
                said.append(
                    "Checkpoints are free here, so more are better: give their cost, such as "
                    '--checkpoint "cost=1s".'
                )
            elif min(share, 1 - share) < _EDGE:
                end = "lower" if share < _EDGE else "upper"
                said.append(
                    f"The best value of {parameter.name} is at the {end} end of its range: a "
                    "wider range may contain a better one."
                )
        return said


def _plain(found: Spread) -> dict[str, float | None]:
    return {
        name: value if isfinite(value) else None
        for name, value in (
            ("median", found.median),
            ("lower_quartile", found.lower),
            ("upper_quartile", found.upper),
        )
    }


def _measured(found: Outcomes) -> dict[str, Any]:
    return {
        "time_over_fault_free": _plain(found.ratio),
        "time": _plain(found.time),
        "failures": found.failures,
        "runs": found.ratios.size,
    }


MEASURED = ("time_over_fault_free", "lower_quartile", "upper_quartile", "mean", "time", "failures")
"""The columns of a trial's outcome; those of its values come before them."""


def tuning_folder(
    path: Path, asked: Mapping[str, Any], space: Sequence[Parameter], seed: int, force: bool = False
) -> RunFolder:
    """Return the run folder of a search that is about to begin; `asked` is what it runs.

    It replaces a search for the same that did not come to its end.
    """
    varied = {each.name: f"{each.low:g}..{each.high:g}" for each in space}
    return RunFolder.create(path, {"seed": seed, TUNE: {"tune": varied, **asked}}, force, True)


def write_tuning(tuning: Tuning, folder: RunFolder) -> None:
    """Write the trials, and finish the folder."""
    with replacing(folder.path / TRIALS) as temporary:
        _write_trials(tuning, temporary)
    folder.finish(tuning.summary())


def _write_trials(tuning: Tuning, file: Path) -> None:
    names = [parameter.name for parameter in tuning.space]
    with file.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["trial", *names, *MEASURED, "runs"])
        for trial in tuning.trials:
            found, ratio = trial.measured, trial.measured.ratio
            values = (trial.values[name] for name in names)
            ratios = (ratio.median, ratio.lower, ratio.upper, float(found.ratios.mean()))
            outcome = (*ratios, found.time.median, found.failures, found.ratios.size)
            rows.writerow([trial.number, *values, *outcome])
