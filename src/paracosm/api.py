"""Paracosm in Python: a function for each verb, and the typed results that they return.

Arguments have the names of the command's flags, with underscores for hyphens, and accept what is
typed there ("10Gbit/s", "1ms") or the parsed value; `arguments("train")` lists them.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from html import escape
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from paracosm.errors import InputError, require, unknown
from paracosm.files import check_name, open_file, temporary_folder
from paracosm.results import (
    EmulationSummary,
    PlanSummary,
    ProfileSummary,
    RelaxationSummary,
    ReplaySummary,
    StrategyPlanSummary,
    Summary,
    TrainingSummary,
    TuningSummary,
)
from paracosm.units import parse_whole

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa
    from matplotlib.figure import Figure as MatplotlibFigure

    from paracosm.results.kind import Kind
    from paracosm.results.view import Run
    from paracosm.studies import RunFolder, Study
    from paracosm.timeline import Timeline

S = TypeVar("S", bound=Summary, covariant=True)
Folder = str | os.PathLike[str]
Config = Any
"""A mapping of arguments, or the verb's own pydantic model."""


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
        from paracosm.report.answers import answer

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
        for what in ("table", "metrics"):
            if what in self._there():
                found: pandas.DataFrame = getattr(self, what).to_pandas()
                return found
        return frame([{key: each for key, each in self.summary.items() if _is_scalar(each)}])

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
        path = _path(path, "report")
        write_report(self._folders, path, self._failed)
        return path

    def save(self, folder: Folder, force: bool = False) -> Path:
        """Write the run folder, with its report; `open` gives the result back.

        Args:
            folder: created if missing; a folder that is not empty is refused, unless `force`
                replaces its run.
        """
        from paracosm.studies.run_folder import claim_folder, copy_run

        _checked(force, bool, "force", "True or False")

        if self._path is None:
            raise self._missing("folder")
        folder = _path(folder, "save")
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
            else {key: [str(each)] for key, each in self.summary.items() if _is_scalar(each)}
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

    def _missing(self, what: str) -> InputError:
        return InputError(f"{self._noun} has no {what}: it has {', '.join(self._there())}")

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

    def __init__(self, path: Path, keep: object = None, sentence: str | None = None) -> None:
        from paracosm.studies import RunFolder, read_sweep

        self._sentence = sentence

        rows = read_sweep(path)
        failed = {row["point"]: str(row["error"]) for row in rows if "code" in row}
        rows = [row for row in rows if "code" not in row]
        if not rows:
            why = "".join(f": {name}: {error}" for name, error in [*failed.items()][:1])
            raise InputError(f"{path}: no run of this sweep is finished yet{why}")
        folders = [RunFolder.open(path / row["point"]) for row in rows]
        self._points: list[Result[S]] = [_opened(folder, keep) for folder in folders]
        self._varied = [row["varied"] for row in rows]
        super().__init__(self._points[0].summary, path, folders, keep)
        self._failed = failed

    @property
    def summary(self) -> S:
        """Refused: each point has its own."""
        raise self._missing("summary of its own")

    @property
    def status(self) -> str:
        """The status of all points, "mixed" where they differ."""
        found = {point.status for point in self._points}
        return found.pop() if len(found) == 1 else "mixed"

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
            row = {key: each if _is_scalar(each) else str(each) for key, each in varied.items()}
            row |= {key: each for key, each in point.summary.items() if _is_scalar(each)}
            rows.append(row)
        keys = dict.fromkeys(key for row in rows for key in row)  # of grids that vary others too
        return pa.table({key: _of_one_type([row.get(key) for row in rows]) for key in keys})

    @property
    def sentence(self) -> str:
        """The best run, for kinds with a measure of quality, and the number of runs."""
        if self._sentence is not None:
            return self._sentence
        from paracosm.report.runs import view_of

        found = view_of(self._runs[0].numbers).compare(self._runs)
        ran = found or f"{len(self._points):,} runs of kind {self._summary.kind}."
        return f"{ran} {len(self._failed):,} more failed." if self._failed else ran

    def _there(self) -> list[str]:
        return ["points", "failed", "table", "figures", "report", "save"]


