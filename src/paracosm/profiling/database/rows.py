"""Timings as rows of a database or a file, and back.

A row is flat: the fields of the op and of the statistics are among those of the timing, in the
order of the dataclasses. The environment is its JSON text.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Generic, TypeVar

from paracosm.errors import InputError
from paracosm.graphs.flops import counted_in_half
from paracosm.graphs.graph import Op, TensorArgument, decode_arguments
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import (
    CACHES,
    LONGEST,
    SHORTEST,
    IterationTiming,
    LinkTiming,
    OpTiming,
    Spread,
    can_take,
)
from paracosm.units import parse_whole


def choose_environments(environments: Sequence[Environment], asked: str) -> list[Environment]:
    """Return the environment with a number ("2", as in `paracosm db show`), or all whose
    description contains a text, ignoring case."""
    if chosen := parse_whole(asked, len(environments)):
        return [environments[chosen - 1]]
    matching = [
        environment
        for environment in environments
        if asked.lower() in describe(environment).lower()
    ]
    if asked.isdecimal() or not asked.strip() or not matching:
        there = "; ".join(
            f"{number}: {describe(environment)}"
            for number, environment in enumerate(environments, 1)
        )
        raise InputError(f'no environment "{asked}": there is {there or "none"}')
    return matching


def describe(environment: Environment) -> str:
    """Return "cpu, AMD EPYC, torch 2.13.0, threads 1, malloc pinned, denormals flushed"."""
    return f"{environment.device}, {environment}"


_LONGEST = 3  # entries that are shown of a list of tensors
_CUT = 80  # characters of arguments that are not of the form that ops have


def short_arguments(text: str) -> str:
    """Return "64x3x32x32 float32, 64x3x7x7, -, [2,2]" for the text of an op's arguments.

    A tensor is its shape, followed by its dtype if that differs from the previous tensor's, and its
    strides if it is not contiguous. A missing argument is "-", a named one `name=value`. Texts of
    another form are shown as they are, shortened if long.
    """
    try:
        args, kwargs = decode_arguments(text)
    except InputError:
        return text if len(text) <= _CUT else f"{text[: _CUT - 3]}..."
    writer = _Writer()
    parts = [writer.written(value) for value in args]
    parts += [f"{name}={writer.written(value)}" for name, value in kwargs.items()]
    return ", ".join(parts)


class _Writer:
    def __init__(self) -> None:
        self._dtype = ""

    def written(self, value: Any) -> str:
        match value:
            case TensorArgument():
                return self._tensor(value)
            case None:
                return "-"
            case bool():
                return str(value).lower()
            case list() if any(isinstance(item, TensorArgument) for item in value):
                shown = [self.written(item) for item in value[:_LONGEST]]
                rest = len(value) - len(shown)
                return f"[{', '.join(shown)}{f', and {rest} more' if rest else ''}]"
            case list():
                return f"[{','.join(self.written(item) for item in value)}]"
            case dict():  # {"dtype": "int64"}
                return " ".join(str(item) for item in value.values())
        return str(value)

    def _tensor(self, tensor: TensorArgument) -> str:
        words = ["x".join(map(str, tensor.shape)) or "scalar"]
        if tensor.dtype != self._dtype:
            words.append(tensor.dtype)
            self._dtype = tensor.dtype
        if tensor.stride is not None:
            words.append(f"strides [{','.join(map(str, tensor.stride))}]")
        if tensor.entries is not None:
            words.append(f"sparse, {tensor.entries} rows")
        if tensor.on is not None:
            words.append(f"on {tensor.on}")
        return " ".join(words)


Timing = TypeVar("Timing", OpTiming, LinkTiming, IterationTiming)
Item = TypeVar("Item")
Group = TypeVar("Group", bound=Hashable)

_SPREAD = ("count", "mean", "variance", "minimum", "p10", "median", "p90")

_LARGEST = 2**63 - 1  # that SQLite can hold
_QUANTILES = ("minimum", "p10", "median", "p90")
_INTEGERS = ("flops", "bytes_read", "bytes_written", "size", "ranks", "count")
_SECONDS = ("mean", *_QUANTILES, "probe")
_NUMBERS = (*_SECONDS, "variance")

_ORDERED = (*pairwise(_QUANTILES), ("minimum", "mean"))
"""Pairs of columns of which the first is not above the second."""

_POSSIBLE: Mapping[str, tuple[Callable[[float], bool], str]] = {
    **dict.fromkeys(_SECONDS, (can_take, f"0, or {SHORTEST:g} to {LONGEST:g}")),
    "variance": (lambda value: 0 <= value <= LONGEST**2, f"0 to {LONGEST**2:g}"),
    **dict.fromkeys(_INTEGERS, (lambda value: 0 <= value <= _LARGEST, "0 to 2^63 - 1")),
}
"""By column, whether it can have a value, and in words which."""


@dataclass(frozen=True)
class Kind(Generic[Timing]):
    view: str
    columns: tuple[str, ...]  # of the view, in the order of the fields
    build: Callable[[Sequence[Any]], Timing]  # makes a timing of the values of a row
    statements: tuple[str, ...]  # that insert a row; the last one counts it unless its key is there


def rows_of(kind: Kind[Timing], timings: Iterable[Timing]) -> list[dict[str, Any]]:
    return [_checked(_flat(kind, timing)) for timing in timings]


def insert(
    connection: sqlite3.Connection, kind: Kind[Timing], rows: Sequence[Mapping[str, Any]]
) -> int:
    """Insert rows in the caller's transaction; return how many were not there already."""
    if not rows:
        return 0
    connection.executemany(
        "INSERT INTO environments (text) VALUES (:environment) ON CONFLICT DO NOTHING",
        ({"environment": text} for text in dict.fromkeys(row["environment"] for row in rows)),
    )
    *before, last = kind.statements
    for statement in before:
        connection.executemany(statement, rows)
    return connection.executemany(last, rows).rowcount


