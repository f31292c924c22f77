"""What a run came to, in Python: the typed results that `paracosm.train` and the others return."""

from __future__ import annotations

import base64
import os
import weakref
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from paracosm.errors import InputError, require, unknown
from paracosm.files import check_name, open_file, temporary_folder
from paracosm.results import Summary, TuningSummary

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa
    from matplotlib.figure import Figure as MatplotlibFigure

    from paracosm.results.view import Run
    from paracosm.studies import RunFolder
    from paracosm.timeline import Timeline

S = TypeVar("S", bound=Summary, covariant=True)
Folder = str | os.PathLike[str]


class Result(Generic[S]):
    """The result of a run."""

    def __init__(
        self, summary: S, path: Path | None, folders: Sequence[RunFolder], keep: object = None
    ) -> None:
        self._summary = summary
        self._path = path
        self._folders = folders
        self._keep = keep  # a temporary folder lives as long as the results in it
        self._failed: dict[str, str] = {}  # further points of a sweep, and why they could not run

    @property
    def summary(self) -> S:
        """The key numbers, typed; `summary.to_dict()` is the content of `summary.json`."""
        return self._summary

    @property
    def status(self) -> str:
        """The status: "done", "converged", "diverged", ...; "unfinished" before the end."""
        return self.summary.status

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        from paracosm.report.runs import answer

        return answer(self.summary)

    @property
    def metrics(self) -> pa.Table:
        """The long table: virtual_time, wall_time (seconds), node, name, value, step.

        Raises:
            InputError: runs of this kind have none.
        """
        if "metrics" not in self._there():
            raise self._missing("metrics")
        return self._folders[0].metrics()

    @property
    def timeline(self) -> Timeline:
        """The spans and counters of every node.

        Raises:
            InputError: the run recorded none.
        """
        timeline = self._folders[0].timeline() if "timeline" in self._there() else None
        if timeline is None:
            raise self._missing("timeline")
        return timeline

    @cached_property
    def figures(self) -> Mapping[str, Any]:
        """The report's figures by name, as `plotly.graph_objects.Figure`."""
        from paracosm.report.figures import plotly_figure

        figure = require("plotly.graph_objects", "report", "figures in Plotly's form").Figure

        if not self._folders:
            raise self._missing("figures")
        names = [run.name for run in self._runs]
        return {chart.name: figure(plotly_figure(chart, names)) for chart in self._charts}

    def plot(self, name: str | None = None) -> MatplotlibFigure:
        """Return one of `figures`, the first where none is named, drawn by Matplotlib.

        Raises:
            InputError: there is no figure, or none of that name.
        """
        from paracosm.report.images import drawn

        charts = {chart.name: chart for chart in self._charts}
        if not charts:
            raise self._missing("figures")
        if name is not None and name not in charts:
            raise unknown("figure", name, charts)
        chart = charts[name] if name is not None else self._charts[0]
        return drawn(chart, [run.name for run in self._runs])

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table of a sweep or a tuning, the metrics of a run, or its key numbers.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        frame = require("pandas", "notebook", "to_pandas").DataFrame
        for name in ("table", "metrics"):
            if name in self._there():
                table: pandas.DataFrame = getattr(self, name).to_pandas()
                return table
        return frame([{key: value for key, value in self.summary.items() if _is_scalar(value)}])

    @property
    def points(self) -> list[Result[S]]:
        """The runs of a sweep.

        Raises:
            InputError: this is one run.
        """
        raise self._missing("points")

    @property
    def table(self) -> pa.Table:
        """A row for each point of a sweep.

        Raises:
            InputError: this is one run.
        """
        raise self._missing("table")

    def report(self, path: Folder) -> Path:
        """Write the report, one HTML page that works offline, and return its path."""
        from paracosm.report import write_report

        if not self._folders:
            raise self._missing("report")
        path = read_path(path, "report")
        write_report(self._folders, path, self._failed)
        return path

    def save(self, folder: Folder, force: bool = False) -> Path:
        """Write the run folder, with its report; `open` gives the result back.

        Args:
            folder: created if missing; a folder that is not empty is refused, unless `force`
                replaces its run.
        """
        from paracosm.studies.run_folder import claim_folder, copy_run

        checked(force, bool, "force", "True or False")

        if self._path is None:
            raise self._missing("folder")
        folder = read_path(folder, "save")
        if folder.resolve() == self._path.resolve():
            raise InputError(f"{folder}: the result is in this folder: save it in another one")
        if not self._path.is_dir():
            raise InputError(f"{self._path}: the folder of the result is gone: run it again")
        claim_folder(folder, force)
        copy_run(self._path, folder.resolve())  # which may be a link itself
        if self._folders and not (folder / "report.html").exists():
            self.report(folder / "report.html")
        return folder

    def __repr__(self) -> str:
        return f"<paracosm {self._summary.kind}: {self.sentence}>"

    def _repr_html_(self) -> str:
        """Return the sentence, the key figures, and the main figure, for a notebook."""
        return (
            f"<div><p><b>{escape(self.sentence)}</b></p>{self._key_figures()}{self._image()}</div>"
        )

    @cached_property
    def _runs(self) -> list[Run]:
        from paracosm.report.runs import described

        return described(self._folders) if self._folders else []

    @cached_property
    def _charts(self) -> list[Any]:
        from paracosm.report.runs import all_charts

        return list(all_charts(self._runs)) if self._runs else []

    def _key_figures(self) -> str:
        from paracosm.report.writing import key_numbers

        numbers = (
            key_numbers(self._runs)
            if self._runs
            else {key: [str(value)] for key, value in self.summary.items() if _is_scalar(value)}
        )
        rows = "".join(
            f"<tr><th>{escape(label)}</th>" + "".join(f"<td>{escape(text)}</td>" for text in texts)
            for label, texts in numbers.items()
        )
        names = [run.name for run in self._runs] if len(self._runs) > 1 else []
        titles = "".join(f"<th>{escape(name)}</th>" for name in names)
        return f"<table>{f'<tr><th></th>{titles}</tr>' if names else ''}{rows}</table>"

    def _image(self) -> str:
        if not self._charts:
            return ""
        from paracosm.report.images import picture

        chart = self._charts[0]
        return _embedded(picture(chart, [run.name for run in self._runs]), chart.title)

    def _missing(self, name: str) -> InputError:
        return InputError(f"{self._noun} has no {name}: it has {', '.join(self._there())}")

    @property
    def _noun(self) -> str:
        return f"a result of kind {self._summary.kind} ({self._summary.status})"

    def _there(self) -> list[str]:
        there = ["summary"]
        for folder in self._folders:
            there += ["metrics"] if folder.metrics().num_rows else []
            there += ["timeline"] if folder.timeline() is not None else []
            there += ["figures", "report", "save"]
        return there


