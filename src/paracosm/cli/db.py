"""`paracosm db show`, `check`, `merge`, `export`: the contents of profile databases, and copies of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from paracosm.cli.display import aligned, printer, show_result
from paracosm.cli.options import ForceFile, Json, Quiet
from paracosm.errors import InputError
from paracosm.profiling.database import (
    Added,
    ProfileDatabase,
    choose_environments,
    describe,
    pool,
    replacing_database,
    short_arguments,
)
from paracosm.profiling.database import export as export_file
from paracosm.profiling.database import merge as merge_files
from paracosm.profiling.environment import Environment
from paracosm.profiling.host_ops import KIND as HOST_OF_AN_OP
from paracosm.profiling.samples import CACHES, OpTiming
from paracosm.units import format_bandwidth, format_duration, format_size


def show(
    database: Annotated[Path, Argument(help="a profile database")],
    op: Annotated[
        str | None,
        Option(help="list the timings of this op: convolution, aten.add, aten.add.Tensor"),
    ] = None,
    environment: Annotated[
        str | None, Option(help="only this one: its number here, or part of its description")
    ] = None,
    json: Json = False,
) -> int:
    """Show the contents of a profile database: environments, op types, models, iterations, links.

    Example: paracosm db show profiles.db
    """
    with ProfileDatabase.open(database, readonly=True) as opened:
        everyone = [known for known, _ in opened.environments()]
        chosen = everyone if environment is None else choose_environments(everyone, environment)
        if op is not None:
            _show_op(opened, op, {everyone.index(known) + 1: known for known in chosen}, json)
            return 0
        contents = opened.contents(chosen)
    show_result(contents, json, False, lambda: _show_contents(contents))
    return 0


def _show_contents(contents: Mapping[str, Any]) -> None:
    say, models = printer(), contents["models"].items()
    size, version = format_size(contents["size"]), contents["schema_version"]
    say(f"{contents['file']}: {size}, schema version {version}")
    if not contents["environments"]:
        say("no timings yet")
    for environment in contents["environments"]:
        say("")
        for line in _environment(environment):
            say(line)
    ops = ([r["name"], f"{r['arguments']:,}", f"{r['timings']:,}"] for r in contents["ops"])
    for title, header, rows in (
        ("op types", _OPS, ops),
        ("models", ["model", ">op timings"], ([m, f"{n:,}"] for m, n in models)),
        ("iterations", _ITERATIONS, map(_iteration_row, contents["iterations"])),
        ("links", _LINKS, map(_link_row, contents["links"])),
    ):
        table = [header, *rows]
        if len(table) > 1:
            say(f"\n{title}")
            say(aligned(table))


def _environment(row: Mapping[str, Any]) -> list[str]:
    parts = {name: row[name] for name in Environment.__dataclass_fields__}
    cold, warm = row["timings"]["cold"], row["timings"]["warm"]
    others = f"{row['iterations']:,} of iterations, {row['links']:,} of links"
    lines = [
        f"{row['number']}: {describe(Environment(**parts))}",
        f"   ops: {row['ops']:,}, of types: {row['op_types']:,}",
        f"   timings: {cold:,} cold, {warm:,} warm, {others}",
    ]
    error = row["standard_error"]
    if error["median"] is not None:
        lines.append(
            f"   median standard error {error['median']:.2%}, below 1 % for "
            f"{error['share_below_1_percent']:.0%} of the op timings"
        )
    if row["first_measured_at"]:
        first, last = _date(row["first_measured_at"]), _date(row["last_measured_at"])
        lines.append(f"   measured {first}" + (f" to {last}" if last != first else ""))
    return lines


_OPS = ["op", ">arguments", ">timings"]
_ITERATIONS = [">environment", "model", ">median", ">p10", ">p90", ">samples", "measured"]
_LINKS = [">environment", "kind", "scenario", ">ranks", ">sizes", "", ">highest bandwidth"]


def _iteration_row(row: Mapping[str, Any]) -> list[str]:
    times = [format_duration(row[quantile]) for quantile in ("median", "p10", "p90")]
    measured = _date(row["last_measured_at"] or "")
    return [str(row["environment"]), row["model"], *times, f"{row['count']:,}", measured]


def _link_row(row: Mapping[str, Any]) -> list[str]:
    highest = row["highest_bandwidth"]
    rate = format_bandwidth(highest) if highest else ""
    if row["kind"] == HOST_OF_AN_OP and highest:  # no transfer: its size is that of a cache
        rate = f"{format_duration(row['smallest'] / highest)} an op"
    return [
        *(str(row[key]) for key in ("environment", "kind", "scenario", "ranks")),
        format_size(row["smallest"]),
        f"to {format_size(row['largest'])}",
        rate,
    ]


def _date(text: str) -> str:
    """Return "2026-01-02 03:04" for an ISO date and time."""
    return text[:16].replace("T", " ")


def _show_op(
    database: ProfileDatabase, op_type: str, environments: Mapping[int, Environment], json: bool
) -> None:
    """Print the pooled timings of an op type; `op_type` is a name or a part of it between dots."""
    sets = [
        (number, cache, database.timings(environment, cache=cache))
        for number, environment in environments.items()
        for cache in CACHES
    ]
    names = sorted({timing.op.name for _, _, timings in sets for timing in timings})
    wanted = {name for name in names if f".{op_type}." in f".{name}."}
    if not wanted:
        raise _no_such_op(op_type, names, database)
    pooled = [
        (number, cache, timing)
        for number, cache, timings in sets
        for timing in pool(timing for timing in timings if timing.op.name in wanted).values()
    ]
    rows = [_timing_row(number, timing) for number, _, timing in pooled]
    summary = {"file": database.path, "op": op_type, "timings": rows}
    show_result(summary, json, False, lambda: _show_timings(pooled))


def _no_such_op(op_type: str, names: Sequence[str], database: ProfileDatabase) -> InputError:
    """Return the error with the nearest name or part of a name; there may be hundreds of names."""
    parts = {part for name in names for part in name.split(".")}
    near = get_close_matches(op_type, [*sorted(parts), *names], n=1, cutoff=0.6)
    hint = f'did you mean "{near[0]}"?' if near else f"paracosm db show {database.path} lists ops"
    return InputError(f'"{database.path}": no timings of op "{op_type}": {hint}')


def _timing_row(number: int, timing: OpTiming) -> dict[str, Any]:
    return {
        "environment": number,
        "cache": timing.cache,
        **asdict(timing.op),
        "short_arguments": short_arguments(timing.op.arguments),
        **asdict(timing.time),
        "standard_error": timing.time.standard_error,
        "probe": timing.probe,
        "source": timing.source,
        "measured_at": timing.measured_at,
    }


def _show_timings(pooled: Sequence[tuple[int, str, OpTiming]]) -> None:
    """Print a table for every op name, with cold and warm side by side; arguments may be long."""
    lines: dict[str, dict[tuple[str, int], dict[str, OpTiming]]] = {}
    for number, cache, timing in pooled:
        line = lines.setdefault(timing.op.name, {})
        line.setdefault((timing.op.arguments, number), {})[cache] = timing
    say = printer()
    for position, (name, entries) in enumerate(sorted(lines.items())):
        say(f"\n{name}" if position else name)
        table = [[">#", *_HEADER, ">GFLOP/s", "arguments"]]
        longest = {
            key: max(t.time.median for t in timings.values()) for key, timings in entries.items()
        }
        for key in sorted(entries, key=lambda key: (-longest[key], key)):
            (arguments, number), timings = key, entries[key]
            cells = [cell for cache in CACHES for cell in _cells(timings.get(cache))]
            table.append([str(number), *cells, _rate(timings), short_arguments(arguments)])
        say(aligned(table))


_HEADER = [title for cache in CACHES for title in (f">{cache}", ">error", ">samples")]


def _cells(timing: OpTiming | None) -> list[str]:
    if timing is None:
        return ["", "", ""]
    error = f"{timing.time.standard_error:.2%}" if timing.time.count > 1 else ""
    return [format_duration(timing.time.median), error, f"{timing.time.count:,}"]


def _rate(timings: Mapping[str, OpTiming]) -> str:
    """Return GFLOP/s, of cold calls if there are any; "" where no flops are counted."""
    timing = timings.get("cold") or timings["warm"]
    if timing.op.flops == 0 or timing.time.median <= 0:
        return ""
    return f"{timing.op.flops / timing.time.median / 1e9:,.3g}"


def check(database: Annotated[Path, Argument(help="a profile database")]) -> int:
    """Read all of a profile database and check that it is intact.

    Example: paracosm db check profiles.db
    """
    with ProfileDatabase.open(database, readonly=True) as opened:
        timings = opened.check()
    printer()(f"{database}: intact, {len(timings):,} timings")
    return 0


def merge(
    sources: Annotated[
        list[Path], Argument(help="profile databases, or Parquet files from db export")
    ],
    out: Annotated[Path | None, Option(help="new database to write")] = None,
    into: Annotated[Path | None, Option(help="database to add to, created if missing")] = None,
    force: Annotated[bool, Option("--force", help="replace the file of --out")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Merge profile databases of one machine or several; timings already there are not added twice.

    Example: paracosm db merge profiles.db --out all.db
    """
    if (out is None) == (into is None):
        raise InputError("give either --out for a new database or --into for one to add to")
    if into is not None:
        if force:
            raise InputError(
                "--force replaces the file of --out; --into only adds: leave --force out"
            )
        counts = merge_files(into, sources)
    else:
        assert out is not None
        counts = _check_new(out, sources, force)
    summary = {
        "file": out or into,
        "environments": [
            {**asdict(environment), "added": added.new, "already_there": added.known}
            for environment, added in counts.items()
        ],
    }

    def show_counts() -> None:
        say, rows = printer(), [["environment", ">added", ">already there"]]
        for environment, added in counts.items():
            rows.append([describe(environment), f"{added.new:,}", f"{added.known:,}"])
        say(aligned(rows))
        say(str(out or into))

    show_result(summary, json, quiet, show_counts)
    return 0


