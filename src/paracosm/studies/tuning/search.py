"""The search: Optuna draws values, an evaluator runs them, and the best is run with fresh seeds."""

from __future__ import annotations

import csv
import hashlib
import itertools
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import yaml

from paracosm.errors import InputError, require
from paracosm.files import temporary_folder
from paracosm.results import TuningSummary, to_builtin
from paracosm.results.kind import Hooks
from paracosm.results.tuning import Evaluator, Measured, Parameter, Trial
from paracosm.studies.run_folder import BEST, TRIALS
from paracosm.studies.tuning.config import TuneConfig


@dataclass(frozen=True)
class Tuning:
    """The outcome of a search."""

    evaluator: Evaluator = field(compare=False)
    status: Literal["done", "interrupted"]
    trials: Sequence[Trial]
    best: Trial  # of the search
    seeds: range
    fresh_seeds: range  # of the validation
    # the best and what it is compared with, under fresh seeds; empty if interrupted
    validation: Mapping[str, Measured]

    def summary(self) -> TuningSummary:
        """Return the key numbers."""
        result = self.evaluator.result(self.trials, self.best, self.validation)
        best = {
            "trial": self.best.number,
            **self.best.values,
            **result.pop("best", {}),
            "in_search": self.best.measured.numbers,
        }
        space = self.evaluator.space.items()
        fields = {
            "status": self.status,
            "objective": self.evaluator.objective,
            "space": {name: parameter.ends for name, parameter in space},
            "trials": len(self.trials),
            "seeds": [self.seeds.start, self.seeds.stop - 1],
            "fresh_seeds": [self.fresh_seeds.start, self.fresh_seeds.stop - 1],
            "best": best,
            "validation": {name: column.numbers for name, column in self.validation.items()},
        }
        return TuningSummary(**{**fields, **result})

    def files(self) -> dict[str, Callable[[Path], None]]:
        """Return what writes the table of trials, and the study with the best values."""
        files: dict[str, Callable[[Path], None]] = {TRIALS: self.write_trials}
        study = self.evaluator.study(self.best, self.validation)
        if study is not None:
            files[BEST] = partial(_write_study, study)
        return files

    def write_trials(self, file: Path) -> None:
        """Write a row for each trial: its values, and what its runs came to."""
        with file.open("w", encoding="utf-8", newline="") as stream:
            rows = csv.writer(stream)
            rows.writerow(["trial", *self.evaluator.space, *self.best.measured.columns])
            for trial in self.trials:
                columns = trial.measured.columns.values()
                rows.writerow([trial.number, *trial.values.values(), *columns])


def tune(
    config: TuneConfig, seed: int = 0, folder: Path | None = None, hooks: Hooks | None = None
) -> Tuning:
    """Search for the values whose median objective over seeds is best.

    All trials have the same seeds; the best, and what it is compared with, are then run with as
    many fresh ones: its objective in the search is biased, since it was selected by it. Optuna
    suggests trials by a tree-structured Parzen estimator: nothing depends on the backend.

    Args:
        config: what is tuned.
        seed: the first of all.
        folder: for run folders of the trials (as of a sweep); without one they are not kept.
        hooks: callbacks and settings. An interrupt ends the search with the best so far.

    Raises:
        InputError: something that cannot be tuned.
        MissingExtraError: Optuna is not installed.
        KeyboardInterrupt: interrupted before the end of the first trial.
    """
    optuna, hooks = require("optuna", "tune", "tuning"), hooks or Hooks()
    evaluator, (trials, seeds) = config.evaluator, config.counts
    searched = range(seed, seed + seeds)
    fresh = range(searched.stop, searched.stop + seeds)
    counter = itertools.count(1)

    def ran(count: int) -> None:
        for number in itertools.islice(counter, count):
            if hooks.progress is not None:
                hooks.progress(number, None)

    done: list[Trial] = []
    validation: dict[str, Measured] = {}
    status: Literal["done", "interrupted"] = "done"
    with (
        quiet(optuna),
        nullcontext(folder) if folder is not None else temporary_folder() as place,
    ):
        storage = _Storage(optuna, config, seed, evaluator)
        evaluator.begin(searched, place, hooks, ran)
        try:
            for trial in _search(optuna, evaluator, trials, searched, storage):
                done.append(trial)
            validation = evaluator.validate(best_of(done, evaluator).values, fresh)
        except KeyboardInterrupt:
            if not done:
                raise
            status = "interrupted"
    best = best_of(done, evaluator)
    return Tuning(evaluator, status, tuple(done), best, searched, fresh, validation)


