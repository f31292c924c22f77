"""`paracosm profile grid`: how long families of ops take on this machine, at designed shapes."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paracosm.cli.capture_flags import (
    DATABASE,
    Budget,
    Database,
    Device,
    Precision,
    Threads,
    duration,
    named,
)
from paracosm.cli.display import printer, progress_bar
from paracosm.cli.options import Json, Quiet
from paracosm.cli.profile_ops import in_short, say_the_end
from paracosm.errors import InputError
from paracosm.results import to_json
from paracosm.units import parse_number, parse_size

if TYPE_CHECKING:
    from paracosm.profiling.designs.design import Design
    from paracosm.profiling.designs.families import Family
    from paracosm.profiling.profiler import Profile

__all__ = ["grid"]


def grid(
    ops: Annotated[str, typer.Option(help="families of ops, such as convolution,addmm; or all")],
    db: Database = DATABASE,
    design: Annotated[
        str,
        typer.Option(
            help="model-like: values that models have; random; paper: one argument at a time"
        ),
    ] = "model-like",
    values: Annotated[
        int, typer.Option(help="of each argument in the paper's grid; the others are as large")
    ] = 16,
    batch: Annotated[
        int | None, typer.Option(help="the only batch size (many)", show_default=False)
    ] = None,
    dtype: Annotated[str, typer.Option(help="of floating-point tensors")] = "float32",
    limit: Annotated[str, typer.Option(help="memory that one op may read and write")] = "512MB",
    flops: Annotated[str, typer.Option(help="floating-point operations of one op")] = "2e10",
    device: Device = "cpu",
    threads: Threads = 1,
    precision: Precision = 0.01,
    budget: Budget = "2min",
    seed: Annotated[int, typer.Option(min=0, help="what is drawn, order of ops")] = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Time families of ops at the shapes of a sampling design.

    Example: paracosm profile grid --ops addmm,relu --values 4 --budget 10s
    """
    from paracosm.profiling.database import ProfileDatabase
    from paracosm.profiling.designs.design import Limits
    from paracosm.profiling.designs.design import design as make_design
    from paracosm.profiling.profiler import Settings, profile

    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    families = _families_asked(ops, batch)
    limits = Limits(named("--limit", parse_size, limit), named("--flops", parse_number, flops))
    settings = Settings(
        device=device,
        threads=threads,
        precision=precision,
        budget=duration("--budget", budget),
        seed=seed,
    )
    hidden = json or quiet
    if db.exists():  # refused before anything is drawn
        ProfileDatabase.open(db).close()
    with progress_bar(len(families), hidden, unit="families") as shown:
        made = make_design(
            design, families, values, seed, limits, dtype, lambda done, _: shown(done, None)
        )
    if not made.ops:
        raise InputError("no point of the design is within --limit and --flops: raise them")
    with (
        ProfileDatabase.open(db, create=True) as database,
        progress_bar(len(made.ops), hidden, unit="ops") as shown,
    ):
        measured = profile(
            made.ops,
            settings,
            source=f"grid {design}",
            keep=database.add,
            progress=lambda done, _: shown(done, None),
        )
    if measured.interrupted and not measured.timings:
        raise typer.Abort("interrupted before anything was timed")
    if json:
        typer.echo(to_json(_grid_summary(made, measured)), nl=False)
    elif not quiet:
        _show_grid(made, measured, db)
    return 1 if measured.interrupted else 0


def _families_asked(text: str, batch: int | None) -> list[Family]:
    from paracosm.profiling.designs.families import families_named

    families = families_named([name.strip() for name in text.split(",") if name.strip()])
    if batch is None:
        return families
    if not any(part.name == "batch" for family in families for part in family.arguments):
        raise InputError(f"--batch has no effect: {text} has no batch")
    return [family.fixed({"batch": batch}) for family in families]


def _grid_summary(made: Design, measured: Profile) -> dict[str, Any]:
    counts = Counter(family for family, _ in made.points)
    family_of = {op: family for op, (family, _) in zip(made.ops, made.points, strict=True)}
    timed = Counter(family_of[op] for op in {timing.op for timing in measured.timings})
    return {
        "status": "interrupted" if measured.interrupted else "done",
        "environment": asdict(measured.environment),
        "design": made.name,
        "ops": len(made.ops),
        "timings": len(measured.timings),
        "stable": measured.stable,
        "families": {
            name: {"ops": count, "timed": timed[name], "left_out": made.left_out.get(name, 0)}
            for name, count in counts.items()
        },
        "refused": {f"{op.name} {op.arguments}": why for op, why in measured.refused.items()},
    }


def _show_grid(made: Design, measured: Profile, db: Path) -> None:
    say = printer()
    summary = _grid_summary(made, measured)
    say(in_short(measured.environment))
    say(
        f"design {made.name}: {len(made.ops):,} ops, {len(measured.timings):,} timings, "
        f"{measured.stable:.0%} with a standard error under 1 %"
    )
    for name, counts in summary["families"].items():
        beyond = f", {counts['left_out']} beyond the limits" if counts["left_out"] else ""
        say(f"  {name}: {counts['timed']} of {counts['ops']}{beyond}")
    say_the_end(summary, db)
