"""Trials that are runs of a study, each in a run folder of its own, as those of a sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan
from pathlib import Path
from statistics import median
from typing import Any, get_args, get_type_hints

from pydantic import BeforeValidator

from paracosm.errors import InputError, unknown
from paracosm.quantities import READERS
from paracosm.results import JsonObject, Summary
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
from paracosm.studies.kinds import KINDS
from paracosm.studies.run import FailedPoint, SweepRow, runner
from paracosm.studies.study import Point, Study

GIVEN = "given"
"""The study as it is, in the validation."""


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
        value: Any = summary
        kind = KINDS.get(summary.verb)
        if kind is not None and self.name in kind.names:
            value = kind.numbers(summary)
        for name in self.name.split("."):
            if value is None:
                return None
            if isinstance(value, JsonObject) and name in get_type_hints(type(value)):
                value = getattr(value, name)  # a mapping leaves out what a run did not come to
            elif isinstance(value, Mapping) and name in value:
                value = value[name]
            else:
                known = [key for key, other in summary.items() if isinstance(other, float | int)]
                raise unknown(f"number of a {summary.kind} summary", self.name, known)
            value = value["median"] if isinstance(value, Mapping) and "median" in value else value
        if value is not None and (isinstance(value, bool) or not isinstance(value, float | int)):
            raise InputError(f"{self.name}: of a {summary.kind} summary this is no number")
        ended = summary.status not in ("diverged", "failed")
        if kind is not None:
            ended = ended and kind.reached(summary, self.name)
        return float(value) if ended and value is not None and not isnan(value) else None

    def over(self, summaries: Sequence[Summary | None]) -> float:
        """Return the median over seeds; one without a number counts as worse than any other, as
        does a run that failed.
        """
        worst = -inf if self.maximize else inf
        numbers = [None if summary is None else self.of(summary) for summary in summaries]
        values = [worst if number is None else number for number in numbers]
        return worst if 2 * values.count(worst) >= len(values) else median(values)


def objective_of(study: Study, text: str, minimize: str | None, maximize: str | None) -> Objective:
    """Return what is minimised or maximised; by default what such runs are about.

    Args:
        study: one run, without a grid.
        text: what is varied (`space_of`).
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
    known = dict[str, Any].fromkeys([*kind.names, *kind.comparisons], float)
    for answer in kind.answers:
        known |= get_type_hints(answer.summary)
    if name.partition(".")[0] not in known:
        numbers = [number for number, hint in known.items() if {int, float} & _types(hint)]
        raise unknown(f"number of the summary of {kind.noun}", name, numbers)
    return Objective(name, maximize=minimize is None)


def space_of(study: Study, text: str) -> dict[str, Parameter]:
    """Return what "lr=0.01..1 log, latency=1..50ms, algorithm=asgd|ssgd" varies of a study.

    Raises:
        InputError: it cannot be read, or the study takes no such argument.
    """
    model = KINDS[study.kind].model(study.arguments)
    synonyms: Mapping[str, str] = getattr(model, "SYNONYMS", {})

    def argument(name: str) -> Argument:
        field = model.model_fields.get(synonyms.get(name, name))
        if field is None:
            raise unknown(f"argument of {study.kind}", name, model.model_fields)
        types = _types(field.annotation)
        parts = types.union(field.metadata)
        readers = [part.func for part in parts if isinstance(part, BeforeValidator)]
        check = next((reader for reader in READERS if reader in readers), None)
        return Argument(whole=int in types and float not in types, check=check)

    return read_space(text, argument)


def _types(annotation: Any) -> set[Any]:
    return {annotation}.union(*map(_types, get_args(annotation)))


def _a_configuration(study: Study, text: str) -> Any:
    """Return the checked arguments of a trial, or else of the study as it is."""
    first = {name: parameter.first for name, parameter in space_of(study, text).items()}
    trial = {**study.arguments, **first}
    kind = KINDS[study.kind]
    with suppress(InputError):  # all bounds together can be more than a trial has
        return kind.configured(trial, "tune")
    return kind.configured(study.arguments, "tune")


