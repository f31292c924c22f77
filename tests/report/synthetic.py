"""Runs made up for the tests: the files are real, the training is not."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.studies.run_folder import RunFolder
from paracosm.timeline import Timeline

STEP = 0.02  # seconds of virtual time between updates


def make_run(
    path: Path,
    algorithm: str = "asgd",
    workers: int = 4,
    updates: int = 200,
    status: str | None = "done",
    spans: int = 40,
    seed: int = 3,
    **summary: Any,
) -> RunFolder:
    """Write a run whose loss falls as 1/sqrt(update); `status` None leaves it unfinished."""
    rng = np.random.default_rng(0)
    study = {
        "seed": seed,
        "train": {"algorithm": algorithm, "workers": workers, "model": "mlp", "lr": 0.2},
    }
    run = RunFolder.create(path, study)
    names = [f"worker{i}" for i in range(workers)]
    for step in range(1, updates + 1):
        now, worker = STEP * step, names[step % workers]
        loss = 2.3 / math.sqrt(step)
        run.metric(now, now / 10, worker, "minibatch_loss", loss * rng.lognormal(0, 0.1), step)
        run.metric(now, now / 10, worker, "staleness", int(rng.integers(0, 2 * workers)), step)
        if step % 20 == 0:
            for name, value in (("loss", loss), ("test_loss", loss), ("accuracy", 1 - loss / 3)):
                run.metric(now, now / 10, "evaluation", name, value, step)
    for node in ("server0", *names):
        for resource, share in (("compute", 0.8), ("send", 0.1), ("receive", 0.1)):
            if node != "server0" or resource != "compute":
                run.metric(now, 1.0, node, f"utilisation.{resource}", share, updates)
    if status is None:
        run.close()
        return run
    timeline = Timeline()
    for i in range(spans):
        begin = i // workers * 0.02
        timeline.span(names[i % workers], "compute", "gradient", begin, begin + 0.015)
        timeline.span(names[i % workers], "send", "to server0", begin + 0.015, begin + 0.02)
    diverged = {"update": 120, "worker": "worker2", "staleness": 5, "loss": 12345.0}
    run.finish(
        {
            "algorithm": algorithm,
            "workers": workers,
            "model": "mlp",
            "data": "digits",
            "seed": seed,
            "updates": updates,
            "final_loss": loss,
            "final_accuracy": 1 - loss / 3,
            "mean_staleness": workers - 1,
            "virtual_time": STEP * updates,
            "examples_per_second": 1600.0,
            "wall_time": 1.25,
            "status": status,
            "durations": {"compute": "modelled: lognormal(20ms, 0.1)", "gradients": "computed"},
            "divergence": diverged if status == "diverged" else None,
            **summary,
        },
        timeline if spans else None,
    )
    return run