class Sweep(Result[S]):
    """The runs of a study with a grid: `points`, and a `table` of varied arguments and results."""

    def __init__(self, path: Path, keep: object = None) -> None:
        from paracosm.studies import RunFolder, finished_runs_in, read_sweep

        runs, failed = finished_runs_in(path)
        folders = [RunFolder.open(run) for run in runs]
        self._points: list[Result[S]] = [opened(folder, keep) for folder in folders]
        self._varied = [row["varied"] for row in read_sweep(path) if row["point"] not in failed]
        self._tuning = opened(RunFolder.open(path), keep) if _is_tuning(path) else None
        super().__init__(self._points[0].summary, path, folders, keep)
        self._failed = failed

    @property
    def summary(self) -> S:
        """Refused: each point has its own."""
        raise self._missing("summary of its own")

    @property
    def status(self) -> str:
        """The status of all points, "mixed" where they differ."""
        statuses = {point.status for point in self._points}
        return statuses.pop() if len(statuses) == 1 else "mixed"

    @property
    def _noun(self) -> str:
        return "a sweep"

    @property
    def points(self) -> list[Result[S]]:
        """The results of the points that are finished, in the order of the study."""
        return self._points

    @property
    def failed(self) -> dict[str, str]:
        """Why points could not run, by their names; they have no result."""
        return self._failed

    @property
    def table(self) -> pa.Table:
        """A row for each point: its varied arguments, its status, and the numbers of its
        summary.
        """
        import pyarrow as pa

        rows = []
        for varied, point in zip(self._varied, self._points, strict=True):
            row = {key: value if _is_scalar(value) else str(value) for key, value in varied.items()}
            # What was varied stays as it was given: a summary tells a learning rate in words.
            row = {key: value for key, value in point.summary.items() if _is_scalar(value)} | row
            rows.append(row)
        # Those that are varied come first; grids may vary others, too.
        varied_first = [*self._varied, *rows]
        keys = dict.fromkeys(key for row in varied_first for key in row)
        return pa.table({key: _of_one_type([row.get(key) for row in rows]) for key in keys})

    @property
    def sentence(self) -> str:
        """The best run, for kinds with a measure of quality, and the number of runs."""
        if self._tuning is not None:
            return self._tuning.sentence
        from paracosm.report.runs import compared

        best = compared(self._runs)
        ran = best or f"{len(self._points):,} runs of kind {self._summary.kind}."
        return f"{ran} {len(self._failed):,} more failed." if self._failed else ran

    def _there(self) -> list[str]:
        return ["points", "failed", "table", "figures", "report", "save"]