def train(config: Config = None, **options: Any) -> Result[TrainingSummary]:
    """Train on a cluster you don't have: gradients are real, time and network are simulated.

        paracosm.train(algorithm="asgd", workers=8, latency="1ms", bandwidth="10Gbit/s")

    Args:
        config: a mapping of arguments or a `TrainConfig`, in place of arguments or besides.
        options: arguments of the command, and `seed`, `out` (a run folder to write), `force`
            (replace the run in it), `jobs` (runs of a sweep at a time), `backend` ("dask")
            and `scheduler`. A list of numbers of workers makes a `Sweep`.

    Raises:
        InputError: an argument is unknown or invalid.
    """
    return cast("Result[TrainingSummary]", _run("train", config, options))


def relax(config: Config = None, **options: Any) -> Result[RelaxationSummary]:
    """Run an asynchronous iterative method on simulated processors.

        paracosm.relax(problem="laplace2d:20", method="jacobi", processors=10)

    Arguments as of `train`.
    """
    return cast("Result[RelaxationSummary]", _run("relax", config, options))


def predict(config: Config = None, **options: Any) -> Result[Summary]:
    """Predict iteration time, throughput and memory, on one device or on a whole cluster.

        paracosm.predict(model="resnet34", shape="3x32x32", workers=[1, 2, 4], bandwidth="1Gbit/s")

    Timings are looked up as the command does; missing ops are timed in a separate process. The
    summary is an `IterationSummary`, a `JobSummary` (on a cluster), or a `ThroughputSummary` (from
    a job profile). Arguments as of `train`.
    """
    return _run("predict", config, options)


def emulate(
    script: Folder | None = None, config: Config = None, **options: Any
) -> Result[EmulationSummary]:
    """Run an unmodified training script as one rank of a world whose other ranks are emulated.

        paracosm.emulate("train.py", world_size=8, latency="20us", bandwidth="10Gbit/s")

    Arguments as of `train`.
    """
    given = options if script is None else {"script": str(_path(script, "script")), **options}
    return cast("Result[EmulationSummary]", _run("emulate", config, given))


def plan(
    profile: Folder | None = None, config: Config = None, **options: Any
) -> Result[PlanSummary | StrategyPlanSummary]:
    """Predict time and cost to a target, by number of workers, algorithm and learning rate.

        paracosm.plan("job.profile", model="mlp", workers=[1, 2, 4], algorithm="asgd, ssgd",
                      lr=[0.1, 0.2], bandwidth="10Gbit/s", target="test_loss <= 0.1")

    Or time and cost to a number of tokens, by workers and strategy, on hardware of the catalogue:

        paracosm.plan(model="llama-8b", hardware="h100-sxm", tokens=1e12, batch_tokens=4e6,
                      max_workers=1024, price="2.2/h")

    Arguments as of `train`; `jobs` is the number of parallel training runs.
    """
    given = options if profile is None else {"profile": str(_path(profile, "profile")), **options}
    return cast("Result[PlanSummary | StrategyPlanSummary]", _run("plan", config, given))


def study(source: Folder | Mapping[str, Any], **options: Any) -> Result[Any]:
    """Run a study: a file, or a mapping of its content; a `Sweep` if it has a grid.

    Args:
        source: the study.
        options: `seed`, `out`, `force`, `jobs`, `backend`, `scheduler`; and arguments that override
            those of the study.
    """
    where = "study" if isinstance(source, Mapping) else str(_path(source, "study"))
    return _run_study(_study(source), where, options)


def _study(source: Folder | Mapping[str, Any]) -> Study:
    from paracosm.studies import Study, load_study
    from paracosm.validation import validated

    if isinstance(source, Mapping):
        return validated(Study, source, "study")
    return load_study(_path(source, "study"))