def _search(
    optuna: Any, evaluator: Evaluator, trials: int, seeds: range, storage: _Storage
) -> Iterator[Trial]:
    """Yield trials as they are done."""
    space = evaluator.space
    sampler = optuna.samplers.TPESampler(
        seed=seeds.start % 2**32,
        multivariate=True,
        n_startup_trials=evaluator.drawn_first(trials),
        constant_liar=True,
    )
    study = optuna.create_study(sampler=sampler, direction=_direction(evaluator))
    for point in evaluator.points(trials, seeds.start):
        study.enqueue_trial(dict(point))
    distributions = {name: _distribution(optuna, parameter) for name, parameter in space.items()}
    for start in range(0, trials, evaluator.at_a_time):
        numbers = range(start, min(start + evaluator.at_a_time, trials))
        suggested = [study.ask(distributions) for _ in numbers]
        values = {
            number: {
                name: parameter.written(trial.params[name]) for name, parameter in space.items()
            }
            for number, trial in zip(numbers, suggested, strict=True)
        }
        measured = evaluator.measure(values, seeds)
        for number, trial, outcome in zip(numbers, suggested, measured, strict=True):
            storage.add(study.tell(trial, outcome.objective), number)
            yield Trial(number, values[number], outcome)


def best_of(trials: Sequence[Trial], evaluator: Evaluator) -> Trial:
    """Return the trial with the best objective, the first of several."""
    sign = -1 if evaluator.maximize else 1
    return min(trials, key=lambda trial: (sign * trial.measured.objective, trial.measured.second))


def _direction(evaluator: Evaluator) -> str:
    return "maximize" if evaluator.maximize else "minimize"


def _distribution(optuna: Any, parameter: Parameter) -> Any:
    kinds, low, high = optuna.distributions, parameter.low, parameter.high
    if parameter.choices:
        return kinds.CategoricalDistribution(parameter.choices)
    if parameter.whole:
        return kinds.IntDistribution(int(low), int(high), log=parameter.log)
    return kinds.FloatDistribution(low, high, log=parameter.log)


class _Storage:
    """The Optuna study of a tuning in a storage, of each tuning its own; nothing without one."""

    def __init__(self, optuna: Any, config: TuneConfig, seed: int, evaluator: Evaluator) -> None:
        self._study: Any = None
        if config.storage is None:
            return
        content = {"seed": seed, **to_builtin(config.model_dump(exclude={"storage"}))}
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
        direction = _direction(evaluator)
        try:
            self._study = optuna.create_study(
                storage=config.storage,
                study_name=f"{direction} {evaluator.objective} {digest}",
                direction=direction,
                load_if_exists=True,
            )
        except Exception as error:  # of SQLAlchemy, or of whatever driver the address names
            raise InputError(
                f"--storage: {config.storage}: cannot be opened, write sqlite:///tuning.db: "
                f"{str(error)[:200]}"
            ) from None

    def add(self, trial: Any, number: int) -> None:
        """Add a trial that was told its value, unless it is there already."""
        if self._study is not None and len(self._study.trials) == number:
            self._study.add_trial(trial)


def _write_study(content: Mapping[str, Any], file: Path) -> None:
    file.write_text(yaml.safe_dump(to_builtin(content), sort_keys=False), encoding="utf-8")


@contextmanager
def quiet(optuna: Any) -> Iterator[None]:
    """Let Optuna print nothing."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
