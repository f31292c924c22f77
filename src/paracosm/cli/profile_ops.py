"""`paracosm profile ops`: how long every op of a model takes on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from paracosm.cli.options import Quiet
from paracosm.cli.progress import progress_bar
from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES
from paracosm.study.plain import to_json
from paracosm.units import format_duration, parse_duration

if TYPE_CHECKING:
    from paracosm.profiling.model import ModelProfile

__all__ = ["ops"]

SHOWN = 10  # op types, refused ops


def ops(
    model: Annotated[
        str, typer.Option(help="built-in model, or package.module:factory of your own")
    ],
    db: Annotated[Path, typer.Option(help="profile database to add to; made if it is not there")],
    batch: Annotated[int, typer.Option(help="examples in a batch")] = 64,
    shape: Annotated[
        str | None, typer.Option(help="of one example, such as 3x32x32 [the model's own]")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(help="classes of a model of images [1000, or 10 of small ones]")
    ] = None,
    dtype: Annotated[str, typer.Option(help="of parameters and activations")] = "float32",
    optimizer: Annotated[str, typer.Option(help="sgd, momentum, adam, adamw or none")] = "sgd",
    foreach: Annotated[
        bool, typer.Option("--foreach/--no-foreach", help="update all parameters in one op")
    ] = False,
    dropout: Annotated[
        bool, typer.Option("--dropout/--no-dropout", help="train with the model's dropout")
    ] = False,
    train: Annotated[
        bool, typer.Option("--train/--no-train", help="a training step, or the forward pass alone")
    ] = True,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="of one op, on the CPU")] = 1,
    cache: Annotated[
        str, typer.Option(help="cold: data in memory, as in training; warm: the op again and again")
    ] = "cold,warm",
    precision: Annotated[
        float, typer.Option(help="relative standard error of the median at which an op is done")
    ] = 0.01,
    budget: Annotated[str, typer.Option(help="time for it all, such as 2min")] = "2min",
    iterations: Annotated[
        bool,
        typer.Option("--iterations/--no-iterations", help="run real iterations between the ops"),
    ] = True,
    seed: Annotated[int, typer.Option(min=0, help="order of ops, values in tensors")] = 0,
    json: Annotated[bool, typer.Option("--json", help="print the summary as JSON")] = False,
    quiet: Quiet = False,
) -> int:
    """Time every op of a model's training step: forward, backward, optimizer.

    Example: paracosm profile ops --model resnet18 --batch 16 --shape 3x32x32 --db profiles.db
    --budget 20s
    """
    from paracosm.graphs.capture import CaptureOptions, capture
    from paracosm.profiling.database import ProfileDatabase
    from paracosm.profiling.model import ops_to_profile, profile_model
    from paracosm.profiling.profile import Settings

    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    settings = Settings(
        device=device,
        threads=threads,
        caches=tuple(name.strip() for name in cache.split(",")),
        precision=precision,
        budget=parse_duration(budget),
        seed=seed,
    )
    options = CaptureOptions(
        model=model,
        batch=batch,
        shape=_shape(shape),
        classes=classes,
        dtype=dtype,
        optimizer=optimizer,
        foreach=foreach,
        dropout=dropout,
        train=train,
        device=device,
    )
    with ProfileDatabase.open(db, create=True) as database:
        graph = capture(options)
        total = len(ops_to_profile(graph))
        with progress_bar(total, hidden=json or quiet, unit="ops") as shown:
            done = profile_model(
                options,
                settings,
                database,
                iterations,
                progress=lambda finished, _total: shown(finished, None),
                graph=graph,
            )
    summary = _summary(done)
    if json:
        typer.echo(to_json(summary), nl=False)
    elif not quiet:
        _show(done, summary, db)
    return 1 if done.profile.interrupted else 0


def _shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(size) for size in text.lower().split("x"))
    except ValueError:
        raise InputError(f'--shape: write sizes such as 3x32x32, not "{text}"') from None


def _summary(done: ModelProfile) -> dict[str, Any]:
    """Return what was measured, and what the ops add up to."""
    measured, graph = done.profile, done.graph
    sums = {cache: _sum(done, cache) for cache in sorted({t.cache for t in measured.timings})}
    real = done.iteration
    return {
        "status": "interrupted" if measured.interrupted else "done",
        "environment": vars_of(measured.environment),
        "nodes": len(graph),
        "distinct_ops": len({timing.op for timing in measured.timings} | set(measured.refused)),
        "timings": len(measured.timings),
        "refused": {f"{op.name} {op.arguments}": why for op, why in measured.refused.items()},
        "stable": measured.stable,
        "probe": _quantiles(measured.probes),
        "iteration_time": None if real is None else real.time.mean,
        "iteration_spread": None if real is None else _quantiles(done.samples),
        "iterations": len(done.samples),
        "sum_of_ops": {cache: time for cache, (time, _) in sums.items()},
        "untimed_nodes": {cache: missing for cache, (_, missing) in sums.items()},
        "by_phase": _by_phase(done),
        "by_op": _by_op(done),
    }


def vars_of(environment: Any) -> dict[str, Any]:
    """Return the fields of a dataclass with slots."""
    return {name: getattr(environment, name) for name in environment.__slots__}


def _quantiles(samples: tuple[float, ...]) -> dict[str, float]:
    names = ("p10", "median", "p90")
    return dict(zip(names, np.percentile(samples, (10, 50, 90)).tolist(), strict=True))


def _durations(done: ModelProfile, cache: str) -> np.ndarray:
    """Return the duration of every node's op; NaN where it has none."""
    known = {t.op: t.duration for t in done.profile.timings if t.cache == cache}
    return np.array([known.get(op, np.nan) for op in done.graph.ops])[done.graph.op]


