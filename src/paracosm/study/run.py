"""Carry out one point of a study, in a run folder or in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paracosm.study.run_folder import RunFolder
from paracosm.study.study import Point
from paracosm.training import train
from paracosm.training.job import Progress

__all__ = ["run_point"]


def run_point(
    point: Point,
    out: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
    log: bool = False,
) -> dict[str, Any]:
    """Run `point` and return its summary.

    Args:
        point: what to run.
        out: the run folder to make; nothing is written without one.
        force: replace the run that is in the folder.
        progress: called after every update.
        log: print a line for every event.

    Raises:
        InputError: if the run cannot start; a folder that was made for it is then gone again.
    """
    if out is None:
        return train(point.config, point.seed, progress=progress, log=log).summary
    with RunFolder.create(out, point.as_study(), force) as folder:
        result = train(point.config, point.seed, folder, progress, log)
        if result.recording is not None:
            result.recording.save(out / "recording.json")
        folder.finish(result.summary, result.timeline)
    return result.summary
