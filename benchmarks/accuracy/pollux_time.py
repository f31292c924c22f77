"""Time to an accuracy with large batches on 5 to 16 GPUs, from one small batch and up to 4 GPUs.

    python benchmarks/accuracy/pollux_time.py [FOLDER]

FOLDER has a folder for each job: what it learnt with several batches (validation-BATCH.csv) and its
steps (placements.csv), as Pollux publishes them; without it, the folder `pollux` of the one that
the variable PARACOSM_DATA names. docs/accuracy.md says what comes out.

What goes in is the run with the smallest batch, with the noise of its gradients, and steps on up to
4 GPUs. What is predicted is the time until the accuracy is reached, and held for three evaluations,
with every larger batch that was trained, on every placement of more GPUs that was timed. *ours* is
`scaling.learning` times `scaling.model`, *goodput* is Pollux's statistical efficiency times its
throughput. Updates and steps are judged apart too, since errors of the two may cancel.

Measured is the product of two measurements, as in Pollux's own simulator: updates of the run with
that batch, times the step of the placement, on the line between the two batches timed there. A
replica's share that is larger than any batch timed there is split evenly, and the gradients of its
parts are accumulated, which takes the step without its waiting once more for each further part.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from printing import folder_of, mape, print_table, signed
from scaling.folder import JobScaling, read_folder
from scaling.learning import (
    LearningCurve,
    goodput_updates,
    own_noise_updates,
    passage,
    read_curves,
)

from paracosm.errors import InputError
from paracosm.units import format_duration

TARGETS = {
    "cifar10": (0.80, 0.85, 0.90, 0.92, 0.94),
    "imagenet": (0.40, 0.45, 0.50, 0.65, 0.70, 0.75),
}
SMALL = 4  # GPUs up to which steps are fitted
SHOWN = "4444"  # the placement of which every row is printed


Sources = tuple[float, float, float]
"""What was measured, what we predict, what goodput does."""


@dataclass(frozen=True)
class Cell:
    """One target with one batch on one placement: updates to it, and seconds of each."""

    target: float
    batch: int
    placement: str
    gpus: int
    updates: Sources
    step: Sources

    def time(self, source: int) -> float:
        """Return the seconds to the target."""
        return self.updates[source] * self.step[source]


def main() -> int:
    """Print a row for each target and batch, and the errors of times, updates and steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="of jobs")
    path = folder_of(parser.parse_args(), "pollux", "measured jobs")
    if path is None:
        return 2
    try:
        jobs = [job for job in read_folder(path, SMALL).jobs if job.name in TARGETS]
        cells = {job.name: list(cells_of(job, read_curves(path / job.name))) for job in jobs}
    except InputError as error:
        print(error)
        return 2
    for name, found in cells.items():
        print(f"\n{name}, {SHOWN}")
        _print_rows([cell for cell in found if cell.placement == SHOWN])
    print("\nmean absolute and worst errors, all placements of more than 4 GPUs")
    _print_errors(cells)
    return 0


def cells_of(job: JobScaling, curves: Sequence[LearningCurve]) -> Iterator[Cell]:
    """Yield a cell for each target, larger batch and placement where that batch was reached.

    Targets that a run never holds are left out, and so are placements where a replica's share of
    the batch is outside the batches that were timed there.
    """
    small, *larger = curves
    for target in TARGETS[job.name]:
        progress = passage(small.progress, small.metric, target)
        for curve in larger:
            measured = passage(curve.updates, curve.metric, target)
            if np.isnan(progress + measured):
                continue
            ours, goodput = (
                float(np.interp(progress, (0, *small.progress), (0, *updates)))
                for updates in (
                    own_noise_updates(small, curve.batch),
                    goodput_updates(small, curve.batch),
                )
            )
            for placement, gpus, step in _steps(job, curve.batch):
                updates = (measured, ours, goodput)
                yield Cell(target, curve.batch, placement, gpus, updates, step)


def _steps(job: JobScaling, batch: int) -> Iterator[tuple[str, int, Sources]]:
    """Yield placements, their GPUs, and seconds of a step of the whole batch."""
    runs = job.measured
    names = np.array(runs.placement)
    for placement in sorted(set(runs.placement)):
        there = runs.where(names == placement)
        there = there.where(np.argsort(there.batch))
        gpus, nodes = int(there.replicas[0]), int(there.nodes[0])
        more = math.ceil(batch / gpus / there.batch[-1]) - 1
        local = batch / gpus / (1 + more)
        if local < there.batch[0]:
            continue
        step, exposed = (
            float(np.interp(local, there.batch, seconds)) for seconds in (there.step, there.exposed)
        )
        ours = job.scaling.predict(nodes, gpus, local, more)
        computed = job.formula.gradient + job.formula.per_example * local
        formula = float(job.formula.predict(nodes, gpus, local)) + more * computed
        yield placement, gpus, (step + more * (step - exposed), float(ours.step), formula)


def _print_rows(cells: Sequence[Cell]) -> None:
    head = ("target", "batch", "GPUs", "measured", "ours", "goodput", "error", "goodput's")
    rows = [
        (
            f"{cell.target:.2f}",
            str(cell.batch),
            str(cell.gpus),
            *(format_duration(cell.time(source)) for source in range(3)),
            *(signed(cell.time(source) / cell.time(0) - 1) for source in (1, 2)),
        )
        for cell in cells
    ]
    print_table(head, rows)


def _print_errors(cells: dict[str, list[Cell]]) -> None:
    head = ("job", "cells", *(f"{what}, {who}" for what in KINDS for who in ("ours", "goodput")))
    rows = []
    for name, found in cells.items():
        both = [_errors(found, what, source) for what in KINDS for source in (1, 2)]
        rows.append((name, str(len(found)), *map(_mean_and_worst, both)))
    print_table(head, rows)


KINDS = ("time", "updates", "step")


def _errors(cells: Sequence[Cell], what: str, source: int) -> list[float]:
    """Return relative errors of a source; of updates one for each target and batch."""
    if what == "time":
        return [cell.time(source) / cell.time(0) - 1 for cell in cells]
    if what == "step":
        return [cell.step[source] / cell.step[0] - 1 for cell in cells]
    distinct = {(cell.target, cell.batch): cell.updates for cell in cells}
    return [updates[source] / updates[0] - 1 for updates in distinct.values()]


def _mean_and_worst(errors: Sequence[float]) -> str:
    return f"{mape(errors):.1%} ({signed(max(errors, key=abs))})"


if __name__ == "__main__":
    sys.exit(main())
