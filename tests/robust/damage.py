"""Ways to damage a file: in its bytes, in its values, and in what kind of file it is."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

LONG_WORD = "a" * 5000
TEXTS = (
    *("", " ", "0", "-1", "1.5", "nan", "inf", "-inf", "1e400", "1e-400", "9" * 5000),
    *("99999999999", "1000000000", "1000000000000", "[]", "{}", "null", "true", LONG_WORD),
    *("\u2603", "a\nb", "../..", ".", "/dev/null", "/dev/full", "/dev/zero", "/proc/self/mem"),
    *("1,2", "1..2", "0..3", "1..1000000000", "3,,4", "5s", "-5s", "1e30s", "1e-30s", "0B/s"),
    *("10Gbit/s", "10KB", "1e300TB", "lognormal(1ms, 0.3)", "lognormal()", "constant("),
    *("uniform(2s, 1s)", "gamma(1ms, 1e-300)", "x(y=z)", "x=1,x=2", "(" * 3000, "f(" * 500),
    *("worker 5: compute 0x slower", "links: bandwidth 2x", "all_reduce: +2 ms", "loss < nan"),
    *("asgd", "ssp(-1)", "ssp(slack=1e9)", "none", "all", "auto", "mlp", "linear", "laplace2d:0"),
    *("laplace2d:99999999", "os:getcwd", "nothing.py:f", "no.such.module:f", "dp=1000000,tp=2"),
)
"""What is written in the place of a word."""

VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 1e-320, 1e308, float("nan"), float("inf"), 10**400, 2**63),
    *("", "x", "1ms", [], [[]], [None], {}, {"a": {}}),
)
"""What else is written in the place of a value."""


def replacement(chosen: random.Random) -> Any:
    return chosen.choice(VALUES if chosen.random() < 0.5 else TEXTS)


def damaged(path: Path, folder: Path, chosen: random.Random) -> tuple[Path, str]:
    """Damage a copy of a file, or of one in a folder; return the copy and what was done."""
    copy = folder / path.name
    if path.is_dir():
        shutil.copytree(path, copy)
        inner = chosen.choice(sorted(each for each in copy.rglob("*") if each.is_file()))
    else:
        inner = Path(shutil.copy(path, copy))
    if chosen.random() < 0.08:
        done = chosen.choice(tuple(_KINDS))
        inner.unlink()
        _KINDS[done](inner)
    else:
        done = _damage(inner, chosen)
    return copy, f"{inner.name}: {done}"


_KINDS: dict[str, Callable[[Path], object]] = {
    "a pipe that nobody writes": os.mkfifo,
    "a folder": Path.mkdir,
    "missing": lambda path: None,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a device without end": lambda path: path.symlink_to("/dev/zero"),
    "a device without content": lambda path: path.symlink_to("/dev/null"),
    "a program": lambda path: path.symlink_to("/bin/true"),
    "100 GiB of zeros": lambda path: _sparse(path, 100 << 30),
}


def _sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def _damage(path: Path, chosen: random.Random) -> str:
    data = path.read_bytes()
    if data.startswith((b"SQLite", b"PAR1", b"ARROW1")) and chosen.random() < 0.5:
        return _one_cell(path, data, chosen)
    packed = data.startswith(b"\x1f\x8b") and chosen.random() < 0.8
    if packed:
        data = gzip.decompress(data)
    how, data = _other_bytes(data, path, chosen)
    path.write_bytes(gzip.compress(data, 1) if packed else data)
    return how


def _other_bytes(data: bytes, path: Path, chosen: random.Random) -> tuple[str, bytes]:
    kind = chosen.randrange(9)
    is_json = data.lstrip()[:1] in (b"{", b"[")
    if kind < 4 and (is_json or path.suffix == ".yaml"):
        from yaml import YAMLError, safe_dump, safe_load

        is_json = path.suffix != ".yaml"
        try:
            content = json.loads(data) if is_json else safe_load(data)
        except (ValueError, YAMLError):  # JSON with something behind it; what a case wrote over it
            return "cut in two", data[: len(data) // 2]
        how = _one_value(content, chosen)
        return how, json.dumps(content).encode() if is_json else safe_dump(content).encode()
    if kind == 4:
        end = chosen.randrange(len(data) + 1)
        return f"cut off after {end} bytes", data[:end]
    if kind == 5:
        other = (
            b"",
            b"\0" * 100,
            b"\xff\xfe" * 50,
            b'{"a":' * 3000,
            b"[" * 100_000,
            b"- " * 20_000,
        )
        known = (
            b"seed: " + b"9" * 10_000,
            b"a: &a [*a, *a]",
            b"\x80\x04N.",
            b"%PDF-1.7",
            b"a,b\n1",
        )
        return "other content", chosen.choice(other + known)
    if kind == 6 and len(data) > 1:
        begin = chosen.randrange(len(data) - 1)
        end = min(len(data), begin + chosen.choice((1, 4, 100, 10_000)))
        return f"without bytes {begin} to {end}", data[:begin] + data[end:]
    if kind == 7:
        begin = chosen.randrange(len(data) + 1)
        more = chosen.choice((b"\0", b"9" * 5000, b"\xff" * 8, b'"', b"nan", data[:1000]))
        return f"{more[:10]!r} put in at {begin}", data[:begin] + more + data[begin:]
    flipped = bytearray(data)
    for _ in range(chosen.choice((1, 1, 10, 100))):
        if flipped:
            flipped[chosen.randrange(len(flipped))] ^= 1 << chosen.randrange(8)
    return "flipped bits", bytes(flipped)


def _one_value(content: object, chosen: random.Random) -> str:
    """Replace one value, anywhere, or its key, or take it away; return where."""
    path = []
    while isinstance(content, dict | list) and content:
        key: Any = chosen.choice(
            list(content) if isinstance(content, dict) else [*range(len(content))]
        )
        path.append(str(key))
        inner = content[key]
        if isinstance(inner, dict | list) and inner and chosen.random() < 0.8:
            content = inner
            continue
        how = chosen.randrange(8)
        if how == 0:
            del content[key]
            return f"{'.'.join(path)} taken away"
        if how == 1 and isinstance(content, dict):
            content[str(chosen.choice(TEXTS))] = content.pop(key)
            return f"{'.'.join(path)} named otherwise"
        content[key] = replacement(chosen)
        return f"{'.'.join(path)} = {str(content[key])[:60]}"
    return "nothing to replace"


def _one_cell(path: Path, data: bytes, chosen: random.Random) -> str:
    """Replace a cell, a column or the metadata of a table, with a file that is otherwise sound."""
    if data.startswith(b"SQLite"):
        return _cell_of_database(path, chosen)
    import pyarrow as pa
    from pyarrow import parquet

    is_parquet = data.startswith(b"PAR1")
    table = parquet.read_table(path) if is_parquet else pa.ipc.open_file(path).read_all()
    how = chosen.randrange(4)
    name = chosen.choice(table.column_names)
    place = table.column_names.index(name)
    if how == 0:
        table, done = table.drop_columns([name]), f"without column {name}"
    elif how == 1:
        found = dict(table.schema.metadata or {b"x": b""})
        key = chosen.choice(list(found))
        found[key], what = _other_text(found[key], chosen)
        table, done = table.replace_schema_metadata(found), f"metadata {key!r}: {what}"
    else:
        values = table[name].to_pylist()
        at = chosen.randrange(len(values)) if values else None
        others: tuple[Any, ...] = (None, -1, 2**62, 1e300, float("nan"), "x", "", [7], [])
        if at is not None:
            values[at] = chosen.choice(others)
        try:
            column = pa.array(values, table[name].type)
        except (pa.ArrowException, TypeError, OverflowError):
            # A NaN among texts would be the word, which a command may well print.
            column = pa.array(["x" if value != value else str(value) for value in values])
        table, done = table.set_column(place, name, column), f"cell {name}[{at}]"
    if is_parquet:
        parquet.write_table(table, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return done


def _other_text(text: bytes, chosen: random.Random) -> tuple[bytes, str]:
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict | list) or chosen.random() < 0.2:
        other = chosen.choice(TEXTS)
        return other.encode(), other[:60]
    done = _one_value(content, chosen)
    return json.dumps(content).encode(), done


def _cell_of_database(path: Path, chosen: random.Random) -> str:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        (table,) = chosen.choice(names)
        columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
        column = chosen.choice(columns)
        value = chosen.choice((None, -1, 1.5, "x", "", "{}", "null", b"\xff", 1e300, "[[[[1]]]]"))
        try:
            connection.execute(
                f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = '
                f'(SELECT min(rowid) FROM "{table}")',
                (value,),
            )
        except sqlite3.Error:  # a constraint that no pragma lifts
            connection.execute(f"PRAGMA user_version = {chosen.randrange(1 << 30)}")
            return "another version"
        return f"{table}.{column} = {value!r}"