def select(
    connection: sqlite3.Connection,
    kind: Kind[Timing],
    among: Mapping[str, Sequence[str]],
    wanted: str = "",
) -> list[Timing]:
    """Return the timings whose columns have values among those given.

    They are sorted by content, not by insertion: databases with equal contents give equal answers.
    `wanted` is JSON, pairs of a name and arguments, in any order, to be selected; "" for all.
    """
    source = f"{kind.view} AS t"
    if wanted:
        source = (
            "(SELECT json_extract(value, '$[0]') AS name, json_extract(value, '$[1]') AS arguments"
            f" FROM json_each(:wanted)) AS w CROSS JOIN {source}"
            " ON t.name = w.name AND t.arguments = w.arguments"
        )
    columns = ", ".join(f"t.{column}" for column in kind.columns)
    conditions = [f"t.{column} IN (SELECT value FROM json_each(:{column}))" for column in among]
    rows = connection.execute(
        f"SELECT {columns} FROM {source} WHERE {' AND '.join(conditions) or 'TRUE'}",
        {column: json.dumps(values) for column, values in among.items()} | {"wanted": wanted},
    ).fetchall()
    _refuse_damage(kind, rows)
    if not wanted:
        count = kind.columns.index("count")  # what comes before says what was measured
        rows.sort(key=lambda row: (row[:count], row[-2:]))
    return [kind.build(row) for row in rows]


def _refuse_damage(kind: Kind[Timing], rows: Sequence[Sequence[Any]]) -> None:
    """Refuse values of another type, which is how SQLite returns some flipped bits, and those that
    no samples have."""
    columns = dict(zip(kind.columns, zip(*rows, strict=True), strict=bool(rows)))
    wrong = [name for name, values in columns.items() if set(map(type, values)) != {TYPES[name]}]
    for name, (possible, _) in _POSSIBLE.items() if not wrong else ():
        if not all(map(possible, columns.get(name, ()))):
            wrong.append(name)
    for low, high in _ORDERED if rows and not wrong else ():
        if any(map(_exceeds, columns[low], columns[high])):
            wrong.append(low)
    if wrong:
        raise InputError(f"is damaged (column {wrong[0]}): restore a copy of it")


def _exceeds(low: float, high: float) -> bool:
    return low > high * (1 + 1e-9)  # they are interpolated, or a mean rounded


def _flat(kind: Kind[Timing], timing: Timing) -> dict[str, Any]:
    parts: tuple[object, ...] = (timing, timing.time)
    if isinstance(timing, OpTiming):
        parts = (timing.op, *parts)
    row = {}
    for column in kind.columns:
        value = next(getattr(part, column) for part in parts if hasattr(part, column))
        row[column] = value.to_json() if isinstance(value, Environment) else TYPES[column](value)
    return row


