"""Measured trainings beside predictions from the profile of one worker: a table and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import matplotlib
import numpy as np
import numpy.typing as npt
from cells import Cell
from real_training import RecordedRun, load_run

from paracosm.planning.scheduled import run_scheduled
from paracosm.planning.train_config import ProfileTrainConfig
from paracosm.profiling.jobs import load_job_profile
from paracosm.simulation.schedule import Schedule
from paracosm.training.target import FirstPassage, parse_target

matplotlib.use("Agg")
import matplotlib.pyplot as plt

TARGET = "loss <= 0.1"  # on all training examples
DROPPED = 2  # first steps of each worker that do not count
COLOURS = {1: "#000000", 2: "#0072b2", 4: "#009e73", 8: "#d55e00"}  # of the figure, by workers
LONGEST = 60.0  # seconds of the figure

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Course:
    """One training, measured or predicted."""

    schedule: Schedule
    time: Floats  # seconds, of the evaluations
    loss: Floats  # at them

    @property
    def steps_per_second(self) -> float:
        """Of all workers together, each without its first steps, from end to end."""
        steps = self.schedule.steps
        ends = [np.sort(steps["end"][steps["worker"] == w]) for w in np.unique(steps["worker"])]
        kept = [end[DROPPED:] / 1e12 for end in ends if len(end) > DROPPED + 1]
        return float(sum((len(end) - 1) / (end[-1] - end[0]) for end in kept))

    @property
    def time_to_target(self) -> float:
        """In seconds; infinite where it is not reached."""
        return self.passage(TARGET)[0]

    def passage(self, target: str) -> tuple[float, float]:
        """Return at how many seconds and updates a target was reached; infinite if never."""
        updates = self.schedule.updates
        last = updates["tensor"] == updates["tensor"].max(initial=0)
        ends = np.unique(updates["time"][last]) / 1e12
        made = np.searchsorted(ends, self.time, "right").tolist()
        found = FirstPassage(parse_target(target))
        for time, count, loss in zip(self.time.tolist(), made, self.loss.tolist(), strict=True):
            found.see(time, count, loss)
        if found.reached_at is None or found.reached_updates is None:
            return np.inf, np.inf
        return found.reached_at, float(found.reached_updates)


@dataclass(frozen=True, eq=False)
class Row:
    """One design: its trainings, measured and predicted, seed by seed."""

    cell: Cell  # of the first seed
    measured: Sequence[Course]
    predicted: Sequence[Course]

    def medians(self, what: str) -> tuple[float, float]:
        """Return what was measured and predicted of an attribute of `Course`."""
        both = (self.measured, self.predicted)
        real, ours = (np.median([getattr(c, what) for c in each]) for each in both)
        return float(real), float(ours)

    @property
    def staleness_distance(self) -> float:
        """Total variation between the staleness of all gradients, measured and predicted."""
        both = (self.measured, self.predicted)
        pooled = [np.concatenate([c.schedule.staleness for c in each]) for each in both]
        most = max(int(each.max(initial=0)) for each in pooled) + 1
        one, other = (np.bincount(each, minlength=most) / len(each) for each in pooled)
        return float(np.abs(one - other).sum() / 2)


def compare(cells: Sequence[Cell], folder: Path) -> list[Row]:
    """Predict what has been measured of the cells: each seed from its own model and batches."""
    found = [cell for cell in cells if (folder / cell.name).is_dir()]

    def design(cell: Cell) -> tuple[object, ...]:
        return cell.job, cell.algorithm, cell.lr, cell.start, cell.workers

    rows = []
    for _, its in groupby(sorted(found, key=design), key=design):
        group = list(its)
        runs = [load_run(folder / cell.name) for cell in group]
        said = [predicted(cell, run, folder) for cell, run in zip(group, runs, strict=True)]
        rows.append(Row(group[0], [measured(run) for run in runs], said))
    return rows


def write_table(rows: Sequence[Row]) -> str:
    """Return the table, as Markdown has it, and what it comes to."""
    names = ("link", "algorithm", "lr", "start", "workers", "runs", "steps/s", "predicted")
    names += ("error", "staleness", f"time to {TARGET}", "predicted", "error")
    lines = [" | ".join(names), " | ".join("---" for _ in names)]
    errors: dict[str, list[float]] = {"throughput": [], f"time to {TARGET}": []}
    for row in rows:
        cell = row.cell
        design = (cell.job, cell.algorithm, f"{cell.lr:g}", cell.start, f"{cell.workers}")
        said = [*design, f"{len(row.measured)}"]
        for (name, kept), what in zip(
            errors.items(), ("steps_per_second", "time_to_target"), strict=True
        ):
            real, ours = row.medians(what)
            unit = "" if name == "throughput" else " s"
            reached = np.isfinite([real, ours]).all()
            if reached:
                kept.append(ours / real - 1)
            said += [_number(each, unit) for each in (real, ours)]
            said.append(f"{kept[-1]:+.1%}" if reached else "")
            if name == "throughput":
                said.append(f"{row.staleness_distance:.2f}")
        lines.append(" | ".join(said))
    totals = [
        f"{name.capitalize()}: mean of absolute errors {np.mean(np.abs(error)):.1%}, "
        f"worst {max(error, key=abs):+.1%}."
        for name, error in errors.items()
        if error
    ]
    return "\n".join([*(f"| {line} |" for line in lines), "", *totals])


def draw(rows: Sequence[Row], file: Path) -> None:
    """Draw the loss against wall-clock time: asynchronous, together, on the fair link."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for row in rows:
        cell = row.cell
        design = (cell.job, cell.algorithm, cell.lr, cell.start)
        if cell.workers not in COLOURS or design != ("fair", "asgd", 0.1, "together"):
            continue
        colour = COLOURS[cell.workers]
        axes.plot(*_median(row.measured), color=colour, linewidth=3, alpha=0.4)
        axes.plot(*_median(row.predicted), color=colour, linestyle="--", linewidth=1.2)
        label = "1 worker" if cell.workers == 1 else f"{cell.workers} workers"
        axes.plot([], [], color=colour, label=label)
    axes.plot([], [], color="grey", linewidth=3, alpha=0.4, label="measured")
    axes.plot([], [], color="grey", linestyle="--", linewidth=1.2, label="predicted from 1 worker")
    axes.set(xlabel="seconds", ylabel="loss", yscale="log", xlim=(0, LONGEST))
    axes.grid(alpha=0.3)
    axes.legend(ncols=2)
    figure.savefig(file, dpi=150)
    plt.close(figure)