def tune(
    source: Folder | Mapping[str, Any],
    space: str,
    *,
    minimize: str | None = None,
    maximize: str | None = None,
    trials: int = 30,
    seeds: int = 3,
    storage: str | None = None,
    **options: Any,
) -> Sweep[Any]:
    """Find the arguments of a study with which a number of its summary is best.

        paracosm.tune("train.yaml", "lr=0.01..1 log, algorithm=asgd|ssgd", out="runs/tuned")

    The points of the sweep are the runs of all trials, and then those of the best with fresh seeds.

    Args:
        source: a study of one run: a file, or the mapping that it would hold.
        space: what is varied, as in `--tune`.
        minimize, maximize: the number, such as "final_loss"; by default what such runs are about.
        trials: points of the search; `seeds` runs of each.
        storage: an Optuna storage that gets the trials, such as "sqlite:///tuning.db".
        options: `seed`, `out`, `force`, `jobs`, `backend`, `scheduler`.

    Raises:
        InputError: an argument that there is not, or that cannot be.
    """
    from paracosm.studies import tune as tuning

    if others := sorted(options.keys() - set(_OWN)):
        raise InputError(f"tune: {unknown('argument', others[0], _OWN)}")
    for name, given in (("trials", trials), ("seeds", seeds)):
        _checked(given, Integral, name, "a number")
    _checked(space, str, "space", "a text")
    for name, text in (("minimize", minimize), ("maximize", maximize), ("storage", storage)):
        _checked(text, (str, type(None)), name, "a text")
    own = _own(options)
    asked = _study(source).with_arguments(own["seed"], {})
    folder, keep = _folder(own["out"], own["force"])
    objective = tuning.objective_of(asked, space, minimize, maximize)
    found = tuning.tune(
        *(asked, space, objective, folder), trials=trials, seeds=seeds,
        backend=own["where"], force=own["force"], storage=storage,
    )  # fmt: skip
    return cast("Sweep[Any]", _reported(Sweep(folder, keep, found.sentence), own["out"]))


def replay(
    traces: Folder | Sequence[Folder],
    *,
    what_if: str | Sequence[str] = (),
    steps: str | Sequence[int] | None = None,
    alone: bool = False,
    communication: str | Sequence[str] = (),
    out: Folder | None = None,
    force: bool = False,
) -> Result[ReplaySummary]:
    """Replay traces of PyTorch's profiler, unchanged and with what-if changes.

    Args:
        traces: Kineto traces, one for each rank: .json or .json.gz.
        what_if: changes, such as "links: bandwidth 2x".
        steps: of the profiler: "5..9", or consecutive numbers; all by default.
        alone: replay one rank of several; its collectives keep their recorded durations.
        communication: kernels that communicate, beside those of known libraries: "my_ring*", or
            with their kind "my_ring*=all_reduce", or "ring_norm*=none".
        out: run folder to write.
        force: replace the run in the folder.

    Raises:
        InputError: a trace cannot be used, or a change cannot be read or applied.
    """
    from paracosm.replay import replay_traces, summarise_replays
    from paracosm.studies import REPLAY, RunFolder

    for name, given in (("alone", alone), ("force", force)):
        _checked(given, bool, name, "True or False")
    paths = [_path(each, "traces") for each in _several(traces)]
    changes = [_checked(each, str, "what_if", "a text") for each in _several(what_if)]
    numbers = _steps(steps) if isinstance(steps, str) else steps
    if numbers is not None:
        numbers = [int(_checked(n, Integral, "steps", "numbers")) for n in _several(numbers)]
        if not numbers or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise InputError("steps: give consecutive numbers, such as range(5, 10)")
    told = steps if isinstance(steps, str) else numbers
    named = [_checked(each, str, "communication", "a text") for each in _several(communication)]
    asked = {"traces": paths, "what_if": changes, "steps": told, "alone": alone}
    asked |= {"communication": named} if named else {}
    folder, keep = _folder(out, force)
    with RunFolder.create(folder, {REPLAY: asked}, force) as run:
        replays = replay_traces(paths, changes, numbers, alone, named)
        summary = summarise_replays(replays)
        run.finish(summary, replays.timeline)
    return _reported(Result(summary, folder, [RunFolder.open(folder)], keep), out)