def _sum(done: ModelProfile, cache: str) -> tuple[float, int]:
    durations = _durations(done, cache)
    return float(np.nansum(durations)), int(np.isnan(durations).sum())


def _first_cache(done: ModelProfile) -> str:
    return min((t.cache for t in done.profile.timings), default="cold")


def _by_phase(done: ModelProfile) -> dict[str, float]:
    durations = np.nan_to_num(_durations(done, _first_cache(done)))
    sums = np.bincount(done.graph.phase, durations, minlength=len(PHASES))
    return {name: float(time) for name, time in zip(PHASES, sums, strict=True) if time > 0}


def _by_op(done: ModelProfile) -> dict[str, dict[str, float]]:
    """Return time and number of nodes by op type, the most expensive first."""
    found: dict[str, dict[str, float]] = {}
    for code, time in zip(done.graph.op, _durations(done, _first_cache(done)), strict=True):
        entry = found.setdefault(done.graph.ops[code].name, {"nodes": 0, "time": 0.0})
        entry["nodes"] += 1
        entry["time"] += float(np.nan_to_num(time))
    return dict(sorted(found.items(), key=lambda item: -item[1]["time"]))


def _show(done: ModelProfile, summary: Mapping[str, Any], db: Path) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    here, measured = done.profile.environment, done.profile
    console.print(f"{here.hardware}; {here.framework}; threads {here.threads}; {here.allocator}")
    console.print(
        f"{summary['nodes']:,} nodes, {summary['distinct_ops']:,} distinct ops, "
        f"{summary['timings']:,} timings, {summary['stable']:.0%} with a standard error under 1 %"
    )
    probe = summary["probe"]
    spread = probe["p90"] / probe["p10"]
    console.print(
        f"speed probe: {format_duration(probe['median'])}, "
        f"p90/p10 {spread:.2f}" + (" (a busy machine)" if spread > BUSY else "")
    )
    _show_sums(console, summary)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for header in ("op", "nodes", "time", "share"):
        table.add_column(header, justify="left" if header == "op" else "right")
    whole = sum(entry["time"] for entry in summary["by_op"].values()) or 1.0
    for name, entry in list(summary["by_op"].items())[:SHOWN]:
        time = entry["time"]
        table.add_row(name, f"{entry['nodes']:,}", format_duration(time), f"{time / whole:.1%}")
    console.print(table)
    for op, why in list(summary["refused"].items())[:SHOWN]:
        console.print(f"not timed: {op[:100]}: {why[:200]}", style="red")
    if len(measured.refused) > SHOWN:
        console.print(f"and {len(measured.refused) - SHOWN} more (--json lists them)", style="red")
    if measured.interrupted:
        console.print("Interrupted: what was measured until then is in the database.")
    console.print(str(db))


BUSY = 1.2


def _show_sums(console: Console, summary: Mapping[str, Any]) -> None:
    """Print the real iteration and what its ops add up to."""
    real, spread = summary["iteration_time"], summary["iteration_spread"]
    if real is not None:
        console.print(
            f"measured iteration: {format_duration(real)} "
            f"({format_duration(spread['p10'])} to {format_duration(spread['p90'])}, "
            f"{summary['iterations']} of them)"
        )
    for cache, time in summary["sum_of_ops"].items():
        error = "" if real is None else f", {time / real - 1:+.1%}"
        console.print(f"sum of {cache} ops: {format_duration(time)}{error}")
    phases = ", ".join(f"{name} {format_duration(t)}" for name, t in summary["by_phase"].items())
    console.print(f"by phase: {phases}")
