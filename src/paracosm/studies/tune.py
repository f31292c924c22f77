"""Tuning: a sweep whose points are chosen one after the other, by what came of those before."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, get_args, get_type_hints

import yaml

from paracosm.backends import HERE, Backend
from paracosm.errors import InputError, require, unknown
from paracosm.files import replacing
from paracosm.results import JsonObject, Summary, to_builtin
from paracosm.studies.kinds import KINDS
from paracosm.studies.run import FailedPoint, SweepRow, sweeping
from paracosm.studies.run_folder import BEST, TRIALS, TUNE
from paracosm.studies.study import Point, Study
from paracosm.units import format_number

EXAMPLE = "lr=0.01..1 log, algorithm=asgd|ssgd"

_BESIDE = 4  # trials suggested at a time, whatever the jobs: more would know less of each other
_STARTUP = 10  # trials that are drawn at random
_COMMA = re.compile(r",(?![^()]*\))")
_NUMBER = r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?"
_RANGE = re.compile(
    rf"(?P<low>{_NUMBER})\s*\.\.\s*(?P<high>{_NUMBER})\s*(?P<unit>(?!log)[A-Za-z/]*)(?P<log>\s*log)?"
)


@dataclass(frozen=True)
class Parameter:
    """An argument that is varied: what Optuna draws from, and the unit behind each number."""

    distribution: Any
    unit: str = ""

    @property
    def first(self) -> Any:
        """The lower bound, or the first of several values."""
        if hasattr(self.distribution, "choices"):
            return self.distribution.choices[0]
        return self.written(self.distribution.low)

    def written(self, value: Any) -> Any:
        """Return a value as a study has it, to four digits."""
        if isinstance(value, float):
            value = min(max(float(f"{value:.4g}"), self.distribution.low), self.distribution.high)
        return f"{format_number(value)}{self.unit}" if self.unit else value


def read_space(study: Study, text: str) -> dict[str, Parameter]:
    """Return what "lr=0.01..1 log, latency=1..50ms, algorithm=asgd|ssgd" varies of a study.

    Raises:
        InputError: it cannot be read, or the study takes no such argument.
        MissingExtraError: Optuna is not installed.
    """
    model = KINDS[study.kind].model(study.arguments)
    synonyms: Mapping[str, str] = getattr(model, "SYNONYMS", {})
    space: dict[str, Parameter] = {}
    for part in _COMMA.split(text):
        name, _, what = (word.strip() for word in part.partition("="))
        name = name.replace("-", "_")
        if not what:
            raise InputError(f'tune: cannot read "{part.strip()}": write "{EXAMPLE}"')
        if name in space:
            raise InputError(f"tune: {name} is given twice")
        field = model.model_fields.get(synonyms.get(name, name))
        if field is None:
            raise unknown(f"argument of {study.kind}", name, model.model_fields)
        space[name] = _parameter(name, what, _kinds(field.annotation))
    return space


def _parameter(name: str, what: str, kinds: set[Any]) -> Parameter:
    distributions = require("optuna", "tune", "tuning").distributions
    found = _RANGE.fullmatch(what)
    if found is None:
        choices = [part.strip() for part in what.split("|")]
        if len(set(choices)) < max(len(choices), 2):
            raise InputError(
                f"tune: {name}: give a range with one unit, such as 1..50ms or 0.01..1 log, or "
                f"several values, such as asgd|ssgd, not {what}"
            )
        return Parameter(distributions.CategoricalDistribution(choices))
    low, high = float(found["low"]), float(found["high"])
    log, whole = bool(found["log"]), int in kinds and float not in kinds
    fits = low < high < inf and not (log and low <= 0) and not (whole and (low % 1 or high % 1))
    if not fits:
        needed = f"{', whole' * whole}{', above 0' * log}"
        raise InputError(f"tune: {name}: bounds are finite, ascending{needed}, not {what}")
    if whole:
        return Parameter(distributions.IntDistribution(int(low), int(high), log), found["unit"])
    return Parameter(distributions.FloatDistribution(low, high, log), found["unit"])


def _kinds(annotation: Any) -> set[Any]:
    return {annotation}.union(*map(_kinds, get_args(annotation)))


@dataclass(frozen=True)
class Objective:
    """A number of the summary, such as "final_loss" or "breakdown.network"."""

    name: str
    maximize: bool = False

    def of(self, summary: Summary) -> float | None:
        """Return the number of a run; None where it diverged, or did not come to it.

        Raises:
            InputError: such summaries have no such number.
        """
        found: Any = summary
        kind = KINDS.get(summary.verb)
        if kind is not None and self.name in kind.names:
            found = kind.numbers(summary)
        for name in self.name.split("."):
            if found is None:
                return None
            if isinstance(found, JsonObject) and name in get_type_hints(type(found)):
                found = getattr(found, name)  # a mapping leaves out what a run did not come to
            elif isinstance(found, Mapping) and name in found:
                found = found[name]
            else:
                known = [key for key, each in summary.items() if isinstance(each, float | int)]
                raise unknown(f"number of a {summary.kind} summary", self.name, known)
            found = found["median"] if isinstance(found, Mapping) and "median" in found else found
        if found is not None and (isinstance(found, bool) or not isinstance(found, float | int)):
            raise InputError(f"{self.name}: of a {summary.kind} summary this is no number")
        ended = summary.status not in ("diverged", "failed")
        if kind is not None:
            ended = ended and kind.reached(summary, self.name)
        return float(found) if ended and found is not None and not isnan(found) else None

    def over(self, summaries: Sequence[Summary | None]) -> float:
        """Return the median over seeds; one without a number counts as worse than any other, as
        does a run that failed.
        """
        worst = -inf if self.maximize else inf
        numbers = [None if summary is None else self.of(summary) for summary in summaries]
        found = [worst if number is None else number for number in numbers]
        return worst if 2 * found.count(worst) >= len(found) else median(found)


def objective_of(study: Study, text: str, minimize: str | None, maximize: str | None) -> Objective:
    """Return what is minimised or maximised; by default what such runs are about.

    Args:
        study: one run, without a grid.
        text: what is varied (`read_space`).
        minimize, maximize: the number, where one is given.

    Raises:
        InputError: both are given, summaries of such runs have no such number, or the study cannot
            be run.
    """
    if minimize is not None and maximize is not None:
        raise InputError("give --minimize or --maximize, not both")
    name = minimize if maximize is None else maximize
    kind = KINDS[study.kind]
    if name is None:
        return Objective(kind.objective(_a_configuration(study, text)), kind.maximizes)
    known = dict[str, Any].fromkeys(kind.names, float)
    for answer in kind.answers:
        known |= get_type_hints(answer.summary)
    if name.partition(".")[0] not in known:
        numbers = [each for each, hint in known.items() if {int, float} & _kinds(hint)]
        raise unknown(f"number of the summary of {kind.noun}", name, numbers)
    return Objective(name, maximize=minimize is None)


def _a_configuration(study: Study, text: str) -> Any:
    """Return the checked arguments of a trial, or else of the study as it is."""
    first = {name: each.first for name, each in read_space(study, text).items()}
    trial = {**study.arguments, **first}
    kind = KINDS[study.kind]
    with suppress(InputError):  # all bounds together can be more than a trial has
        return kind.configured(trial, "tune")
    return kind.configured(study.arguments, "tune")


class Tuning(NamedTuple):
    """The outcome of a tuning."""

    sentence: str  # the answer
    best: Study
    reached: float  # the objective of the best with fresh seeds
    points: Sequence[Path]  # the run folders
    failed: Sequence[FailedPoint]  # runs that could not be made


def tune(
    study: Study,
    text: str,
    objective: Objective,
    out: Path,
    *,
    trials: int = 30,
    seeds: int = 3,
    backend: Backend = HERE,
    force: bool = False,
    storage: str | None = None,
    finished: Callable[[Point], None] | None = None,
) -> Tuning:
    """Search for the values whose median objective over seeds is best.

    All trials have the same seeds, from the study's on; the best, and the study as it is, are then
    run with as many fresh ones. Optuna draws ten trials, and suggests the others by a
    tree-structured Parzen estimator, four at a time: nothing depends on the backend.

    Args:
        study: one run, without a grid.
        text: what is varied (`read_space`).
        objective: what is to be small, or large.
        out: a folder as of a sweep, with trials.csv and best.yaml besides; a tuning that was
            interrupted goes on there; `force` runs everything again.
        trials: how many, of `seeds` runs each.
        backend: where runs run; `finished` is called with each that is done.
        storage: address of an Optuna storage that gets the trials.

    Raises:
        InputError: something that cannot be tuned.
        MissingExtraError: Optuna is not installed.
        KeyboardInterrupt: the tuning was interrupted.
    """
    if study.is_sweep:
        raise InputError("a study with a grid: tune one without, and name what it varies in --tune")
    if trials < 1 or seeds < 1:
        raise InputError("tune: at least one seed and one trial")
    optuna, space = require("optuna", "tune", "tuning"), read_space(study, text)
    direction = "maximize" if objective.maximize else "minimize"
    asked = {"tune": text, direction: objective.name, "seeds": seeds, "trials": trials}
    wanted = to_builtin({**study.as_written(), TUNE: asked})
    searched = range(study.seed, study.seed + seeds)
    fresh = range(searched.stop, searched.stop + seeds)
    done: list[tuple[dict[str, Any], float]] = []
    points: list[Path] = []
    failed: list[FailedPoint] = []
    with (
        quiet(optuna),
        sweeping(wanted, out, backend, force, finished) as run,
    ):

        def outcomes(named: Mapping[str, Mapping[str, Any]], seeds: range) -> list[float]:
            groups = [_points(study, name, values, seeds) for name, values in named.items()]
            rows = run([point for group in groups for point in group])
            points.extend(out / row.point for row in rows if isinstance(row, SweepRow))
            failed.extend(row for row in rows if isinstance(row, FailedPoint))
            summaries = iter([row.summary if isinstance(row, SweepRow) else None for row in rows])
            return [objective.over([next(summaries) for _ in group]) for group in groups]

        sampler = optuna.samplers.TPESampler(
            seed=study.seed % 2**32,
            multivariate=True,
            n_startup_trials=_STARTUP,
            constant_liar=True,
        )
        search = optuna.create_study(sampler=sampler, direction=direction)
        copy = (
            None if storage is None else stored(optuna, storage, direction, objective.name, wanted)
        )
        for start in range(0, trials, _BESIDE):
            numbers = range(start, min(start + _BESIDE, trials))
            drawn = {name: each.distribution for name, each in space.items()}
            suggested = [search.ask(drawn) for _ in numbers]
            values = [
                {name: each.written(trial.params[name]) for name, each in space.items()}
                for trial in suggested
            ]
            named = {f"{n:03}": each for n, each in zip(numbers, values, strict=True)}
            for each, trial, reached in zip(
                values, suggested, outcomes(named, searched), strict=True
            ):
                told = search.tell(trial, reached)
                add_trial(copy, told, len(done))
                done.append((each, reached))
        best = min(done, key=lambda each: -each[1] if objective.maximize else each[1])[0]
        compared: dict[str, Mapping[str, Any]] = {"best": best}
        with suppress(InputError):  # what is varied may have no default
            _points(study, "given", {}, fresh)
            compared["given"] = {}
        reached, *given = outcomes(compared, fresh)
        sign = -1 if objective.maximize else 1
        as_given_is_best = bool(given) and sign * given[0] < sign * reached
        tuned = study if as_given_is_best else study.with_arguments(None, best)
        _write(done, objective.name, tuned, out)
    said = ", ".join(f"{name}={value}" for name, value in best.items())
    if as_given_is_best:
        sentence = (
            f"The study as given is the best: with fresh seeds {objective.name} "
            f"{_shown(given[0])}, and {_shown(reached)} with the best of {trials:,} trials: {said}."
        )
    else:
        as_given = "".join(f", {_shown(number)} as given" for number in given)
        sentence = (
            f"Best of {trials:,} trials: {said}; with fresh seeds {objective.name} "
            f"{_shown(reached)}{as_given}."
        )
    return Tuning(
        sentence,
        tuned,
        given[0] if as_given_is_best else reached,
        points,
        failed,
    )


def _shown(reached: float) -> str:
    return f"{reached:.4g}" if isfinite(reached) else "not reached"


def _points(study: Study, name: str, values: Mapping[str, Any], seeds: range) -> list[Point]:
    """Return the runs of a trial, named by it."""
    over = {**{key: [value] for key, value in values.items()}, "seed": [*seeds]}
    points = study.model_copy(update={"over": over}).points(f"tune: trial {name}")
    return [replace(point, name=f"{name},{point.name}"[:200]) for point in points]


def _write(
    done: Sequence[tuple[Mapping[str, Any], float]], objective: str, best: Study, out: Path
) -> None:
    with replacing(out / TRIALS) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["trial", *done[0][0], objective])
        rows.writerows([n, *each.values(), reached] for n, (each, reached) in enumerate(done))
    asked = to_builtin({"seed": best.seed, best.kind: best.arguments})
    with replacing(out / BEST) as beside:
        beside.write_text(yaml.safe_dump(asked, sort_keys=False), encoding="utf-8")


def stored(optuna: Any, url: str, direction: str, objective: str, wanted: Mapping[str, Any]) -> Any:
    """Return the Optuna study of the tuning `wanted` in a storage; each tuning has its own."""
    digest = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:8]
    name = f"{direction} {objective} {digest}"
    try:
        return optuna.create_study(
            storage=url, study_name=name, direction=direction, load_if_exists=True
        )
    except Exception as error:  # of SQLAlchemy, or of whatever driver the address names
        raise InputError(
            f"--storage: {url}: cannot be opened, write sqlite:///tuning.db: {str(error)[:200]}"
        ) from None


def add_trial(copy: Any, told: Any, number: int) -> None:
    """Add a trial to the study that `stored` returned, if any, unless it is there already."""
    if copy is not None and len(copy.trials) == number:
        copy.add_trial(told)


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
