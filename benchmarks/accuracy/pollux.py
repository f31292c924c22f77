"""Steps on 5 to 16 GPUs from steps on 1 to 4, beside what was measured.

    python benchmarks/accuracy/pollux.py [FOLDER] [--small GPUS]

FOLDER has a folder for each job, with steps as Pollux publishes them (placements.csv: placement,
local_bsz, step_time, sync_time; scalability.csv: num_nodes and num_replicas in place of the
placement); without it, the folder `pollux` of the one that the variable PARACOSM_DATA names.
docs/accuracy.md says what comes out.

Both models, ours and the seven-parameter formula of Pollux (which errs by 34 % there, the figure to
beat), are fitted to the same rows of each job: those of up to --small GPUs. No other row is seen.
*exposed* is the error of the communication that computing does not hide, of steps of which it is
more than a tenth; *noise* how far apart placements are that differ in the order of nodes alone.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from printing import folder_of, mape, percent, print_table, signed
from scaling.folder import JobScaling, noise_of, read_folder

from paracosm.errors import InputError
from paracosm.units import format_duration

WORST = 5  # rows that are shown


def main() -> int:
    """Print errors by job, by number of nodes and by batch, and the worst rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="of jobs")
    parser.add_argument("--small", type=int, default=4, help="GPUs up to which runs are fitted to")
    asked = parser.parse_args()
    path = folder_of(asked, "pollux", "measured jobs")
    if path is None:
        return 2
    try:
        folder = read_folder(path, asked.small)
    except InputError as error:
        print(error)
        return 2
    print(f"mean absolute errors of steps on more than {asked.small} GPUs (placements.csv)")
    _print_jobs(folder.jobs)
    print("\nby placement")
    _print_kinds(folder.jobs)
    print("\nworst rows")
    _print_worst(folder.jobs)
    if folder.larger:
        print("\non 6 nodes and more (scalability.csv), with the same fits")
        _print_jobs(folder.larger)
    for file, reason in folder.left_out.items():
        print(f"left out: {file}: {reason}")
    return 0


def _print_jobs(jobs: Sequence[JobScaling]) -> None:
    head = ("job", "fitted", "predicted", "error", "bias", "Pollux", "exposed", "noise")
    rows = [
        (
            job.name,
            str(len(job.fitted)),
            str(len(job.measured)),
            percent(mape(job.errors)),
            signed(job.errors.mean()),
            percent(mape(job.formula_errors)),
            percent(_exposed_error(job)),
            percent(noise_of(job.measured)),
        )
        for job in jobs
    ]
    ours = float(np.mean([mape(job.errors) for job in jobs]))
    theirs = float(np.mean([mape(job.formula_errors) for job in jobs]))
    rows.append(("mean", "", "", percent(ours), "", percent(theirs), "", ""))
    print_table(head, rows)


def _exposed_error(job: JobScaling) -> float:
    """Return the error of what is exposed, of steps of which it is more than a tenth."""
    much = job.measured.exposed > 0.1 * job.measured.step
    predicted, measured = job.predicted.exposed[much], job.measured.exposed[much]
    return mape(predicted / measured - 1) if bool(much.any()) else math.nan


def _print_kinds(jobs: Sequence[JobScaling]) -> None:
    nodes = np.concatenate([job.measured.nodes for job in jobs])
    replicas = np.concatenate([job.measured.replicas for job in jobs])
    ours = np.concatenate([job.errors for job in jobs])
    theirs = np.concatenate([job.formula_errors for job in jobs])
    kinds = {
        "1 node": nodes == 1,
        "2 nodes": nodes == 2,
        "3 nodes": nodes == 3,
        "4 nodes": nodes == 4,
        "more nodes": nodes > 4,
        "up to 8 GPUs": replicas <= 8,
        "9 GPUs and more": replicas > 8,
    }
    rows = [
        (
            name,
            str(int(those.sum())),
            percent(mape(ours[those])),
            signed(ours[those].mean()),
            percent(mape(theirs[those])),
        )
        for name, those in kinds.items()
        if bool(those.any())
    ]
    print_table(("", "rows", "error", "bias", "Pollux"), rows)


def _print_worst(jobs: Iterable[JobScaling]) -> None:
    rows = [(job, row) for job in jobs for row in range(len(job.measured))]
    rows.sort(key=lambda each: -abs(each[0].errors[each[1]]))
    head = ("job", "placement", "batch", "measured", "predicted", "error")
    print_table(
        head,
        (
            (
                job.name,
                job.measured.placement[row],
                f"{job.measured.batch[row]:g}",
                format_duration(float(job.measured.step[row])),
                format_duration(float(job.predicted.step[row])),
                signed(job.errors[row]),
            )
            for job, row in rows[:WORST]
        ),
        left=2,
    )


if __name__ == "__main__":
    sys.exit(main())
