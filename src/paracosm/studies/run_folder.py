"""The run folder (docs/run-folder.md): the files of a run, readable at every instant. A file
appears under its name only when complete (it is written to a temporary file and renamed), except
for metrics.arrows, which is readable even if truncated; summary.json marks the run as finished. The
folder of a sweep has a study.yaml, a sweep.json with the summaries of the finished points, and a
run folder for each point.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import yaml

from paracosm.backends import versions
from paracosm.columns import numbers_in, rows_with, texts_in
from paracosm.data_files import parse_json, parse_yaml
from paracosm.errors import InputError
from paracosm.files import (
    Lock,
    check_no_link,
    read_bytes,
    replacing,
    sealing,
    unwritable,
)
from paracosm.machine import processor_name, usable_cores
from paracosm.results import Summary, to_builtin, to_json, with_digest, without_digest
from paracosm.results.metrics import Series
from paracosm.studies.kinds import KINDS
from paracosm.studies.metrics_file import (
    MetricsWriter,
    read_metrics,
    read_stream,
    stream_to_parquet,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from paracosm.timeline import Timeline

UNFINISHED = "unfinished"

TRIALS = "trials.csv"  # of a tuning
BEST = "best.yaml"  # the study with the best values

FORMAT = 2
"""Of the run folder: another one is written by another version of Paracosm.

