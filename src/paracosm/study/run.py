"""Carry out one point of a study, in a run folder or in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paracosm.study.kinds import KINDS, Announce, Progress
from paracosm.study.run_folder import RunFolder
from paracosm.study.study import Point

__all__ = ["run_point"]


def run_point(
    point: Point,
    out: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
    log: bool = False,
    announce: Announce | None = None,
) -> dict[str, Any]:
    """Run `point` and return its summary.

    Args:
        point: what to run.
        out: the run folder to make; nothing is written without one.
        force: replace the run that is in the folder.
        progress: called while the run goes on.
        log: print a line for every event, in a kind of run that has such a log.
        announce: told before the run what to expect of it, by a kind of run that knows.

    Raises:
        InputError: if the run cannot start; a folder that was made for it is then gone again.
    """
    run = KINDS[point.kind].run
    if out is None:
        return run(point.config, point.seed, None, progress, announce, log).summary
    with RunFolder.create(out, point.as_study(), force) as folder:
        outcome = run(point.config, point.seed, folder, progress, announce, log)
        for name, save in outcome.files.items():
            save(out / name)
        folder.finish(outcome.summary, outcome.timeline)
    return outcome.summary
