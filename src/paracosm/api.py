"""Paracosm in Python: a function for each verb; they return typed results (`result.py`).

Arguments have the names of the command's flags, with underscores for hyphens, and accept what is
typed there ("10Gbit/s", "1ms") or the parsed value; `arguments("train")` lists them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from paracosm.errors import InputError, unknown
from paracosm.result import Folder, Kept, Result, Sweep, checked, read_path, result_in
from paracosm.results import (
    EmulationSummary,
    PlanSummary,
    ProfileSummary,
    RelaxationSummary,
    ReplaySummary,
    ScriptPlanSummary,
    ScriptSummary,
    StrategyPlanSummary,
    Summary,
    TrainingSummary,
    TuningSummary,
)

if TYPE_CHECKING:
    from paracosm.results.kind import Kind
    from paracosm.studies import Study

Config = Any
"""A mapping of arguments, or the verb's own pydantic model."""


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


def relax(config: Any = None, rhs: Any = None, **options: Any) -> Result[RelaxationSummary]:
    """Run an asynchronous iterative method on simulated processors.

        paracosm.relax(problem="laplace2d:20", method="jacobi", processors=10)
        paracosm.relax(A, b, processors=10)

    Args:
        config: a matrix, SciPy's or dense, of shape (n, n), as `matrix=` takes it too; or as of
            `train`.
        rhs: the right-hand side, shape (n,), or what the command takes.
        options: as of `train`; `start` may be a vector, too.
    """
    if config is not None and not isinstance(config, Mapping) and not hasattr(config, "model_dump"):
        if "matrix" in options:
            raise InputError("relax: matrix: two matrices: give one of them")
        config, options = None, {"matrix": config, **options}
    options |= {} if rhs is None else {"rhs": rhs}
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
) -> Result[EmulationSummary | ScriptSummary]:
    """Run an unmodified training script as one rank of a world whose other ranks are emulated.

        paracosm.emulate("train.py", world_size=8, latency="20us", bandwidth="10Gbit/s")

    Or on hardware that is not there:

        paracosm.emulate("train.py", hardware="dgx-h100", world_size=512)

    Arguments as of `train`.
    """
    arguments = (
        options if script is None else {"script": str(read_path(script, "script")), **options}
    )
    result = _run("emulate", config, arguments)
    return cast("Result[EmulationSummary | ScriptSummary]", result)


def plan(
    profile: Folder | None = None, config: Config = None, **options: Any
) -> Result[PlanSummary | StrategyPlanSummary | ScriptPlanSummary]:
    """Predict time and cost to a target, by number of workers, algorithm and learning rate.

        paracosm.plan("job.profile", model="mlp", workers=[1, 2, 4], algorithm="asgd, ssgd",
                      lr=[0.1, 0.2], bandwidth="10Gbit/s", target="test_loss <= 0.1")

    Or time and cost to a number of tokens, by workers and strategy, on hardware of the catalogue:

        paracosm.plan(model="llama-8b", hardware="h100-sxm", tokens=1e12, batch_tokens=4e6,
                      max_workers=1024, price="2.2/h")

    Or those of an unmodified script's tokens, by hardware and number of ranks:

        paracosm.plan(script="train.py", hardware="h100-sxm,l4", workers=[8, 64])

    Arguments as of `train`; `jobs` is the number of parallel training runs.
    """
    arguments = (
        options if profile is None else {"profile": str(read_path(profile, "profile")), **options}
    )
    return cast(
        "Result[PlanSummary | StrategyPlanSummary | ScriptPlanSummary]",
        _run("plan", config, arguments),
    )


def study(source: Folder | Mapping[str, Any], **options: Any) -> Result[Any]:
    """Run a study: a file, or a mapping of its content; a `Sweep` if it has a grid.

    Args:
        source: the study.
        options: `seed`, `out`, `force`, `jobs`, `backend`, `scheduler`; and arguments that override
            those of the study.
    """
    where = "study" if isinstance(source, Mapping) else str(read_path(source, "study"))
    return _run_study(_study(source), where, options)


def _study(source: Folder | Mapping[str, Any]) -> Study:
    from paracosm.studies import Study, load_study
    from paracosm.validation import validated

    if isinstance(source, Mapping):
        return validated(Study, source, "study")
    return load_study(read_path(source, "study"))


