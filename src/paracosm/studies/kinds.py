"""The kinds of run: the arguments of each, and the room that runs it. A room is imported on first
use of its kind: a relaxation never loads what training needs, or the reverse. Another kind is one
entry here, and one field of `Study`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paracosm.backends import HERE, Backend
from paracosm.errors import InputError
from paracosm.results import Summary

if TYPE_CHECKING:
    from pydantic import BaseModel

    from paracosm.timeline import Timeline

Progress = Callable[[int, float | None], None]
"""Called from time to time with the progress (in the kind's unit) and the virtual time."""

Announce = Callable[[str], None]
"""Called before the run with a sentence on the expected result, by kinds that have one."""


@dataclass(frozen=True)
class Hooks:
    """Callbacks and settings during a run."""

    progress: Progress | None = None  # reports progress
    announce: Announce | None = None  # reports the expected result, before the start
    log: bool = False  # print a line for every event
    backend: Backend = HERE  # where what one run consists of is computed
    journal: Path | None = None  # where a resumable run stores its progress


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    summary: Summary  # the key numbers
    timeline: Timeline | None  # the spans; None when they were not recorded
    # further files of the run folder by name, each with a function that writes it
    files: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Kind:
    """One kind of run."""

    noun: str  # name of such a run in a sentence
    unit: Callable[[Any], str]  # returns what a progress bar counts
    success: str  # the status of a successful run
    # the statuses of completed runs, which need not be run again
    ends: frozenset[str]
    forms: tuple[str, ...]  # "module:name" of the pydantic models of its arguments
    check: Callable[[Any], None]  # raises InputError for invalid arguments
    total: Callable[[Any], int | None]  # number of units of a run; None if unknown
    # takes arguments, seed, a sink for metrics, and hooks
    run: Callable[[Any, int, Any, Hooks], Outcome]
    # the number of the summary that such runs are about, which a tuning minimises by default
    objective: Callable[[Any], str]
    maximizes: bool = False  # or maximises
    logs: bool = False  # whether it can print a line for every event
    # whether a run writes to the terminal, where a progress bar would interfere
    prints: Callable[[Any], bool] = lambda config: False
    # whether a run consists of many: it distributes them over processes, and can be resumed
    of_many: bool = False
    on_clusters: bool = False  # whether one run computes on a cluster

    def models(self) -> tuple[type[BaseModel], ...]:
        """Return the pydantic models of its arguments, one per form."""
        return tuple(map(_imported, self.forms))

    def model(self, asked: Mapping[str, Any]) -> type[BaseModel]:
        """Return the model that arguments belong to: the first one, unless they include one
        specific to another model and none specific to the first.

        Raises:
            InputError: an argument belongs to another form.
        """
        forms = self.models()
        own = [_only_of(form, forms) & asked.keys() for form in forms]
        number = next((n for n, found in enumerate(own) if found), 0)
        others = sorted(set().union(*own) - own[number])
        if others:
            raise InputError(
                f"{', '.join(others)}: cannot be combined with {', '.join(sorted(own[number]))}: "
                "leave one or the other out"
            )
        return forms[number]


def _imported(name: str) -> Any:
    module, _, what = name.partition(":")
    return getattr(import_module(module), what)


def _only_of(form: type[BaseModel], forms: Iterable[type[BaseModel]]) -> set[str]:
    others = (set(other.model_fields) for other in forms if other is not form)
    return set(form.model_fields).difference(*others)


def _check_train(config: Any) -> None:
    if config.profile is None and config.strategy is None:
        config.check(config.resolve_cluster())
        return
    from paracosm.planning.scheduled import check_scheduled

    check_scheduled(config)


def _updates(config: Any) -> int | None:
    is_open = config.until_time is not None or config.schedule is not None
    total: int | None = config.updates if is_open else config.most_updates
    return total


def _train(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    if config.profile is None and config.strategy is None:
        from paracosm.training import train

        result = train(config, seed, metrics, hooks.progress, hooks.log, hooks.backend)
    else:
        from paracosm.planning.scheduled import run_scheduled

        if hooks.log:
            raise InputError(
                "--log has no effect with a schedule, which simulates no events: leave it out"
            )
        result = run_scheduled(config, seed, metrics, hooks.progress, hooks.backend)
    files: dict[str, Callable[[Path], None]] = {}
    if result.recording is not None:
        files["recording.json"] = result.recording.save
    if result.schedule is not None:
        files["schedule.parquet"] = result.schedule.write
    return Outcome(result.summary, result.timeline, files)


def _relax(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.relaxation.run import run_relaxation

    result = run_relaxation(config, seed, metrics, hooks.progress, hooks.announce)
    return Outcome(result.summary, result.timeline)


def _predict(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.prediction.run import run_prediction

    result = run_prediction(config, seed, hooks.progress, hooks.announce)
    return Outcome(result.summary, result.timeline)


def _emulate(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.emulation.run import run_emulation

    result = run_emulation(config, seed, metrics, hooks.progress, hooks.announce)
    return Outcome(result.summary, result.timeline, result.files)


def _plan(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.planning.strategy_plan import StrategyPlanConfig, run_strategy_plan

    if isinstance(config, StrategyPlanConfig):
        return Outcome(run_strategy_plan(config, seed, hooks.progress), None)
    from paracosm.planning.plan import run_plan

    summary = run_plan(
        *(config, seed, metrics, hooks.progress, hooks.announce),
        backend=hooks.backend,
        journal=hooks.journal,
    )
    return Outcome(summary, None)


KINDS: Mapping[str, Kind] = {
    "train": Kind(
        noun="a training run",
        unit=lambda config: "updates",
        success="done",
        ends=frozenset({"done", "diverged", "stopped"}),
        forms=("paracosm.training:TrainConfig",),
        check=_check_train,
        total=_updates,
        run=_train,
        objective=lambda config: "final_loss" if config.target is None else "reached_at",
        logs=True,
        on_clusters=True,
    ),
    "relax": Kind(
        noun="a relaxation",
        unit=lambda config: "relaxations",
        success="converged",
        ends=frozenset({"converged", "stopped", "diverged"}),
        forms=("paracosm.relaxation.config:RelaxConfig",),
        check=lambda config: config.check(),
        total=lambda config: None,
        run=_relax,
        objective=lambda config: "virtual_time",
    ),
    "predict": Kind(
        noun="a prediction",
        unit=lambda config: (
            "strategies" if config.is_auto else "predictions" if config.predictions else "new ops"
        ),
        success="done",
        ends=frozenset({"done"}),
        forms=("paracosm.prediction.config:PredictConfig",),
        check=lambda config: config.check(),
        total=lambda config: config.predictions,
        run=_predict,
        objective=lambda config: "examples_per_second",
        maximizes=True,
    ),
    "emulate": Kind(
        noun="an emulation",
        unit=lambda config: "iterations",
        success="done",
        ends=frozenset({"done", "noisy"}),
        forms=("paracosm.emulation.config:EmulateConfig",),
        check=lambda config: _imported("paracosm.emulation.check:check_emulation")(config),
        total=lambda config: None,
        run=_emulate,
        objective=lambda config: "iteration_time",
        prints=lambda config: config.output == "terminal",
    ),
    "plan": Kind(
        noun="a plan",
        unit=lambda config: "runs",
        success="done",
        ends=frozenset({"done", "not reached"}),
        forms=(
            "paracosm.planning.config:PlanConfig",
            "paracosm.planning.strategy_plan:StrategyPlanConfig",
        ),
        check=lambda config: config.check(),
        total=lambda config: None,
        run=_plan,
        objective=lambda config: "time",
        of_many=True,
    ),
}
"""By the key of the study, which is the verb of the command line too."""