def profile(model: str, **options: Any) -> Result[ProfileSummary]:
    """Time every op of a model's training step and add that to the profile database.

        paracosm.profile("resnet18", shape="3x32x32", budget="20s", db="profiles.db")

    The ops are timed in a separate process with the command's allocator, so that the timings of
    both have the same environment.

    Args:
        model: a built-in one, or "package.module:factory".
        options: as the flags of `paracosm profile ops`.

    Raises:
        InputError: an argument is unknown or invalid.
    """
    from paracosm.cli.verbs import parameters_of
    from paracosm.profiling.allocator import pinned_environ

    known = parameters_of("profile ops")
    flags = ["--model", _checked(model, str, "model", "a text")]
    for name, value in options.items():
        if name not in known or name in ("json", "quiet"):
            raise InputError(f"profile: {unknown('argument', name, known)}")
        switch = known[name]
        if isinstance(value, bool):
            flags += switch[:1] if value else switch[1:]
        elif value is not None:
            several = isinstance(value, list | tuple)
            flags += [switch[0], ",".join(map(str, value)) if several else str(value)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    program = "import sys; from paracosm.cli import main; sys.exit(main())"
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, "profile", "ops", *flags, "--json"],
            capture_output=True,
            env=pinned_environ(environ),
            text=True,
            check=False,
        )
    except ValueError as error:  # half a surrogate pair, or a character of number 0
        raise InputError(f"profile: {error}") from None
    if not done.stdout:
        raise InputError(done.stderr.strip().rpartition("\n")[2].removeprefix("paracosm: "))
    return Result(ProfileSummary.from_dict(json.loads(done.stdout)), None, [])


def open_result(folder: Folder) -> Result[Any]:
    """Return the result in a folder: of a run, a sweep, a tuning or a replay.

    A run that is still going or was killed opens as well: its status is "unfinished", and its
    summary holds what is known so far.

    Raises:
        InputError: the folder has no result, is damaged, or was written by another version of
            Paracosm.
    """
    from paracosm.studies import RunFolder

    path = _path(folder, "open")
    if (path / "sweep.json").is_file():
        return Sweep(path)
    return _opened(RunFolder.open(path), None)


class Tuned(Result[TuningSummary]):
    """What `paracosm relax tune` found; `table` has a row for each trial."""

    @property
    def table(self) -> pa.Table:
        """A row for each trial: its values, median and quartiles, failures."""
        from pyarrow import csv

        from paracosm.studies.run_folder import TRIALS

        with open_file(self._folders[0].path / TRIALS) as file:
            return csv.read_csv(file)


def arguments(verb: str) -> dict[str, str]:
    """Return the description of each argument of train, relax, predict, emulate or plan."""
    return {name: str(field.description or "") for name, field in _kind_of(verb).fields.items()}


_OWN = ("seed", "out", "force", "jobs", "backend", "scheduler")


def _kind_of(verb: str) -> Kind:
    from paracosm.studies import KINDS

    if str(verb) not in KINDS:
        raise unknown("verb", str(verb), KINDS)
    return KINDS[verb]


def _run(kind: str, config: Config, options: dict[str, Any]) -> Result[Any]:
    from pydantic import BaseModel

    from paracosm.studies import Point, Study
    from paracosm.validation import validated

    models = _kind_of(kind).models
    if config is not None and not isinstance(config, (Mapping, *models)):
        raise InputError(f"{kind}: config: give a mapping or a {models[0].__name__}")
    if isinstance(config, BaseModel):
        others = options.keys() - set(_OWN)
        if others:
            raise InputError(
                f"{kind}: {sorted(others)[0]}: the config sets it already: change the config, or "
                "give a mapping"
            )
        own = _own(options)
        seed = Study.model_validate({kind: {}}).with_arguments(own["seed"], {}).seed
        return _run_point(Point(kind, "", seed, config, {}), own)
    given = {**cast("Mapping[str, Any]", config or {}), **options}
    names = [*_kind_of(kind).fields, *_kind_of(kind).synonyms, *_OWN, "config"]
    for name in given:
        if name not in names:
            raise InputError(f"{kind}: {unknown('argument', str(name), names)}")
    own = {name: given.pop(name) for name in _OWN if name in given}
    return _run_study(validated(Study, {kind: given}, kind), kind, own)


