"""Folders of measured jobs: from their small runs to their large ones, beside what those took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from scaling.fit import fit_scaling
from scaling.model import Scaling, StepTimes
from scaling.pollux import PolluxFormula, fit_pollux
from scaling.runs import Runs, read_runs

__all__ = ["Folder", "JobScaling", "compare_job", "noise_of", "read_folder"]

Floats = npt.NDArray[np.float64]

PLACEMENTS, LARGER = "placements.csv", "scalability.csv"


@dataclass(frozen=True, eq=False)
class JobScaling:
    """One job: what was fitted to its small runs, and the large ones, measured and predicted.

    Attributes:
        name: the folder's.
        fitted: the runs to which both models were fitted.
        measured: the others.
        scaling, formula: the models.
        predicted: by the scaling.
        by_formula: n seconds of a step, by the formula of Pollux.
    """

    name: str
    fitted: Runs
    measured: Runs
    scaling: Scaling
    formula: PolluxFormula
    predicted: StepTimes
    by_formula: Floats

    @property
    def errors(self) -> Floats:
        """Of the predicted steps, relative to what was measured; negative where too short."""
        return self.predicted.step / self.measured.step - 1

    @property
    def formula_errors(self) -> Floats:
        """The same of the formula's."""
        return self.by_formula / self.measured.step - 1

    @property
    def exposed_errors(self) -> Floats:
        """Of what is exposed, as shares of the measured steps."""
        return (self.predicted.exposed - self.measured.exposed) / self.measured.step


@dataclass(frozen=True)
class Folder:
    """What a folder holds.

    Attributes:
        jobs: by name; the steps of `placements.csv`.
        larger: the same fits, on the steps of `scalability.csv`, where a job has them.
        left_out: why a file was not used, by its path within the folder.
    """

    jobs: tuple[JobScaling, ...]
    larger: tuple[JobScaling, ...]
    left_out: Mapping[str, str]


def read_folder(path: Path, small: int = 4) -> Folder:
    """Predict the runs of every job in a folder, or in the folders below it, from its small ones.

    Args:
        path: of `placements.csv` and `scalability.csv`, or of folders that have them.
        small: GPUs up to which a run is fitted to.

    Raises:
        InputError: it is no folder, or there is nothing in it that can be used; with the first
            file's reason.
    """
    if not path.is_dir():
        raise InputError(f"{path}: no such folder")
    jobs: list[JobScaling] = []
    larger: list[JobScaling] = []
    left_out: dict[str, str] = {}
    for folder in [path, *sorted(each for each in path.iterdir() if each.is_dir())]:
        for file in (folder / PLACEMENTS, folder / LARGER):
            if not file.exists():
                continue
            try:
                if file.name == PLACEMENTS:
                    jobs.append(compare_job(folder.resolve().name, read_runs(file), small))
                elif jobs and jobs[-1].name == folder.resolve().name:
                    larger.append(_on_others(jobs[-1], read_runs(file)))
                else:
                    raise InputError(f"no small runs beside it: {PLACEMENTS} has them")
            except InputError as error:
                reason = str(error).removeprefix(str(file)).lstrip(":, ")
                left_out[str(file.relative_to(path))] = reason
    if not jobs:
        told = "; ".join(f"{file}: {reason}" for file, reason in list(left_out.items())[:1])
        more = f": {told}" if told else ", and no folder below it has"
        raise InputError(f"{path}: no measured job ({PLACEMENTS}){more}")
    return Folder(tuple(jobs), tuple(larger), left_out)


def compare_job(name: str, runs: Runs, small: int) -> JobScaling:
    """Fit both models to the runs on `small` GPUs and fewer, and predict the others.

    Raises:
        InputError: there are none of one or the other, or they do not say enough.
    """
    few = runs.replicas <= small
    if bool(few.all()) or not bool(few.any()):
        raise InputError(f"{name}: needs runs on {small} GPUs or fewer, and on more")
    fitted, measured = runs.where(few), runs.where(~few)
    return _predicted(name, fitted, measured, fit_scaling(fitted), fit_pollux(fitted))


def noise_of(runs: Runs) -> float:
    """Return how far apart measurements of the same thing are: the mean absolute relative deviation
    of the steps of placements that differ in the order of their nodes, from their mean.

    NaN where there are no such placements.
    """
    groups: dict[tuple[str, float], list[float]] = {}
    for place, batch, step in zip(runs.placement, runs.batch, runs.step, strict=True):
        groups.setdefault(("".join(sorted(place)), float(batch)), []).append(float(step))
    deviations = [
        abs(step / np.mean(group) - 1)
        for group in groups.values()
        if len(group) > 1
        for step in group
    ]
    return float(np.mean(deviations)) if deviations else float("nan")


def _on_others(job: JobScaling, runs: Runs) -> JobScaling:
    """Return the same fit beside other runs."""
    return _predicted(job.name, job.fitted, runs, job.scaling, job.formula)


def _predicted(
    name: str, fitted: Runs, measured: Runs, scaling: Scaling, formula: PolluxFormula
) -> JobScaling:
    where = (measured.nodes, measured.replicas, measured.batch)
    return JobScaling(
        name, fitted, measured, scaling, formula, scaling.predict(*where), formula.predict(*where)
    )
