"""Run a study: one point, in a run folder or in memory, or all points of a grid."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from paracosm.backends import HERE, Backend
from paracosm.data_files import read_json, read_yaml
from paracosm.errors import InputError
from paracosm.factory import failure
from paracosm.files import Lock, check_no_link, replacing, temporary_folder, unwritable
from paracosm.results import Summary, to_builtin, to_json
from paracosm.results.kind import Hooks, Outcome
from paracosm.studies.kinds import KINDS
from paracosm.studies.run_folder import JOURNAL, RunFolder, remove_run_files, write_run_files
from paracosm.studies.study import Point, Study, is_same_study

SWEEP = "sweep.json"


def run_point(
    point: Point,
    out: Path | None = None,
    force: bool = False,
    hooks: Hooks | None = None,
) -> Outcome:
    """Run `point`.

    Args:
        point: what to run.
        out: the run folder to create; without one, nothing is written.
        force: replace the run that is in the folder.
        hooks: callbacks and settings.

    Raises:
        InputError: the run cannot start; a folder created for it is removed.
    """
    kind, hooks = KINDS[point.kind], hooks or Hooks()
    if hooks.log and not kind.logs:
        raise InputError(f"{kind.noun} has no event log: leave --log out")
    where = hooks.backend
    if where != HERE and not (kind.of_many or (kind.on_clusters and where.is_remote)):
        flag = "--jobs" if where.jobs > 1 else "--backend"
        raise InputError(f"{flag} needs a study with a grid: leave it out")
    there = where.sending(to_builtin(point.as_study()))
    hooks = replace(hooks, backend=there, force=force)
    if out is None:
        return _with_defaults(kind.run(point.config, point.seed, None, hooks), point)
    with RunFolder.create(out, point.as_study(), force, resume=kind.of_many) as folder:
        if kind.of_many:
            hooks = replace(hooks, journal=out / JOURNAL)
        outcome = _with_defaults(kind.run(point.config, point.seed, folder, hooks), point)
        for name, save in outcome.files.items():
            folder.add_file(name, save)
        folder.finish(outcome.summary, outcome.timeline)
    return outcome


def _with_defaults(outcome: Outcome, point: Point) -> Outcome:
    return replace(outcome, summary=replace(outcome.summary, defaults=point.defaults()))


@dataclass(frozen=True)
class FailedPoint:
    """A point of a sweep that could not run: its name, its varied arguments, and why not."""

    point: str
    varied: Mapping[str, Any]
    error: str  # one line
    code: int  # the exit code of such a run; no summary has one, while relaxations have an `error`

    def to_dict(self) -> dict[str, Any]:
        """Return the row as `sweep.json` has it."""
        return {
            "point": self.point,
            "varied": self.varied,
            "status": "failed",
            "error": self.error,
            "code": self.code,
        }


@dataclass(frozen=True)
class SweepRow:
    """A finished point of a sweep: its name, its varied arguments, and its summary."""

    point: str
    varied: Mapping[str, Any]
    summary: Summary

    def to_dict(self) -> dict[str, Any]:
        """Return the row as `sweep.json` has it."""
        return {"point": self.point, "varied": self.varied, **self.summary.to_dict()}


def run_sweep(
    study: Study,
    points: list[Point],
    out: Path,
    backend: Backend = HERE,
    force: bool = False,
    finished: Callable[[Point], None] | None = None,
) -> list[SweepRow | FailedPoint]:
    """Run the points of a study, each in a folder of its own under `out`.

    An interrupted sweep resumes: points with finished folders are not run again. `sweep.json`
    always lists the finished points, and those that failed, which end no sweep: they run again
    when it is run again.

    Args:
        study: the study, as in its file.
        points: its points.
        out: the folder of the sweep; gets `study.yaml` and `sweep.json`.
        backend: where the points run; those of a cluster are sent back and written here.
        force: run everything again.
        finished: called, in any order, with each point that is done, or has failed.

    Raises:
        InputError: `out` holds something other than this sweep, or no point can run.
        KeyboardInterrupt: the sweep was interrupted.
    """
    with claimed(out, to_builtin(study.as_written()), force):
        return runner(out, backend, force, finished)(points)


@contextmanager
def claimed(out: Path, wanted: Any, force: bool = False) -> Iterator[None]:
    """Hold the folder of a sweep, whose `study.yaml` has what is `wanted`, while its points run."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = Lock(out)
    except OSError as error:
        raise unwritable(f"{out}: cannot write a sweep here", error) from None
    try:
        with lock:
            _claim(out, wanted, force)
            try:
                yield
            except InputError:
                if not any(file.is_dir() for file in out.iterdir()):
                    remove_run_files(out)
                raise
    except InputError:
        with suppress(OSError):  # it holds something
            out.rmdir()
        raise