def _median(courses: Sequence[Course]) -> tuple[Floats, Floats]:
    """Return the median of all seeds' losses within a second of each instant."""
    time, loss = (np.concatenate([getattr(c, name) for c in courses]) for name in ("time", "loss"))
    grid = np.arange(0.0, min(LONGEST, min(float(c.time[-1]) for c in courses)), 0.5)
    return grid, np.array([np.median(loss[np.abs(time - at) <= 1.0]) for at in grid])


def measured(run: RecordedRun) -> Course:
    """Return the course of a run; of one in iterations, what snapshots show of each of these.

    A prediction evaluates between iterations. A snapshot may show one half made, or nothing new.
    """
    time, loss = run.snapshot_times, run.metrics["loss"].astype(float)
    if run.facts["synchronous"]:
        updates = run.schedule.updates
        own = [updates["time"][updates["tensor"] == i] for i in range(len(run.schedule.tensors))]
        version = np.stack([np.searchsorted(np.unique(each), time, "right") for each in own])
        whole = np.flatnonzero((version == version[0]).all(axis=0))
        _, first = np.unique(version[0][whole], return_index=True)
        time, loss = time[whole[first]], loss[whole[first]]
    return Course(run.schedule, time / 1e12, loss)


def updates_between_snapshots(run: RecordedRun) -> int:
    """Return how many updates a run has made from one snapshot to the next, at least one."""
    pushes = run.facts["workers"] if run.facts["synchronous"] else 1
    per_second = len(run.schedule.steps) / pushes / run.facts["seconds"]
    return max(1, round(float(np.diff(run.snapshot_times).mean()) / 1e12 * per_second))


def predicted(cell: Cell, run: RecordedRun, folder: Path) -> Course:
    """Predict a run from its design and its seed, and the profile of one worker on its link."""
    file = folder / f"{cell.job}.profile"
    facts = run.facts
    config = ProfileTrainConfig(
        profile=file,
        bandwidth=load_job_profile(file).bandwidth,
        workers=cell.workers,
        start=cell.start,
        **({"stagger": cell.stagger} if cell.start == "staggered" else {}),
        model=facts["model"],
        data=facts["data"],
        batch=facts["batch"],
        algorithm=cell.algorithm,
        lr=cell.lr,
        until=facts["seconds"],
        evaluate_every=updates_between_snapshots(run),
        keep_going=True,
    )
    result = run_scheduled(config, cell.seed)
    losses = result.metrics.series("loss")
    time, loss = (np.array([getattr(r, key) for r in losses]) for key in ("virtual_time", "value"))
    assert result.schedule is not None
    return Course(result.schedule, time, loss)


def _number(value: float, unit: str) -> str:
    return f"{value:.2f}{unit}" if np.isfinite(value) else "never"