1 had no number, and throughput in three shapes.
"""

JOURNAL = "runs.jsonl"
UNCHANGED_JOURNAL = f"unchanged-{JOURNAL}"

# In the order in which they are removed, which can end at each of them. The summary first: without
# it, the folder cannot pass for a finished run. What says whose folder it is last.
FILES = (
    "summary.json",
    "metrics.arrows",
    "metrics.parquet",
    "timeline.parquet",
    "schedule.parquet",
    "recording.json",
    "collectives.parquet",
    "measured.records",
    JOURNAL,
    UNCHANGED_JOURNAL,
    TRIALS,
    BEST,
    "sweep.json",
    "report.html",
    "study.yaml",
    "environment.json",
)


class RunFolder:
    """One run on disk: `create` it, add metrics, `finish` it; or `open` an existing one.

    As a context manager it flushes and closes the metrics at the end of the block, however the
    block ends; only `finish` marks the run as finished. If an InputError ends the block before the
    first metric, the run could not start, and the folder is removed.

        with RunFolder.create("runs/asgd16", study) as run:
            run.metric(0.02, 0.001, "worker3", "staleness", 15, 1)
            run.finish({"final_loss": 0.02})
    """

    path: Path

    def __init__(
        self, path: Path, writer: MetricsWriter | None = None, lock: Lock | None = None
    ) -> None:
        self.path = path
        self._writer = writer
        self._lock = lock

    @classmethod
    def create(
        cls, path: str | Path, study: Mapping[str, Any], force: bool = False, resume: bool = False
    ) -> RunFolder:
        """Make the folder and write study.yaml and environment.json.

        Args:
            path: the folder; created, with its parents, if missing.
            study: the study as resolved. Its seed (`study["seed"]`) is noted in the environment.
            force: replace the run that is in the folder. Other files there are never touched.
            resume: of a run of the same study that did not come to its end the journal stays.

        A run of the same study that was killed or interrupted is made again without `force`.

        Raises:
            InputError: the folder holds something else, cannot be written, or another process is
                writing there.
        """
        path = Path(path)
        lock = None
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = Lock(path)
            if not force and _stopped_early(path, study):
                # The new ones replace the old: at no instant is the folder nobody's.
                kept = ["study.yaml", "environment.json"]
                kept += (JOURNAL, UNCHANGED_JOURNAL) if resume else ()
                remove_run_files(path, [name for name in FILES if name not in kept])
            else:
                claim_folder(path, force)
            environment = describe_environment(study.get("seed"))
            _write(path / "environment.json", to_json(environment))
            writer = MetricsWriter(path / "metrics.arrows")
            # Last, since this file makes the folder a run folder.
            text = yaml.safe_dump(to_builtin(study), sort_keys=False, allow_unicode=True)
            _write(path / "study.yaml", text)
        except BaseException as error:  # Ctrl-C as well, after which a notebook goes on
            if lock is not None:
                lock.release()
            if not isinstance(error, OSError):
                raise
            raise unwritable(f"{path}: cannot write a run folder here", error) from None
        return cls(path, writer, lock)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Open a folder for reading; the run may be unfinished or killed.

        Raises:
            InputError: this is not a run folder, or one of its files is missing or damaged.
        """
        run = cls(Path(path))
        if run.path.is_file():
            raise InputError(f"{path}: a file: give the folder of a run, which --out has written")
        if not run.path.is_dir():
            raise InputError(f"{path}: no such folder")
        if not (run.path / "study.yaml").is_file():
            raise InputError(f"{path}: not a run folder, which --out writes: it has no study.yaml")
        began = (run.path / "environment.json").is_file()
        if not began and (run.path / "sweep.json").is_file():
            raise InputError(
                f"{path}: the folder of a sweep: give that of one of its runs, inside it"
            )
        check_format(run.path, run.environment)
        _ = run.study, run.summary
        return run

    # ------------------------------------------------------------------ writing

    def metric(
        self, virtual_time: float, wall_time: float, node: str, name: str, value: float, step: int
    ) -> None:
        """Add one row to the metrics (times in seconds). Rows reach the disk in batches."""
        if self._writer is None:
            raise self._not_writing()
        self._writer.append(virtual_time, wall_time, node, name, value, step)

    def flush(self) -> None:
        """Write the metrics so far to the disk, for example before a long computation."""
        if self._writer is None:
            raise self._not_writing()
        self._writer.flush()

    def add_file(self, name: str, save: Callable[[Path], None]) -> None:
        """Add a file, which `save` writes to the path that it is given."""
        with replacing(self.path / name) as unfinished:
            save(unfinished)

    def finish(
        self,
        summary: Mapping[str, Any],
        timeline: Timeline | None = None,
    ) -> None:
        """Write the remaining data and mark the run as finished.

        Args:
            summary: the key numbers and the `status` (default: "done"); NaN is written as null.
            timeline: the spans, if they were recorded.
        """
        if self._writer is None:
            raise self._not_writing()
        self.close()
        stream = self.path / "metrics.arrows"
        with sealing(self.path / "metrics.parquet") as file:
            stream_to_parquet(stream, file)
        if timeline is not None:
            timeline.save(self.path / "timeline.parquet")
        finished = {**summary, "status": summary.get("status", "done")}
        _write(self.path / "summary.json", to_json(with_digest(finished)))
        stream.unlink()
        self.__dict__.pop("summary", None)
        self._release()

    def close(self) -> None:
        """Flush and close the metrics of an unfinished run."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def discard(self) -> None:
        """Remove the run, and its folder if nothing else is in it."""
        self.close()
        remove_run_files(self.path)
        self._release()
        with suppress(OSError):  # something is in it, or it is a link to a folder
            self.path.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, InputError) and self._writer is not None and self._writer.is_empty:
            self.discard()
        else:
            self.close()
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _not_writing(self) -> RuntimeError:
        return RuntimeError(f"{self.path}: this run is closed, or open for reading only")

    # ------------------------------------------------------------------ reading

    @cached_property
    def study(self) -> dict[str, Any]:
        """The study, with defaults filled in."""
        return _mapping(self.path / "study.yaml", parse_yaml)

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Versions, hardware and seed."""
        return _mapping(self.path / "environment.json", parse_json)

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        """The key numbers; None if the run is not finished."""
        file = self.path / "summary.json"
        if not file.exists():
            return None
        return without_digest(_mapping(file, parse_json), str(file))

    @property
    def results(self) -> Summary:
        """The typed summary; of an unfinished run, one without numbers."""
        file, verb = self.path / "summary.json", self.kind or "train"
        classes = [answer.summary for answer in KINDS[verb].answers]
        name = (self.summary or {}).get("kind") or classes[0].kind
        named = next((summary for summary in classes if summary.kind == name), None)
        if named is None:
            raise InputError(f"{file}: damaged: not the kind of summary of {verb}")
        if self.summary is None:
            return named.from_dict({"status": UNFINISHED})
        return named.from_dict({**self.summary, "status": self.status}, f"{file}: ")

    @property
    def status(self) -> str:
        """The summary's status; "unfinished" for a run that is still running or was killed."""
        return UNFINISHED if self.summary is None else str(self.summary.get("status", "done"))

    @property
    def kind(self) -> str | None:
        """The verb of the run: "train", "replay", ...; None if unknown."""
        return next((kind for kind in KINDS if kind in self.study), None)

    def metrics(self, name: str | None = None) -> pa.Table:
        """Return the long table, all of it or the rows of one metric, in the order of writing.

        Columns: virtual_time, wall_time, node, name, value, step.
        """
        import pyarrow as pa

        parquet, stream = self.path / "metrics.parquet", self.path / "metrics.arrows"
        if parquet.exists():
            return read_metrics(parquet, name)
        if not stream.exists():
            raise InputError(f"{self.path}: metrics.parquet is missing")
        try:
            table = read_stream(stream)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{parquet}: cannot be read: {_reason(error)}") from None
        return table if name is None else rows_with(table, "name", name)

    def series(self, name: str) -> Series:
        """Return one metric as NumPy columns; empty if the run has none of that name."""
        table = self.metrics(name)
        return Series(
            virtual_time=numbers_in(table["virtual_time"]),
            wall_time=numbers_in(table["wall_time"]),
            node=texts_in(table["node"]),
            value=numbers_in(table["value"]),
            step=numbers_in(table["step"]),
        )

    def timeline(self) -> Timeline | None:
        """Return the recorded spans; None if the run recorded none or is not finished."""
        file = self.path / "timeline.parquet"
        if not file.exists():
            return None
        from paracosm.timeline import Timeline

        return Timeline.load(file)