def _checked(row: dict[str, Any]) -> dict[str, Any]:
    subject = row.get("name") or row.get("kind") or row.get("model")
    for column, (possible, words) in _POSSIBLE.items():
        if not possible(row.get(column, 0)):
            raise InputError(f"timing of {subject}: {column} is {row[column]}, not {words}")
    for low, high in _ORDERED:
        if _exceeds(row[low], row[high]):
            raise InputError(f"timing of {subject}: {low} is {row[low]}, above {high}, {row[high]}")
    if row["count"] < 1:
        raise InputError(f"timing of {subject}: {row['count']} samples, where one is needed")
    if row.get("cache", CACHES[0]) not in CACHES:
        raise InputError(f"timing of {subject}: cache {row['cache']}, not {' or '.join(CACHES)}")
    if not row["key"]:
        raise InputError(f"timing of {subject}: its key is missing")
    return row


@lru_cache(maxsize=256)
def _environment(text: str) -> Environment:
    return Environment.from_json(text)


def _op_timing(row: Sequence[Any]) -> OpTiming:
    spread, (probe, source, date, session, key) = Spread(*row[7:14]), row[14:]
    where = _environment(row[5])
    op = counted_in_half(Op(*row[:5]))
    return OpTiming(op, where, row[6], spread, probe, source, date, key, session=session)


def _link_timing(row: Sequence[Any]) -> LinkTiming:
    kind, scenario, size, ranks, environment, *rest = row
    spread = Spread(*rest[:7])
    return LinkTiming(kind, scenario, size, ranks, _environment(environment), spread, *rest[7:])


def _iteration_timing(row: Sequence[Any]) -> IterationTiming:
    fingerprint, model, text, *rest = row
    spread, (probe, source, date, session, key) = Spread(*rest[:7]), rest[7:]
    where = _environment(text)
    return IterationTiming(
        fingerprint, model, where, spread, probe, source, date, key, session=session
    )


def _insertion(table: str, columns: Sequence[str]) -> str:
    values = {
        "op": "(SELECT id FROM ops WHERE name = :name AND arguments = :arguments)",
        "environment": "(SELECT id FROM environments WHERE text = :environment)",
    }
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) "
        f"VALUES ({', '.join(values.get(column, f':{column}') for column in columns)}) "
        "ON CONFLICT (key) DO NOTHING"
    )


# Compared as a whole, so that the outcome does not depend on which was added first.
_COUNTED = "counted_at, flops, bytes_read, bytes_written"
_INSERT_OP = f"""
    INSERT INTO ops (name, arguments, flops, bytes_read, bytes_written, counted_at)
    VALUES (:name, :arguments, :flops, :bytes_read, :bytes_written, :measured_at)
    ON CONFLICT (name, arguments) DO UPDATE SET ({_COUNTED}) =
        (excluded.counted_at, excluded.flops, excluded.bytes_read, excluded.bytes_written)
    WHERE (excluded.counted_at, excluded.flops, excluded.bytes_read, excluded.bytes_written)
        > (ops.counted_at, ops.flops, ops.bytes_read, ops.bytes_written)"""

_END = ("source", "measured_at", "key")
_SESSION = ("source", "measured_at", "session", "key")
_OP = ("name", "arguments", "flops", "bytes_read", "bytes_written")
_OP_OWN = ("environment", "cache", *_SPREAD, "probe", *_SESSION)
_LINK = ("kind", "scenario", "size", "ranks", "environment", *_SPREAD, *_END)
_ITERATION = ("fingerprint", "model", "environment", *_SPREAD, "probe", *_SESSION)

OPS: Kind[OpTiming] = Kind(
    view="timings",
    columns=(*_OP, *_OP_OWN),
    build=_op_timing,
    statements=(_INSERT_OP, _insertion("op_timings", ("op", *_OP_OWN))),
)
LINKS: Kind[LinkTiming] = Kind(
    view="links", columns=_LINK, build=_link_timing, statements=(_insertion("link_timings", _LINK),)
)
ITERATIONS: Kind[IterationTiming] = Kind(
    view="iterations",
    columns=_ITERATION,
    build=_iteration_timing,
    statements=(_insertion("iteration_timings", _ITERATION),),
)

KINDS: Mapping[str, Kind[Any]] = {"ops": OPS, "links": LINKS, "iterations": ITERATIONS}
"""By the name that each has in `Timings`."""

