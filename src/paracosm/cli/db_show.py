"""`paracosm db show`: what a profile database holds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from paracosm.cli.db_timings import show_op
from paracosm.cli.display import grid, printer
from paracosm.cli.options import Json
from paracosm.profiling.database import ProfileDatabase, choose_environments, describe
from paracosm.profiling.environment import Environment
from paracosm.study.plain import to_json
from paracosm.units import format_bandwidth, format_duration, format_size

__all__ = ["show"]


def show(
    database: Annotated[Path, typer.Argument(help="a profile database")],
    op: Annotated[
        str | None,
        typer.Option(help="list the timings of this op: convolution, aten.add, aten.add.Tensor"),
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(help="only this one: its number here, or part of its description"),
    ] = None,
    json: Json = False,
) -> int:
    """Show what a profile database holds: environments, op types, models, iterations, links.

    Example: paracosm db show profiles.db
    """
    with ProfileDatabase.open(database, readonly=True) as opened:
        everyone = [each for each, _ in opened.environments()]
        chosen = everyone if environment is None else choose_environments(everyone, environment)
        if op is not None:
            show_op(opened, op, {everyone.index(each) + 1: each for each in chosen}, json)
            return 0
        contents = opened.contents(chosen)
    if json:
        sys.stdout.write(to_json(contents))
    else:
        _show(contents)
    return 0


def _show(contents: Mapping[str, Any]) -> None:
    say = printer()
    size, version = format_size(contents["size"]), contents["schema_version"]
    say(f"{contents['file']}: {size}, schema version {version}")
    if not contents["environments"]:
        say("no timings yet")
    for environment in contents["environments"]:
        say("")
        for line in _environment(environment):
            say(line)
    for title, table in (
        ("op types", _ops(contents["ops"])),
        ("models", _models(contents["models"])),
        ("iterations", _iterations(contents["iterations"])),
        ("links", _links(contents["links"])),
    ):
        if len(table) > 1:
            say(f"\n{title}")
            say(grid(table))


def _environment(found: Mapping[str, Any]) -> list[str]:
    parts = {name: found[name] for name in Environment.__dataclass_fields__}
    cold, warm = found["timings"]["cold"], found["timings"]["warm"]
    others = f"{found['iterations']:,} of iterations, {found['links']:,} of links"
    lines = [
        f"{found['number']}: {describe(Environment(**parts))}",
        f"   ops: {found['ops']:,}, of types: {found['op_types']:,}",
        f"   timings: {cold:,} cold, {warm:,} warm, {others}",
    ]
    error = found["standard_error"]
    if error["median"] is not None:
        lines.append(
            f"   standard error {error['median']:.2%} in the median, below 1 % for "
            f"{error['share_below_1_percent']:.0%} of the op timings"
        )
    if found["first_measured_at"]:
        first, last = _date(found["first_measured_at"]), _date(found["last_measured_at"])
        lines.append(f"   measured {first}" + (f" to {last}" if last != first else ""))
    return lines


def _ops(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [
        ["op", ">arguments", ">timings"],
        *([row["name"], f"{row['arguments']:,}", f"{row['timings']:,}"] for row in rows),
    ]


def _models(models: Mapping[str, int]) -> list[list[str]]:
    return [["model", ">op timings"], *([name, f"{count:,}"] for name, count in models.items())]


def _iterations(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    header = [">environment", "model", ">median", ">p10", ">p90", ">samples", "measured"]
    return [
        header,
        *(
            [
                str(row["environment"]),
                row["model"],
                *(format_duration(row[quantile]) for quantile in ("median", "p10", "p90")),
                f"{row['count']:,}",
                _date(row["last_measured_at"] or ""),
            ]
            for row in rows
        ),
    ]


def _links(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    header = [">environment", "kind", "scenario", ">ranks", ">sizes", "", ">highest bandwidth"]
    return [
        header,
        *(
            [
                str(row["environment"]),
                row["kind"],
                row["scenario"],
                str(row["ranks"]),
                format_size(row["smallest"]),
                f"to {format_size(row['largest'])}",
                format_bandwidth(row["highest_bandwidth"]) if row["highest_bandwidth"] else "",
            ]
            for row in rows
        ),
    ]


def _date(text: str) -> str:
    """Return "2026-01-02 03:04" for an ISO date and time."""
    return text[:16].replace("T", " ")
