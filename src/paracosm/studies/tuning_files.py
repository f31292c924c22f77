"""What a tuning leaves behind.

tuning.json      what was asked, the best, its validation; environment
trials.csv       every trial: its values, median and quartiles, failures
landscape.png    the figure
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from paracosm.errors import InputError
from paracosm.files import replacing
from paracosm.results import to_json
from paracosm.studies.run_folder import describe_environment
from paracosm.studies.tuning_figure import draw_landscape
from paracosm.studies.tuning_result import Tuning

__all__ = ["claim_folder", "write_tuning"]

FILES = ("tuning.json", "trials.csv", "landscape.png")


def claim_folder(folder: Path, force: bool) -> None:
    """Make the folder, and remove an earlier tuning from it if `force` says so.

    Raises:
        InputError: the folder exists and is not empty, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            if not force:
                raise InputError(
                    f"{folder}: the folder exists and is not empty: "
                    "choose another one, or give --force to replace the tuning in it"
                )
            for name in FILES:
                (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot write here: {error.strerror}") from None


def write_tuning(tuning: Tuning, folder: Path, asked: dict[str, Any]) -> None:
    """Write the files; `asked` is the configuration, for the record."""
    record = {
        **tuning.summary(),
        "relax": asked,
        "environment": describe_environment(tuning.seeds.start),
    }
    with replacing(folder / "tuning.json") as beside:
        beside.write_text(to_json(record), encoding="utf-8")
    with replacing(folder / "trials.csv") as beside:
        _write_trials(tuning, beside)
    with replacing(folder / "landscape.png") as beside:
        draw_landscape(tuning, beside)


def _write_trials(tuning: Tuning, file: Path) -> None:
    names = [parameter.name for parameter in tuning.space]
    with file.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(
            ["trial", *names, "time_over_fault_free", "lower_quartile", "upper_quartile", "mean",
             "time", "failures", "runs"]
        )  # fmt: skip
        for trial in tuning.trials:
            found = trial.measured
            ratio = found.ratio
            rows.writerow(
                [trial.number, *(trial.values[name] for name in names), ratio.median, ratio.lower,
                 ratio.upper, found.mean, found.time.median, found.failures, found.runs]
            )  # fmt: skip