def claim_folder(folder: Path, force: bool) -> None:
    """Create a folder; with `force`, remove the files of an earlier run from it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(file.name != Lock.NAME for file in folder.iterdir()):
            if not force:
                raise InputError(
                    f"{folder}: the folder {_content_of(folder)}choose another one, or give "
                    "--force to replace the run in it"
                )
            remove_run_files(folder)
    except OSError as error:
        raise unwritable(f"{folder}: cannot write a run folder here", error) from None


def _content_of(folder: Path) -> str:
    """Return what is in a folder that is not empty, and how an unfinished run there is resumed."""
    try:
        run = RunFolder.open(folder)
        if run.status in (UNFINISHED, "interrupted") and run.kind is not None:
            return f"has {an_unfinished_run(run)}; "
    except InputError:  # of what is in it, which is kept
        pass
    return "exists and is not empty: "


def an_unfinished_run(run: RunFolder) -> str:
    """Return what to call a run that was killed or interrupted, and what resumes it."""
    study = run.path / "study.yaml"
    command = f"paracosm {run.kind} {study} --out {run.path}"
    return f"an unfinished run of {run.kind}, which goes on or was killed: {command} resumes it"


def _stopped_early(folder: Path, study: Mapping[str, Any]) -> bool:
    """Whether the run in a folder is of a study and did not come to its end, or never began."""
    if not (folder / "study.yaml").exists():
        began = ("environment.json", "metrics.arrows", "study.yaml", Lock.NAME[1:])
        return all(file.name.lstrip(".").startswith(began) for file in folder.iterdir())
    try:
        run = RunFolder.open(folder)
        return run.status in (UNFINISHED, "interrupted") and run.study == to_builtin(study)
    except InputError:
        return False


def check_format(folder: Path, environment: Mapping[str, Any]) -> None:
    """Refuse a folder that another version of Paracosm wrote."""
    if (version := environment.get("format", 1)) != FORMAT:
        raise InputError(
            f"{folder}: written by another version of Paracosm (format {version}, and this one "
            f"reads {FORMAT}): run it again, or use the version that wrote it"
        )


def remove_run_files(folder: Path, files: Collection[str] = FILES) -> None:
    """Remove the files of a run or a sweep, finished and half written, and nothing else.

    Raises:
        InputError: one of them cannot be removed, such as a folder of that name.
    """
    for name in files:
        for file in (folder / name, *folder.glob(f".{name}.*")):
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise unwritable(f"{file}: cannot be replaced", error) from None


def write_run_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a run folder of the files of one that is finished elsewhere."""
    folder.mkdir(parents=True, exist_ok=True)
    with Lock(folder):
        remove_run_files(folder)
        for name in sorted(files, key=_SUMMARY.__eq__):  # last, since it says: finished
            with replacing(folder / name) as temporary:
                temporary.write_bytes(files[name])


def copy_run(source: Path, target: Path) -> None:
    """Copy the files in the folder of a run or a sweep, and in the folders in it, to another one.

    What is neither a file nor a folder (a link, a pipe) is left out.
    """
    check_no_link(target)
    target.mkdir(parents=True, exist_ok=True)
    with Lock(target):
        for file in sorted(os.scandir(source), key=lambda entry: entry.name == _SUMMARY):
            if file.is_dir(follow_symlinks=False):
                copy_run(Path(file), target / file.name)
            elif file.is_file(follow_symlinks=False) and file.name != Lock.NAME:
                with replacing(target / file.name) as unfinished:
                    shutil.copyfile(file, unfinished)


_SUMMARY = "summary.json"


def _mapping(file: Path, parse: Callable[[bytes, str], Any]) -> dict[str, Any]:
    value = parse(read_bytes(file), f"{file}: cannot be read")
    if not isinstance(value, dict):
        raise InputError(f"{file}: cannot be read: it holds no mapping of names to values")
    return value


def _write(file: Path, text: str) -> None:
    with replacing(file) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _reason(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return " ".join(text.split())


def describe_environment(seed: int | None = None) -> dict[str, object]:
    """Return versions (of packages that are installed), hardware and seed: no host, user, path."""
    return {
        "versions": versions(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": processor_name(),
        "cores": len(usable_cores()),
        "format": FORMAT,
        "seed": seed,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