TYPES: Mapping[str, type[str] | type[int] | type[float]] = {
    column: int if column in _INTEGERS else float if column in _NUMBERS else str
    for column in (*OPS.columns, *LINKS.columns, *ITERATIONS.columns)
}
"""Of every column."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Sets of samples of all three kinds."""

    ops: tuple[OpTiming, ...] = ()
    links: tuple[LinkTiming, ...] = ()
    iterations: tuple[IterationTiming, ...] = ()

    def __len__(self) -> int:
        return len(self.ops) + len(self.links) + len(self.iterations)

    def only(self, environments: Collection[Environment]) -> Timings:
        return Timings(
            tuple(op for op in self.ops if op.environment in environments),
            tuple(link for link in self.links if link.environment in environments),
            tuple(
                iteration for iteration in self.iterations if iteration.environment in environments
            ),
        )

    def by_environment(self) -> dict[Environment, Timings]:
        known = dict.fromkeys(timing.environment for timing in self.everyone())
        return {environment: self.only((environment,)) for environment in known}

    def everyone(self) -> Iterator[OpTiming | LinkTiming | IterationTiming]:
        yield from self.ops
        yield from self.links
        yield from self.iterations


@dataclass(frozen=True, slots=True)
class Added:
    """How many sets of samples were added, and how many were already there."""

    new: int = 0
    known: int = 0

    def __add__(self, other: Added) -> Added:
        return Added(self.new + other.new, self.known + other.known)


def pool(timings: Iterable[OpTiming]) -> dict[tuple[str, str], OpTiming]:
    """Return one timing per (name, arguments) among timings of one environment and cache.

    It has the op of the newest set, the mean probe of those that have one (weighted by count), the
    latest date, all sources, and a key derived from the sets' keys.
    """
    sets = grouped(timings, lambda timing: (timing.op.name, timing.op.arguments))
    return {key: _one(members) for key, members in sets.items()}


def grouped(timings: Iterable[Item], key: Callable[[Item], Group]) -> dict[Group, list[Item]]:
    """Group timings by `key`, in the order of their first occurrence."""
    groups: dict[Group, list[Item]] = {}
    for timing in timings:
        groups.setdefault(key(timing), []).append(timing)
    return groups


def pool_spreads(spreads: Sequence[Spread]) -> Spread:
    """Return the statistics of all samples of one or more sets; quantiles are approximate.

    Count, mean, variance and minimum are exact: with n_i samples of mean m_i and variance v_i in
    set i, N and M of all,

        variance = (sum (n_i - 1) v_i + sum n_i (m_i - M)^2) / (N - 1)

    (Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample
    variances, 1979). Quantiles are averages of the sets', weighted by count: exact if the sets
    have the same distribution, and always between theirs.
    """
    total = sum([spread.count for spread in spreads])
    mean = math.fsum([spread.count * spread.mean for spread in spreads]) / total
    within = math.fsum([(spread.count - 1) * spread.variance for spread in spreads])
    between = math.fsum([spread.count * (spread.mean - mean) ** 2 for spread in spreads])
    return Spread(
        count=total,
        mean=mean,
        variance=(within + between) / (total - 1) if total > 1 else 0.0,
        minimum=min([spread.minimum for spread in spreads]),
        p10=math.fsum([spread.count * spread.p10 for spread in spreads]) / total,
        median=math.fsum([spread.count * spread.median for spread in spreads]) / total,
        p90=math.fsum([spread.count * spread.p90 for spread in spreads]) / total,
    )


def _one(sets: Sequence[OpTiming]) -> OpTiming:
    if len(sets) == 1:
        return sets[0]
    newest = max(sets, key=lambda timing: (timing.measured_at, timing.key))
    probed = [timing for timing in sets if timing.probe > 0]
    weight = sum([timing.time.count for timing in probed])
    worth = sum([timing.time.count * timing.probe for timing in probed])
    keys = "".join(sorted([timing.key for timing in sets]))
    return OpTiming(
        op=newest.op,
        environment=newest.environment,
        cache=newest.cache,
        time=pool_spreads([timing.time for timing in sets]),
        probe=worth / weight if probed else 0.0,
        source=", ".join(sorted({timing.source for timing in sets if timing.source})),
        measured_at=newest.measured_at,
        session=newest.session,
        key=hashlib.blake2b(keys.encode(), digest_size=16).hexdigest(),
    )
