"""The arguments of a tuning."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, field_validator, model_validator

from paracosm.configuration import Configuration
from paracosm.errors import InputError, require
from paracosm.results.kind import imported
from paracosm.results.tuning import Evaluator
from paracosm.studies.kinds import KINDS
from paracosm.studies.study import Study, load_study
from paracosm.studies.tuning.runs import StudyRuns, objective_of

MOST = 10_000


class TuneConfig(Configuration):
    """What is varied of a study, and which number is to be best."""

    model_config = ConfigDict(extra="forbid")

    study: dict[str, Any] = Field(description="the study of one run, of any kind")
    tune: str = Field(
        description="what to vary: ranges, on a logarithmic scale (log), and lists of values: "
        '"lr=0.01..1 log, latency=1..50ms, algorithm=asgd|ssgd"'
    )
    minimize: str | None = Field(
        None,
        description="number to be small: final_loss; of relaxations time_over_fault_free too",
    )
    maximize: str | None = Field(None, description="number to be large: final_accuracy")
    trials: int | None = Field(
        None, ge=1, le=MOST, description="points of the search [30, or 60 under faults]"
    )
    seeds: int | None = Field(
        None, ge=1, le=MOST, description="runs of each trial [3, or 20 under faults]"
    )
    limit: float = Field(
        20.0,
        description="longest relaxation under faults, in multiples of the time without; beyond it "
        "one counts as not converged",
    )
    storage: str | None = Field(
        None, description="Optuna storage that gets the trials: sqlite:///tuning.db"
    )

    @field_validator("study", mode="before")
    @classmethod
    def _study(cls, study: Any) -> Any:
        if isinstance(study, str | Path):
            study = load_study(Path(study)).as_written()
        if not isinstance(study, Mapping):
            return study
        if Study.model_validate(study).kind == "tune":
            raise ValueError("a tuning cannot be tuned itself")
        if study.get("seed", 0) != 0:
            raise ValueError("seed: has no effect here: give that of the tuning")
        return {key: value for key, value in study.items() if key != "seed" and value != []}

    @model_validator(mode="after")
    def _has_effect(self) -> TuneConfig:
        self.refuse_idle()
        return self

    def idle(self) -> dict[str, set[str]]:
        """Return the fields that have no effect on this run, whatever their values, by reason."""
        if self.is_compared:
            return {}
        return {"only a time over that without faults has a limit": {"limit"}}

    @property
    def is_compared(self) -> bool:
        """Whether each run is compared with another one, in memory."""
        return self.minimize in KINDS[self.tuned.kind].comparisons

    @property
    def tuned(self) -> Study:
        """The study, of seed 0."""
        return Study.model_validate(self.study)

    @cached_property
    def evaluator(self) -> Evaluator:
        """What runs the trials."""
        study = self.tuned
        if self.is_compared:
            if self.maximize is not None or study.is_sweep:
                raise InputError("a comparison is minimised, of a study without a grid")
            place = KINDS[study.kind].comparisons[str(self.minimize)]
            evaluator: Evaluator = imported(place)(study.arguments, self.tune, self.limit)
            return evaluator
        objective = objective_of(study, self.tune, self.minimize, self.maximize)
        return StudyRuns(study, self.tune, objective)

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of trials, and of runs of each."""
        evaluator = self.evaluator
        return self.trials or evaluator.trials, self.seeds or evaluator.seeds

    @property
    def total(self) -> int:
        """The number of runs."""
        return self.evaluator.total(*self.counts)

    def check(self) -> None:
        """Raise InputError for what cannot be tuned."""
        require("optuna", "tune", "tuning")
        _ = self.evaluator  # which refuses it


def study_argument(path: Path) -> dict[str, Any] | None:
    """Return the seed of a study, and the study as an argument; None for that of a tuning."""
    study = load_study(path)
    if study.kind == "tune":
        return None
    return {"seed": study.seed, "study": {**study.as_written(), "seed": 0}}
