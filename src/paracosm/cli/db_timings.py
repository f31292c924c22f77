"""The timings of one op type, as `paracosm db show --op` lists them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import Any

from paracosm.cli.display import grid, printer
from paracosm.errors import InputError
from paracosm.profiling.database import ProfileDatabase, pool, short_arguments
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import CACHES, OpTiming
from paracosm.study.plain import to_json
from paracosm.units import format_duration

__all__ = ["show_op"]


def show_op(
    database: ProfileDatabase, asked: str, environments: Mapping[int, Environment], json: bool
) -> None:
    """Print the timings of an op type in some environments, which are numbered.

    Sets of samples of one op are pooled. `asked` is a name or a part of it between dots.

    Raises:
        InputError: no op of that name was timed there.
    """
    sets = [
        (number, cache, database.timings(environment, cache=cache))
        for number, environment in environments.items()
        for cache in CACHES
    ]
    names = sorted({timing.op.name for _, _, timings in sets for timing in timings})
    wanted = {name for name in names if f".{asked}." in f".{name}."}
    if not wanted:
        raise _unknown(asked, names, database)
    found = [
        (number, cache, timing)
        for number, cache, timings in sets
        for timing in pool(each for each in timings if each.op.name in wanted).values()
    ]
    if json:
        rows = [_row(number, timing) for number, _, timing in found]
        sys.stdout.write(to_json({"file": database.path, "op": asked, "timings": rows}))
    else:
        _show(found)


def _unknown(asked: str, names: Sequence[str], database: ProfileDatabase) -> InputError:
    """Return the error with the nearest name, whole or a part; there may be hundreds of names."""
    parts = {part for name in names for part in name.split(".")}
    near = get_close_matches(asked, [*sorted(parts), *names], n=1, cutoff=0.6)
    hint = f'did you mean "{near[0]}"?' if near else f"paracosm db show {database.path} lists ops"
    return InputError(f'"{database.path}": no timings of op "{asked}": {hint}')


def _row(number: int, timing: OpTiming) -> dict[str, Any]:
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


def _show(found: Sequence[tuple[int, str, OpTiming]]) -> None:
    """Print a table for every op name, with cold and warm side by side; arguments may be long."""
    lines: dict[str, dict[tuple[str, int], dict[str, OpTiming]]] = {}
    for number, cache, timing in found:
        line = lines.setdefault(timing.op.name, {})
        line.setdefault((timing.op.arguments, number), {})[cache] = timing
    say = printer()
    for position, (name, entries) in enumerate(sorted(lines.items())):
        say(f"\n{name}" if position else name)
        table = [[">#", *_HEADER, ">GFLOP/s", "arguments"]]
        for (arguments, number), timings in sorted(entries.items(), key=_longest_first):
            cells = [cell for cache in CACHES for cell in _cells(timings.get(cache))]
            table.append([str(number), *cells, _rate(timings), short_arguments(arguments)])
        say(grid(table))


_HEADER = [title for cache in CACHES for title in (f">{cache}", ">error", ">samples")]


def _cells(timing: OpTiming | None) -> list[str]:
    if timing is None:
        return ["", "", ""]
    error = f"{timing.time.standard_error:.2%}" if timing.time.count > 1 else ""
    return [format_duration(timing.time.median), error, f"{timing.time.count:,}"]


def _rate(timings: Mapping[str, OpTiming]) -> str:
    """Return GFLOP/s, of data-cold calls if there are any; "" where no flops are counted."""
    timing = timings.get("cold") or timings["warm"]
    if timing.op.flops == 0 or timing.time.median <= 0:
        return ""
    return f"{timing.op.flops / timing.time.median / 1e9:,.3g}"


def _longest_first(
    entry: tuple[tuple[str, int], Mapping[str, OpTiming]],
) -> tuple[float, tuple[str, int]]:
    key, timings = entry
    return -max(timing.time.median for timing in timings.values()), key
