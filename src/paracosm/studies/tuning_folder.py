"""What a tuning leaves behind: a run folder, with a table of its trials."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paracosm.files import replacing
from paracosm.studies.run_folder import TRIALS, TUNE, RunFolder
from paracosm.studies.tuning import Tuning
from paracosm.studies.tuning_runs import Parameter

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
