"""Carry out all points of a study, several at a time, and gather their summaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml
from joblib import Parallel, delayed

from paracosm.errors import InputError
from paracosm.study.plain import plain, to_json
from paracosm.study.run import run_point
from paracosm.study.run_folder import RunFolder
from paracosm.study.study import Point, Study

__all__ = ["SweepRow", "run_sweep"]

SweepRow = dict[str, Any]
"""What a point varied, and its summary."""


def run_sweep(
    study: Study,
    points: list[Point],
    out: Path,
    jobs: int = 1,
    force: bool = False,
    finished: Callable[[Point], None] | None = None,
) -> list[SweepRow]:
    """Run the points of a study, each in a folder of its own under `out`.

    A sweep that was interrupted goes on where it stopped: points whose folders are finished are
    not run again.

    Args:
        study: the study, as its file says it.
        points: its points.
        out: the folder of the sweep; gets `study.yaml` and `sweep.json`.
        jobs: how many points run at a time, each in a process of its own.
        force: run everything again.
        finished: called, in any order, with each point that is done.

    Raises:
        InputError: if `out` holds something else than this sweep.
    """
    _claim(out, study, force)
    todo = [point for point in points if force or not _is_finished(out / point.name)]
    for point in points:
        if point not in todo and finished is not None:
            finished(point)
    runs: Iterable[Point] = Parallel(n_jobs=jobs, return_as="generator_unordered")(
        delayed(_run)(point, out / point.name) for point in todo
    )
    for point in runs:
        if finished is not None:
            finished(point)
    rows = [_row(point, out / point.name) for point in points]
    (out / "sweep.json").write_text(to_json(rows), encoding="utf-8")
    return rows


def _run(point: Point, out: Path) -> Point:
    run_point(point, out, force=True)
    return point


def _row(point: Point, folder: Path) -> SweepRow:
    return {
        "point": point.name,
        "varied": plain(point.varied),
        **(RunFolder.open(folder).summary or {}),
    }


def _claim(out: Path, study: Study, force: bool) -> None:
    """Make `out` the folder of this sweep, unless it is something else's."""
    file = out / "study.yaml"
    wanted = plain(study.model_dump())
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()) and not force:
        there = yaml.safe_load(file.read_text(encoding="utf-8")) if file.is_file() else None
        if there != wanted:
            raise InputError(
                f"{out}: the folder exists and holds something else than this study: "
                "choose another one, or give --force"
            )
    file.write_text(yaml.safe_dump(wanted, sort_keys=False), encoding="utf-8")


def _is_finished(folder: Path) -> bool:
    try:
        return RunFolder.open(folder).summary is not None
    except InputError:
        return False