def tune(source: Folder | Mapping[str, Any], space: str, **options: Any) -> Result[TuningSummary]:
    """Find the arguments of a study with which a number of its summary is best.

        paracosm.tune("train.yaml", "lr=0.01..1 log, algorithm=asgd|ssgd", out="runs/tuned")

    The result is a `Sweep`: its points are the runs of all trials, and then those of the best with
    fresh seeds. With `minimize="time_over_fault_free"`, relaxations under faults are compared with
    the same ones without, in memory; then `table` has a row for each trial.

    Args:
        source: a study of one run: a file, or the mapping that it would hold.
        space: what is varied, as in `--tune`.
        options: arguments of the command, such as `minimize`, `trials` and `seeds`; and `seed`,
            `out`, `force`, `jobs`, `backend`, `scheduler`.

    Raises:
        InputError: an argument is unknown or invalid.
    """
    study = _study(source)
    seed = study.seed if options.get("seed") is None else options["seed"]
    config = {"study": {**study.as_written(), "seed": 0}, "tune": space}
    return _run("tune", config, {**options, "seed": seed})


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
    config = {
        "traces": [read_path(trace, "traces") for trace in _several(traces)],
        "what_if": what_if,
        "steps": steps,
        "alone": alone,
        "communication": communication,
    }
    return cast("Result[ReplaySummary]", _run("replay", config, {"out": out, "force": force}))


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
    from paracosm.profiling.allocator import pinned_environ

    flags = ["--model", checked(model, str, "model", "a text")]
    for name, value in options.items():
        if name in ("json", "quiet"):
            raise InputError(f"profile: {name}: an option of the command: leave it out")
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list | tuple):
            flags += [f"--{flag}", ",".join(map(str, value))]
        elif value is not None:
            flags += [f"--{flag}", str(value)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "paracosm", "profile", "ops", *flags, "--json"],
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


def function_of(verb: str) -> Callable[..., Result[Any]] | None:
    """Return the function of a kind of run that has none here; None where there is no such kind."""
    from paracosm.studies.kinds import KINDS

    if verb not in KINDS:
        return None

    def run(config: Config = None, **options: Any) -> Result[Any]:
        return _run(verb, config, options)

    run.__doc__ = KINDS[verb].help
    return run


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
        flags = _own(options)
        seed = Study.model_validate({kind: {}}).with_arguments(flags["seed"], {}).seed
        return _run_point(Point(kind, "", seed, config, {}), flags)
    arguments = {**cast("Mapping[str, Any]", config or {}), **options}
    names = [*_kind_of(kind).fields, *_kind_of(kind).synonyms, *_OWN, "config"]
    for name in arguments:
        if name not in names:
            raise InputError(f"{kind}: {unknown('argument', str(name), names)}")
    flags = {name: arguments.pop(name) for name in _OWN if name in arguments}
    return _run_study(validated(Study, {kind: arguments}, kind), kind, flags)


def _own(options: Mapping[str, Any]) -> dict[str, Any]:
    from paracosm.backends import HERE, Backend

    flags = {"seed": None, "out": None, "force": False, "jobs": 1, **options}
    checked(flags["force"], bool, "force", "True or False")
    name = HERE.name if flags.get("backend") is None else flags["backend"]
    return {**flags, "where": Backend(name, flags["jobs"], flags.get("scheduler"))}


def _run_study(study: Any, where: str, options: Mapping[str, Any]) -> Result[Any]:
    flags = _own({name: options[name] for name in _OWN if name in options})
    arguments = {name: value for name, value in options.items() if name not in _OWN}
    names = [*_kind_of(study.kind).fields, *_OWN]
    for name in arguments:
        if name not in names:
            raise InputError(f"{where}: {unknown('argument', name, names)}")
    study = study.with_arguments(flags["seed"], arguments)
    points = study.points(where)
    if not study.is_sweep:
        return _run_point(points[0], flags)
    from paracosm.studies import run_sweep

    folder, keep = _folder(flags["out"], flags["force"])
    run_sweep(study, points, folder, flags["where"], flags["force"])
    return _reported(Sweep(folder, keep), flags["out"])


def _run_point(point: Any, flags: Mapping[str, Any]) -> Result[Any]:
    from paracosm.studies import Hooks, RunFolder, run_point
    from paracosm.studies.run_folder import TRIALS

    folder, keep = _folder(flags["out"], flags["force"])
    outcome = run_point(point, folder, flags["force"], Hooks(backend=flags["where"]))
    if TRIALS in outcome.files:
        return _reported(result_in(folder, keep), flags["out"])
    result = Result(outcome.summary, folder, [RunFolder.open(folder)], keep)
    return _reported(result, flags["out"])


def _folder(out: Folder | None, force: bool) -> tuple[Path, object]:
    """Return the folder to write and, for a temporary one, the object that keeps it alive."""
    if out is not None:
        return read_path(out, "out"), None
    if force:
        raise InputError("force replaces the run in a folder: give out as well")
    keep = Kept()
    return keep.path / "run", keep


def _several(values: Any) -> list[Any]:
    return [values] if isinstance(values, str) or not isinstance(values, Iterable) else list(values)


def _reported(result: Result[Any], out: Folder | None) -> Result[Any]:
    if out is not None:
        result.report(Path(out) / "report.html")
    return result