class Tuned(Result[TuningSummary]):
    """The result of a tuning whose trials have no run folders; `table` has a row for each."""

    @property
    def table(self) -> pa.Table:
        """A row for each trial: its values, median and quartiles, failures."""
        from pyarrow import csv

        from paracosm.studies.run_folder import TRIALS

        with open_file(self._folders[0].path / TRIALS) as file:
            return csv.read_csv(file)


def open_result(folder: Folder) -> Result[Any]:
    """Return the result in a folder: of a run, a sweep, a tuning or a replay.

    A run that is still going or was killed opens as well: its status is "unfinished", and its
    summary holds what is known so far.

    Raises:
        InputError: the folder has no result, is damaged, or was written by another version of
            Paracosm.
    """
    return result_in(read_path(folder, "open"))


def result_in(path: Path, keep: object = None) -> Result[Any]:
    """Return the result in a folder; the temporary one that it is in lives as long."""
    from paracosm.studies import RunFolder

    if (path / "sweep.json").is_file():
        return Sweep(path, keep)
    return opened(RunFolder.open(path), keep)


def opened(run: RunFolder, keep: object) -> Result[Any]:
    from paracosm.report.runs import described
    from paracosm.studies.run_folder import TRIALS

    summary: Any = described([run])[0].numbers
    kind = Tuned if (run.path / TRIALS).is_file() else Result
    return kind(summary, run.path, [run], keep)


def _is_tuning(path: Path) -> bool:
    """Whether a sweep is the trials of a tuning that has ended; those of version 0.1 say less."""
    return (path / "summary.json").is_file()


class Kept:
    """A temporary folder that is removed with the last result in it."""

    def __init__(self) -> None:
        kept = ExitStack()
        self.path = kept.enter_context(temporary_folder())
        weakref.finalize(self, kept.close)

    def __deepcopy__(self, _memo: Any) -> Kept:
        return self  # the copy's results lie in the same folder


def read_path(value: object, argument: str) -> Path:
    path = os.fspath(checked(value, (str, os.PathLike), argument, "a path"))
    checked(path, str, argument, "a path")
    try:
        check_name(path)
    except InputError as error:
        raise InputError(f"{argument}: {error}") from None
    return Path(path)


def checked(value: Any, kind: type | tuple[type, ...], argument: str, wanted: str) -> Any:
    if not isinstance(value, kind):
        raise InputError(f"{argument}: give {wanted}, not a value of type {type(value).__name__}")
    return value


def _embedded(png: bytes, title: str) -> str:
    data = base64.b64encode(png).decode()
    return f'<img alt="{escape(title)}" style="max-width:100%" src="data:image/png;base64,{data}">'


def _of_one_type(values: list[Any]) -> list[Any]:
    """Return the values of a column, as texts unless all are numbers, truth values or texts."""
    kinds = {_kind(value) for value in values if value is not None}
    if len(kinds) < 2 and "other" not in kinds:
        return values
    return [None if value is None else str(value) for value in values]


def _kind(value: object) -> str:
    if isinstance(value, bool | str):
        return type(value).__name__
    fits = isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63)
    return "number" if fits else "other"


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)