def runner(
    out: Path,
    backend: Backend = HERE,
    force: bool = False,
    finished: Callable[[Point], None] | None = None,
) -> Callable[[list[Point]], list[SweepRow | FailedPoint]]:
    """Return what runs points, call by call, in the folder of a sweep that is this process's own
    (`run_sweep`).
    """
    points: list[Point] = []
    rows: dict[str, SweepRow | FailedPoint] = {}

    def done(point: Point, failed: tuple[str, int] | None = None) -> None:
        varied = to_builtin(point.varied)
        if failed is None:
            summary = RunFolder.open(out / point.name).results
            rows[point.name] = SweepRow(point.name, varied, summary)
        else:
            rows[point.name] = FailedPoint(point.name, varied, *failed)
        if finished is not None:
            finished(point)

    def run(more: list[Point]) -> list[SweepRow | FailedPoint]:
        points.extend(more)
        for point in more:
            if not force and _is_finished(point, out / point.name):
                done(point)
                continue
            check_no_link(out / point.name)
            if force:
                remove_run_files(out / point.name)
        _write_rows(rows, points, out)
        missing = {point.name: point for point in more if point.name not in rows}
        sent = [to_builtin(point.as_study()) for point in missing.values()]
        there = backend.sending(sent) if backend.is_remote else backend
        calls = [(p, None if backend.is_remote else out / p.name) for p in missing.values()]
        for name, files, failed in there.each(_run, calls, lost=_lost):
            if files:
                write_run_files(out / name, files)
            done(missing[name], failed)
            _write_rows(rows, points, out)
        _check_any_can_run(list(rows.values()))
        return [rows[point.name] for point in more]

    return run


_Ran = tuple[str, dict[str, bytes], tuple[str, int] | None]  # name, files, why it failed


def _run(point: Point, out: Path | None) -> _Ran:
    """Run a point; return its name, the files of its folder where none was given, and the line and
    exit code of what went wrong, if something did."""
    if out is None:
        with temporary_folder() as folder:
            name, _, failed = _run(point, folder / "run")
            if failed is not None:
                return name, {}, failed
            files = [file for file in (folder / "run").iterdir() if file.name != Lock.NAME]
            return name, {file.name: file.read_bytes() for file in files}, None
    try:
        hooks = Hooks(sweep=out.parent)
        status = run_point(point, out, force=True, hooks=hooks).summary.status
    except (Exception, SystemExit) as error:  # the user's own code may exit
        if os.environ.get("PARACOSM_DEBUG"):
            error.add_note(f"in the point {point.name}")
            raise
        return point.name, {}, failure(error)
    if status == "interrupted":
        raise KeyboardInterrupt  # ends the whole sweep, not only this point
    return point.name, {}, None


def _lost(point: Point, out: Path | None) -> _Ran:
    return point.name, {}, ("its process was killed again and again: out of memory?", 1)


def _check_any_can_run(rows: Sequence[SweepRow | FailedPoint]) -> None:
    """Raise InputError where no point can run, as the input of each is wrong."""
    failed = [row for row in rows if isinstance(row, FailedPoint) and row.code == 2]
    if failed and len(failed) == len(rows):
        all_of_them = f" (none of {len(failed):,} points can run)" if len(failed) > 1 else ""
        raise InputError(f"{failed[0].point}: {failed[0].error}{all_of_them}")


def read_sweep(folder: Path) -> list[Mapping[str, Any]]:
    """Return the rows of a sweep: for each point that is done its run folder `point` and `varied`;
    one that has failed has an `error`.

    Raises:
        InputError: its list cannot be read.
    """
    try:
        rows = read_json(folder / SWEEP, "list of runs")
    except InputError:
        rows = None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and {"point", "varied"} <= row.keys() and _is_name(row["point"])
        for row in rows
    ):
        raise InputError(f"{folder / SWEEP}: cannot be read")
    return rows


def runs_in(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """Return the runs of a sweep's folder in its order, and why other points could not run; any
    other folder is returned unchanged.
    """
    if not (folder / SWEEP).is_file():
        return [folder], {}
    rows = read_sweep(folder)
    failed = {row["point"]: str(row["error"]) for row in rows if "code" in row}
    return [folder / row["point"] for row in rows if row["point"] not in failed], failed


def finished_runs_in(folder: Path) -> tuple[list[Path], dict[str, str]]:
    """Return what `runs_in` does.

    Raises:
        InputError: no run is finished yet.
    """
    runs, failed = runs_in(folder)
    if not runs:
        why = "".join(f": {name}: {error}" for name, error in [*failed.items()][:1])
        raise InputError(f"{folder}: no run of this sweep is finished yet{why}")
    return runs, failed


def _is_name(point: object) -> bool:
    """Whether it can be the name of a folder in another one."""
    return isinstance(point, str) and "/" not in point and point not in ("", ".", "..")


def _write_rows(
    rows: Mapping[str, SweepRow | FailedPoint], points: Iterable[Point], out: Path
) -> None:
    ordered = [rows[point.name].to_dict() for point in points if point.name in rows]
    with replacing(out / SWEEP) as temporary:
        temporary.write_text(to_json(ordered), encoding="utf-8")


def _claim(out: Path, wanted: Any, force: bool) -> None:
    """Create the folder of this sweep, or refuse a folder with other content."""
    file = out / "study.yaml"
    try:
        if force:
            remove_run_files(out)
        elif not _is_new(out) and _study_in(file) != wanted:
            raise InputError(
                f"{out}: the folder exists and holds something other than this study: choose "
                "another one, or give --force"
            )
        with replacing(file) as temporary:
            temporary.write_text(yaml.safe_dump(wanted, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise unwritable(f"{out}: cannot write a sweep here", error) from None


def _is_new(out: Path) -> bool:
    """Whether nothing is in a folder, or what a process has left that was killed at once."""
    return all(file.name.startswith((Lock.NAME, ".study.yaml.")) for file in out.iterdir())


def _study_in(file: Path) -> object:
    try:
        return read_yaml(file, "study") if file.is_file() else None
    except InputError:
        return None


def _is_finished(point: Point, folder: Path) -> bool:
    """Whether the folder holds this very point, completed."""
    try:
        run = RunFolder.open(folder)
        ended = run.status in KINDS[point.kind].ends
        return ended and is_same_study(run.study, to_builtin(point.as_study()))
    except InputError:
        return False
