"""`paracosm profile ops`: how long every op of a model takes on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from typer import Option

from paracosm.cli.display import aligned, counter, printer, show_result
from paracosm.cli.graph_capture import DATABASE, Device, options_of, with_capture_flags
from paracosm.cli.options import Details, Json, Quiet, duration, listed
from paracosm.cli.verbs import INTERRUPTED
from paracosm.emulation.device.durations import recorded_graph
from paracosm.emulation.device.run import load_recordings
from paracosm.errors import InputError, unknown
from paracosm.graphs.capture import capture
from paracosm.graphs.graph import PHASES, Graph
from paracosm.prediction.config import PredictConfig
from paracosm.profiling.database import ProfileDatabase
from paracosm.profiling.host_ops import measure_host_ops
from paracosm.profiling.profiler import (
    ModelProfile,
    Settings,
    ops_to_profile,
    profile,
    profile_model,
)
from paracosm.profiling.samples import CACHES
from paracosm.units import format_between, format_duration

Database = Annotated[Path, Option(help="profile database to add to, created if missing")]
Threads = Annotated[int, Option(min=1, help="threads per op, on the CPU")]
Precision = Annotated[float, Option(help="relative standard error at which timing of an op stops")]
Budget = Annotated[str, Option(help="total time, such as 2min")]

SHOWN = 5  # op types, refused ops
BUSY = 1.2
SHARP = 0.5


@with_capture_flags
def ops(
    model: Annotated[
        str | None, Option(help="built-in model, or package.module:factory of your own")
    ] = None,
    db: Database = DATABASE,
    *,
    recording: Annotated[
        Path | None,
        Option(help="run folder of emulate --hardware, whose ops to time in place of a model's"),
    ] = None,
    device: Device = "cpu",
    threads: Threads = 1,
    cache: Annotated[
        str,
        Option(help="cold: data in memory, as in training; warm: data in cache, the op repeated"),
    ] = "cold,warm",
    precision: Precision = 0.01,
    budget: Budget = "2min",
    iterations: Annotated[
        bool,
        Option("--iterations/--no-iterations", help="run real iterations between the ops"),
    ] = True,
    seed: Annotated[int, Option(min=0, help="order of ops, values in tensors")] = 0,
    json: Json = False,
    details: Details = False,
    quiet: Quiet = False,
    **captured: Any,
) -> int:
    """Time every op of a model's or a script's training step: forward, backward, optimizer.

    Example: paracosm profile ops --model resnet18 --shape 3x32x32 --budget 20s
    """
    caches, seconds = _caches(cache), duration("--budget", budget)
    settings = Settings(device, threads, caches, precision, seconds, seed=seed)
    if (model is None) == (recording is None):
        raise InputError(
            "give one of the two: --model resnet50, or --recording RUN, a run folder of paracosm "
            "emulate --hardware"
        )
    if recording is not None and (given := _not_default(captured)):
        raise InputError(f"{given}: has no effect on a recording, leave it out")
    options = None if model is None else options_of(model, device=device, **captured)
    if (
        db.exists()
    ):  # refused before the capture; created after it, when there is something to store
        ProfileDatabase.open(db).close()
    if options is not None:
        graph = capture(options)
    else:
        assert recording is not None
        graph = recorded_graph(load_recordings(recording))
    total = len(ops_to_profile(graph))
    with (
        ProfileDatabase.open(db, create=True) as database,
        counter(total, hidden=json or quiet, unit="ops") as shown,
    ):
        if options is not None:
            done = profile_model(options, settings, database, iterations, shown, graph)
        else:
            source = f"script {recording}"
            if device == "cpu":
                database.add_links(measure_host_ops(threads))
            ops = ops_to_profile(graph)
            measured = profile(ops, settings, source, database.add, shown)
            done = ModelProfile(graph, measured, None, ())
    if done.profile.interrupted and not done.profile.timings:
        raise typer.Abort("interrupted before anything was timed")
    summary = _model_summary(done)
    show_result(
        summary, json, quiet, lambda: _show_model(done, summary, db, None if details else SHOWN)
    )
    return INTERRUPTED if done.profile.interrupted else 0


def _not_default(captured: Mapping[str, Any]) -> str:
    """Return the first flag of a capture that is not at its default; "" if all are."""
    defaults = {name: PredictConfig.model_fields[name].default for name in captured}
    changed = (name for name, value in captured.items() if value != defaults[name])
    return next((f"--{name}" for name in changed), "")


def _caches(text: str) -> tuple[str, ...]:
    """Read --cache, "cold,warm"."""
    names = tuple(listed(text))
    for name in names or ("",):
        if name not in CACHES:
            raise unknown("cache", name, CACHES)
    return names


def _model_summary(done: ModelProfile) -> dict[str, Any]:
    measured, graph = done.profile, done.graph
    caches = sorted({t.cache for t in measured.timings}) or ["cold"]
    durations = {}  # of every node's op by cache; NaN where it has none
    for cache in caches:
        known = {t.op: t.duration for t in measured.timings if t.cache == cache}
        durations[cache] = np.array([known.get(op, np.nan) for op in graph.ops])[graph.op]
    first = durations[caches[0]]
    phases = np.bincount(graph.phase, np.nan_to_num(first), minlength=len(PHASES)).tolist()
    if not measured.timings:
        durations = {}
    real = done.iteration
    return {
        "status": "interrupted" if measured.interrupted else "done",
        "environment": asdict(measured.environment),
        "nodes": len(graph),
        "distinct_ops": len({timing.op for timing in measured.timings} | set(measured.refused)),
        "timings": len(measured.timings),
        "refused": {f"{op.name} {op.arguments}": why for op, why in measured.refused.items()},
        "stable": measured.stable,
        "probe": _quantiles(measured.probes),
        "iteration_time": None if real is None else real.time.mean,
        "iteration_spread": None if real is None else _quantiles(done.samples),
        "iterations": len(done.samples),
        "sum_of_ops": {cache: float(np.nansum(seconds)) for cache, seconds in durations.items()},
        "untimed_nodes": {cache: int(np.isnan(t).sum()) for cache, t in durations.items()},
        "by_phase": {name: time for name, time in zip(PHASES, phases, strict=True) if time > 0},
        "by_op": _by_op(graph, first),
    }


def _quantiles(samples: tuple[float, ...]) -> dict[str, float] | None:
    if not samples:
        return None
    names = ("p10", "median", "p90")
    return dict(zip(names, np.percentile(samples, (10, 50, 90)).tolist(), strict=True))


def _by_op(graph: Graph, durations: np.ndarray) -> dict[str, dict[str, float]]:
    """Return time and number of nodes by op type, the most expensive first."""
    types: dict[str, dict[str, float]] = {}
    for code, time in zip(graph.op, np.nan_to_num(durations).tolist(), strict=True):
        entry = types.setdefault(graph.ops[code].name, {"nodes": 0, "time": 0.0})
        entry["nodes"] += 1
        entry["time"] += time
    return dict(sorted(types.items(), key=lambda item: -item[1]["time"]))


def _show_model(done: ModelProfile, summary: Mapping[str, Any], db: Path, most: int | None) -> None:
    say = printer()
    here = done.profile.environment
    say(f"{here.hardware}; {here.framework}; threads {here.threads}; {here.allocator}")
    known, stable = "no timings", summary["stable"]
    if count := summary["timings"]:
        more = " (a larger --budget sharpens them)" if stable < SHARP else ""
        known = f"{count:,} timings, {stable:.0%} with a standard error under 1 %{more}"
    say(f"{summary['nodes']:,} nodes, {summary['distinct_ops']:,} distinct ops, {known}")
    if (probe := summary["probe"]) is not None:
        spread = probe["p90"] / probe["p10"]
        busy = " (a busy machine)" if spread > BUSY else ""
        say(f"speed probe: {format_duration(probe['median'])}, p90/p10 {spread:.2f}{busy}")
    real, quantiles = summary["iteration_time"], summary["iteration_spread"]
    if real is not None:
        time, within = format_between(quantiles["p10"], real, quantiles["p90"], format_duration)
        say(f"measured iteration: {time} ({within}, {summary['iterations']} of them)")
    for cache, time in summary["sum_of_ops"].items():
        missing = summary["untimed_nodes"][cache]
        untimed = f" without {missing:,} nodes that were not timed" if missing else ""
        error = "" if real is None else f", {time / real - 1:+.1%}"
        say(f"sum of {cache} ops: {format_duration(time)}{error}{untimed}")
    phases = ", ".join(f"{name} {format_duration(t)}" for name, t in summary["by_phase"].items())
    say(f"by phase: {phases}")
    whole = sum(entry["time"] for entry in summary["by_op"].values()) or 1.0
    rows = [("op", ">nodes", ">time", ">share")]
    for name, entry in islice(summary["by_op"].items(), most):
        time, share = entry["time"], entry["time"] / whole
        rows.append((name, f"{entry['nodes']:,}", format_duration(time), f"{share:.1%}"))
    say(aligned(rows))
    _show_unfinished(summary, db, most)
    if most is not None and len(summary["by_op"]) > most:
        say("more: --details")


def _show_unfinished(summary: Mapping[str, Any], db: Path, most: int | None) -> None:
    say, refused = printer(), summary["refused"]
    for op, why in islice(refused.items(), most):
        say(f"not timed: {op[:100]}: {why[:200]}", style="red")
    if most is not None and len(refused) > most:
        say(f"and {len(refused) - most} more (--details lists them)", style="red")
    if summary["status"] == "interrupted":
        say("Interrupted: the measurements so far are in the database.")
    say(str(db))