class StudyRuns:
    """The median over seeds of a number of a study's summary.

    The best is compared with the study as it is, which is the answer where it is better.

    Args:
        study: one run, without a grid.
        text: what is varied (`space_of`).
        objective: what is to be small, or large.

    Raises:
        InputError: it cannot be tuned.
    """

    trials = 30
    seeds = 3
    at_a_time = 4  # more would know less of each other

    def __init__(self, study: Study, text: str, objective: Objective) -> None:
        if study.is_sweep:
            raise InputError(
                "a study with a grid: tune one without, and name what it varies in --tune"
            )
        self._study = study
        self._objective = objective
        self._failed: list[FailedPoint] = []
        self.objective = objective.name
        self.maximize = objective.maximize
        self.space = space_of(study, text)

    def total(self, trials: int, seeds: int) -> int:
        """Return the number of runs."""
        return seeds * (trials + 2)

    def drawn_first(self, trials: int) -> int:
        """Return how many trials are drawn at random."""
        return 10

    def points(self, trials: int, seed: int) -> list[dict[str, float]]:
        """Return no points: the first trials are drawn at random."""
        return []

    def begin(self, seeds: range, folder: Path, hooks: Hooks, ran: Ran) -> None:
        """Prepare runs in folders, of which those that are done are not made again."""
        self._run = runner(folder, hooks.backend, hooks.force, lambda point: ran(1))

    def measure(self, trials: Mapping[int, Values], seeds: range) -> list[Measured]:
        """Run trials, all seeds of all of them together."""
        return self._measured(
            [self._points(f"{number:03}", values, seeds) for number, values in trials.items()]
        )

    def validate(self, best: Values, seeds: range) -> dict[str, Measured]:
        """Run the best, and the study as it is."""
        compared = {"best": self._points("best", best, seeds)}
        with suppress(InputError):  # what is varied may have no default
            compared[GIVEN] = self._points(GIVEN, {}, seeds)
        return dict(zip(compared, self._measured([*compared.values()]), strict=True))

    def _measured(self, groups: Sequence[list[Point]]) -> list[Measured]:
        rows = self._run([point for group in groups for point in group])
        self._failed += [row for row in rows if isinstance(row, FailedPoint)]
        summaries = iter([row.summary if isinstance(row, SweepRow) else None for row in rows])
        numbers = [self._objective.over([next(summaries) for _ in group]) for group in groups]
        return [
            Measured(number, {self.objective: number}, {self.objective: number})
            for number in numbers
        ]

    def _points(self, name: str, values: Values, seeds: range) -> list[Point]:
        """Return the runs of a trial, named by it."""
        over = {**{key: [value] for key, value in values.items()}, "seed": [*seeds]}
        points = self._study.model_copy(update={"over": over}).points(f"tune: trial {name}")
        return [replace(point, name=f"{name},{point.name}"[:200]) for point in points]

    def result(
        self, trials: Sequence[Trial], best: Trial, validation: Mapping[str, Measured]
    ) -> dict[str, Any]:
        """Return what the answer is, and which runs failed."""
        fields: dict[str, Any] = {"remarks": []}
        if self._failed:
            point = self._failed[0]
            count = f"{len(self._failed):,} runs" if len(self._failed) > 1 else "A run"
            fields["remarks"] = [f"{count} failed: {point.point}: {point.error}"]
        if validation:
            answer = GIVEN if self._is_given_best(validation) else "best"
            fields["answer"] = answer
            if not isfinite(validation[answer].objective):
                fields["status"] = "failed"
        return fields

    def study(self, best: Trial, validation: Mapping[str, Measured]) -> dict[str, Any]:
        """Return the study with the best values, or as it is where that is better."""
        is_best_given = self._is_given_best(validation)
        study = self._study if is_best_given else self._study.with_arguments(None, best.values)
        return {"seed": study.seed, study.kind: study.arguments}

    def _is_given_best(self, validation: Mapping[str, Measured]) -> bool:
        if GIVEN not in validation:
            return False
        sign = -1 if self.maximize else 1
        return sign * validation[GIVEN].objective < sign * validation["best"].objective
