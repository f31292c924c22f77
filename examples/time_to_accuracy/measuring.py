"""Running the cells: each a real training, kept with its losses and accuracies on whole sets."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cells import FASTER, HIDDEN, Cell
from real_training import RecordedRun, Training, real_training
from shaped_network import CONGESTION, build, put_first

from paracosm.models import load_data
from paracosm.models.build import build_model
from paracosm.profiling.jobs import save_job_profile
from paracosm.profiling.jobs.pytorch import JobOptions, Node
from paracosm.training.numerics.parameters import ParameterLayout, evaluate

DATA, BATCH = "digits", 32
WAITING = (0.05, 0.1)  # seconds of the forward and the backward pass
NOISE = 0.05  # standard deviation of their logarithm, one factor a step
MOST = 8  # workers
PROFILED = 120  # steps of the profile of one worker
SNAPSHOT_EVERY = 0.25  # seconds


def measure(cells: Sequence[Cell], out: Path, rate_mbit: float, shaped: bool) -> None:
    """Measure what is not in the folder yet, a subfolder for each cell and a profile of each link.

    A cell is there whole or not at all, so that Ctrl-C keeps what has been measured.
    """
    torch.set_num_threads(1)
    put_first([os.getpid()])  # what is evaluated between two trainings keeps these waiting
    if not shaped:
        cells = [cell for cell in cells if cell.link == "fair"]
    missing = [cell for cell in cells if not (out / cell.name).is_dir()]
    done = len(cells) - len(missing)
    _say(f"{len(missing)} of {len(cells)} cells to measure, {_minutes(missing)} min")
    for _, its in groupby(missing, key=lambda cell: cell.job):
        group = list(its)
        with _job(group[0], rate_mbit, shaped) as job:
            _profile(job, group[0], out)
            for cell in group:
                run = with_metrics(_train(job, cell))
                _keep(run, out / cell.name)
                done += 1
                left = _minutes(missing[missing.index(cell) + 1 :])
                _say(f"{done}/{len(cells)} {cell.name}: {_told(run)}; {left} min left")


def with_metrics(run: RecordedRun) -> RecordedRun:
    """Add loss, test loss and accuracy of the snapshots, each on all examples."""
    data = load_data(run.facts["data"])
    model = build_model(run.facts["model"], data, 0)
    layout = ParameterLayout.of(model.module, 1)
    if layout.names != run.schedule.tensors:
        raise ValueError(f"tensors {run.schedule.tensors}, but the model has {layout.names}")
    found: dict[str, list[float]] = {"loss": [], "test_loss": [], "accuracy": []}
    for parameters in map(torch.from_numpy, run.snapshots):
        loss, _ = evaluate(model, layout, parameters, data.train_x, data.train_y)
        test_loss, accuracy = evaluate(model, layout, parameters, data.test_x, data.test_y)
        assert accuracy is not None
        for name, value in (("loss", loss), ("test_loss", test_loss), ("accuracy", accuracy)):
            found[name].append(value)
    metrics = {name: np.array(values, np.float32) for name, values in found.items()}
    return replace(run, metrics=metrics)


@contextmanager
def _job(cell: Cell, rate_mbit: float, shaped: bool) -> Iterator[Training]:
    link = cell.link
    rate_mbit *= 1 if cell.hidden == HIDDEN else FASTER
    nodes: tuple[Node, ...] = ()
    if shaped:
        nodes = build(1, MOST, rate_mbit, link, name=f"{link}{time.monotonic_ns()}")
    options = JobOptions(
        cell.model,
        data=DATA,
        batch=BATCH,
        waiting=WAITING,
        noise=NOISE,
        port=None if shaped else rate_mbit * 1e6 / 8,
        nodes=nodes,
        timeout=600.0,
    )
    _say(f"starting a server and {MOST} workers on the {link} link")
    with real_training(options, MOST) as job:
        if not put_first(job.pids):
            _say("without real-time priority: what else runs here will show in the times")
        yield job


def _profile(job: Training, cell: Cell, out: Path) -> None:
    file = out / f"{cell.job}.profile"
    if not file.is_file():
        _say(f"profiling one worker with {cell.model} on the {cell.link} link")
        profile = job.profile(PROFILED)
        named = {**profile.provenance, "link": cell.link, "congestion_control": CONGESTION}
        save_job_profile(replace(profile, provenance=named), file)


def _train(job: Training, cell: Cell) -> RecordedRun:
    run = job.train(
        cell.workers,
        seconds=cell.seconds,
        stagger=cell.stagger,
        snapshot_every=SNAPSHOT_EVERY,
        algorithm=cell.algorithm,
        lr=cell.lr,
        seed=cell.seed,
    )
    return replace(run, facts={**run.facts, "link": cell.link, "start": cell.start})


def _keep(run: RecordedRun, folder: Path) -> None:
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    run.save(part)
    part.rename(folder)


def _told(run: RecordedRun) -> str:
    steps = np.bincount(run.schedule.steps["worker"], minlength=run.facts["workers"])
    seconds = run.facts["seconds"]
    share = sum(run.facts["cpu_seconds"]) / seconds / (os.cpu_count() or 1)
    last: dict[str, Any] = {name: values[-1] for name, values in run.metrics.items()}
    return (
        f"{steps.sum() / seconds:.2f} steps/s, {steps.min()} to {steps.max()} a worker, "
        f"loss {last['loss']:.3g}, accuracy {last['accuracy']:.3f}, processors {share:.0%} busy"
    )


def _minutes(cells: Sequence[Cell]) -> int:
    return round(sum(cell.seconds + 5 for cell in cells) / 60)


def _say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)
