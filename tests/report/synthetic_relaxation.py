"""Relaxations made up for the tests: the files are real, the iteration is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from paracosm.studies.run_folder import RunFolder
from paracosm.timeline import Timeline

UNKNOWNS = 400
UPDATE_TIME = 10.0  # seconds of virtual time


def make_relaxation(
    path: Path,
    method: str = "jacobi",
    processors: int = 10,
    sweeps: int = 300,
    rate: float = 0.96,
    status: str | None = "converged",
    faults: int = 0,
    checkpoints: int = 0,
    phases: bool = True,
    staleness: dict[str, Any] | None = None,
) -> RunFolder:
    """Write a run whose residual is `rate`^sweep; `status` None leaves it unfinished.

    A fault makes the residual 1e4 times larger; two sweeps later a rollback takes that away.
    """
    study = {
        "seed": 3,
        "relax": {"problem": "laplace2d:20", "method": method, "processors": processors},
    }
    run = RunFolder.create(path, study)
    residual, now, events = 1.0, 0.0, []
    at_fault = {round((i + 1) * sweeps / (faults + 1)) for i in range(faults)}
    at_checkpoint = {round((i + 1) * sweeps / (checkpoints + 1)) for i in range(checkpoints)}
    for sweep in range(1, sweeps + 1):
        residual *= rate
        now, step = UPDATE_TIME * sweep, UNKNOWNS * sweep
        if sweep in at_checkpoint:
            run.metric(now, now / 1e3, "observer", "checkpoint", residual, step)
        if sweep in at_fault:
            events.append(
                {
                    "time": now,
                    "what": "uniform(-100, 100) on 40 components",
                    "residual_before": residual,
                    "residual_after": 1e4 * residual,
                }
            )
            residual *= 1e4
            run.metric(now, now / 1e3, "observer", "fault", residual, step)
        if sweep - 2 in at_fault:
            residual *= 1e-4
            run.metric(now, now / 1e3, "observer", "rollback", residual, step)
        run.metric(now, now / 1e3, "observer", "residual", residual, step)
        run.metric(now, now / 1e3, "observer", "error", 7 * residual, step)
    for processor in range(processors):
        updates = sweeps - 5 * (processor % 3)
        run.metric(now, now / 1e3, f"processor{processor}", "updates", updates, step)
    if status is None:
        run.close()
        return run
    run.finish(
        {
            "method": method,
            "read": "start",
            "processors": processors,
            "unknowns": UNKNOWNS,
            "status": status,
            "residual": residual,
            "initial_residual": 1.0,
            "norm": "relative 2-norm",
            "tolerance": 1e-5,
            "error": 7 * residual,
            "relaxations": UNKNOWNS * sweeps,
            "updates": processors * sweeps,
            "sweeps": float(sweeps),
            "virtual_time": now,
            "wall_time": 0.25,
            "spectral_radius": {
                "value": 0.96,
                "lower": 0.96,
                "upper": 0.96,
                "sentence": "rho(|C|) = 0.96 < 1: every asynchronous iteration converges.",
            },
            "staleness": staleness or {"mean": 8.9, "max": 14, "counts": [0] * 6 + [1, 4, 9, 4, 1]},
            "definition": {"sentence": "All three conditions of Definition 1 held."},
            "detection": {
                "by": "snapshot(every=10)",
                "false_detections": 2,
                "late_by": 45.0,
                "messages": 70,
                "snapshots": 5,
            },
            "messages": {"count": 1200, "bytes": 96000},
            "faults": {
                "injected": faults,
                "detected": faults,
                "undetected": 0,
                "false_alarms": 0,
                "events": events,
            },
            "checkpoints": {
                "taken": checkpoints,
                "rollbacks": faults,
                "cost": 2.0 * checkpoints,
                "suggested_interval_young": 45.0,
                "suggested_interval_daly": 44.0,
            }
            if checkpoints
            else None,
            "growth_rate": rate if status == "diverged" else None,
            "durations": {"update": "modelled: normal(10s, 3s)"},
        },
        _timeline(processors, min(sweeps, 20), phases),
    )
    return run


def _timeline(processors: int, updates: int, phases: bool) -> Timeline:
    """Return the spans of updates that take a tenth to copy and a fifth to write, if told."""
    timeline = Timeline()
    cuts = {"copy": 0.1, "compute": 0.7, "update": 0.2} if phases else {"relax": 1.0}
    for processor in range(processors):
        ends = np.cumsum(UPDATE_TIME * (1 + 0.3 * np.sin(np.arange(updates) + processor)))
        begin = 0.0
        for end in ends.tolist():
            reached = begin
            for name, share in cuts.items():
                until = reached + share * (end - begin)
                timeline.span(f"processor{processor}", "compute", name, reached, until)
                reached = until
            begin = end
    return timeline