def _check_new(out: Path, sources: list[Path], force: bool) -> dict[Environment, Added]:
    if out.is_dir():
        raise InputError(f'"{out}" is a folder, not a profile database')
    if out.exists():
        if not force:
            raise InputError(f'"{out}" exists: --into adds to it, --force replaces it')
        if any(source.exists() and out.samefile(source) for source in sources):
            raise InputError(f'"{out}" is both a source and the output: use --into to add to it')
    with replacing_database(out) as unfinished:
        return merge_files(unfinished, sources)


def export(
    database: Annotated[Path, Argument(help="a profile database")],
    out: Annotated[Path | None, Option(help="Parquet file to write [DATABASE.parquet]")] = None,
    environment: Annotated[
        str | None,
        Option(help="only this one: its number in db show, or part of its description"),
    ] = None,
    force: ForceFile = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write all timings of a database to one file for other programs; db merge reads Parquet back.

    Example: paracosm db export profiles.db --out profiles.parquet
    """
    with ProfileDatabase.open(database, readonly=True) as opened:
        path = out or database.with_suffix(".parquet")
        if path.exists() and not force:
            raise InputError(f'"{path}" exists: --force replaces it')
        if path.exists() and path.samefile(database):
            raise InputError(f'"{path}" is the database itself: give another file')
        everyone = [known for known, _ in opened.environments()]
        chosen = None if environment is None else choose_environments(everyone, environment)
        written = export_file(opened, path, chosen)
    counts = {name: len(getattr(written, name)) for name in ("ops", "links", "iterations")}
    size = path.stat().st_size
    sentence = f"{path}: {len(written):,} timings, {format_size(size)}"
    summary = {"file": path, "timings": counts, "size": size}
    show_result(summary, json, quiet, lambda: typer.echo(sentence))
    return 0