def _own(options: Mapping[str, Any]) -> dict[str, Any]:
    from paracosm.backends import HERE, Backend

    own = {"seed": None, "out": None, "force": False, "jobs": 1, **options}
    _checked(own["force"], bool, "force", "True or False")
    name = HERE.name if own.get("backend") is None else own["backend"]
    return {**own, "where": Backend(name, own["jobs"], own.get("scheduler"))}


def _run_study(asked: Any, where: str, options: Mapping[str, Any]) -> Result[Any]:
    own = _own({name: options[name] for name in _OWN if name in options})
    given = {name: value for name, value in options.items() if name not in _OWN}
    names = [*_kind_of(asked.kind).fields, *_OWN]
    for name in given:
        if name not in names:
            raise InputError(f"{where}: {unknown('argument', name, names)}")
    asked = asked.with_arguments(own["seed"], given)
    points = asked.points(where)
    if not asked.is_sweep:
        return _run_point(points[0], own)
    from paracosm.studies import run_sweep

    folder, keep = _folder(own["out"], own["force"])
    run_sweep(asked, points, folder, own["where"], own["force"])
    return _reported(Sweep(folder, keep), own["out"])


def _run_point(point: Any, own: Mapping[str, Any]) -> Result[Any]:
    from paracosm.studies import Hooks, RunFolder, run_point

    folder, keep = _folder(own["out"], own["force"])
    summary = run_point(point, folder, own["force"], Hooks(backend=own["where"])).summary
    return _reported(Result(summary, folder, [RunFolder.open(folder)], keep), own["out"])


def _folder(out: Folder | None, force: bool) -> tuple[Path, object]:
    """Return the folder to write and, for a temporary one, the object that keeps it alive."""
    if out is not None:
        return _path(out, "out"), None
    if force:
        raise InputError("force replaces the run in a folder: give out as well")
    keep = _Kept()
    return keep.path / "run", keep


def _path(given: object, argument: str) -> Path:
    path = os.fspath(_checked(given, (str, os.PathLike), argument, "a path"))
    _checked(path, str, argument, "a path")
    try:
        check_name(path)
    except InputError as error:
        raise InputError(f"{argument}: {error}") from None
    return Path(path)


def _several(given: Any) -> list[Any]:
    return [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)


def _checked(given: Any, kind: type | tuple[type, ...], argument: str, wanted: str) -> Any:
    if not isinstance(given, kind):
        raise InputError(f"{argument}: give {wanted}, not a value of type {type(given).__name__}")
    return given


class _Kept:
    """A temporary folder that is removed with the last result in it."""

    def __init__(self) -> None:
        kept = ExitStack()
        self.path = kept.enter_context(temporary_folder())
        weakref.finalize(self, kept.close)

    def __deepcopy__(self, _memo: Any) -> _Kept:
        return self  # the copy's results lie in the same folder


def _reported(result: Result[Any], out: Folder | None) -> Result[Any]:
    if out is not None:
        result.report(Path(out) / "report.html")
    return result


def _opened(run: RunFolder, keep: object) -> Result[Any]:
    from paracosm.report.runs import described
    from paracosm.studies.run_folder import TRIALS

    summary: Any = described([run])[0].numbers
    kind = Tuned if (run.path / TRIALS).is_file() else Result
    return kind(summary, run.path, [run], keep)


def _steps(text: str) -> list[int]:
    """Return the steps that "5", "5..9" or "5,7" names."""
    first, dots, last = text.partition("..")
    ends = [parse_whole(number.strip()) for number in ((first, last) if dots else text.split(","))]
    numbers = [number for number in ends if number is not None]
    if dots and len(numbers) == 2:
        numbers = list(range(numbers[0], min(numbers[1], numbers[0] + MOST_STEPS) + 1))
    if not numbers or None in ends:
        raise InputError(f'--steps: write 5 or 5..9, not "{text}"')
    if len(numbers) > MOST_STEPS:
        raise InputError(f"--steps: {text} has more than {MOST_STEPS:,} steps")
    if numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise InputError(f"--steps: write consecutive steps, such as 5..9, not {text}")
    return numbers


MOST_STEPS = 100_000  # more are a typing error


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
