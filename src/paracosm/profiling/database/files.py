"""A database as one Parquet file, and back; or as CSV for a spreadsheet.

A row is a set of samples. The column `table` is "ops", "links" or "iterations"; columns that the
others use are null. The environment is spelt out in columns of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paracosm.errors import InputError
from paracosm.files import read_bytes, replacing, sealing, unwritable
from paracosm.profiling.database.database import ProfileDatabase
from paracosm.profiling.database.rows import KINDS, TYPES, Added, Timings, rows_of
from paracosm.profiling.environment import Environment
from paracosm.tables import read_parquet

if TYPE_CHECKING:
    import pyarrow

SUFFIX = ".parquet"

_VERSION = 2
_VERSION_KEY = b"paracosm.profiles"

_ENVIRONMENT = {part.name: int if part.name == "threads" else str for part in fields(Environment)}
_OWN = dict.fromkeys(column for kind in KINDS.values() for column in kind.columns)

COLUMNS: Mapping[str, type] = {
    "table": str,
    **{column: TYPES[column] for column in _OWN if column != "environment"},
    **_ENVIRONMENT,
}
"""Of an exported file, with their types."""


def export(
    database: ProfileDatabase, path: str | Path, environments: Collection[Environment] | None = None
) -> Timings:
    """Write a database (or some of its environments) to a Parquet file.

    An existing file is replaced at the end, as a whole.

    Raises:
        InputError: it has another suffix, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() != SUFFIX:
        raise InputError(f'"{path}": give a file that ends with {SUFFIX}')
    timings = database.everything()
    if environments is not None:
        timings = timings.only(environments)
    table = _table(timings)
    with replacing_database(path) as unfinished:
        from pyarrow import parquet

        with sealing(unfinished) as file:
            parquet.write_table(table, file, compression="zstd")
    return timings


def load_export(path: str | Path) -> Timings:
    """Return what `export` wrote to the Parquet file at `path`.

    Unknown columns are ignored, so that files that passed through other programs can be read.

    Raises:
        InputError: there is no such file, or it is no export of a database (with what is wrong).
    """
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in KINDS}
    for number, row in enumerate(_read(Path(path)).to_pylist(), start=1):
        kind = KINDS.get(row["table"])
        if kind is None:
            raise InputError(
                f'"{path}", row {number}: table {row["table"]}, not one of {", ".join(KINDS)}'
            )
        environment = {name: row[name] for name in _ENVIRONMENT}
        needed = {column: row[column] for column in kind.columns if column != "environment"}
        if missing := [name for name, value in (needed | environment).items() if value is None]:
            raise InputError(f'"{path}", row {number}: no {missing[0]}')
        rows[row["table"]].append({**needed, "environment": Environment(**environment).to_json()})
    built = {
        table: tuple(kind.build([row[column] for column in kind.columns]) for row in rows[table])
        for table, kind in KINDS.items()
    }
    try:
        for table, kind in KINDS.items():
            rows_of(kind, built[table])
    except InputError as error:
        raise InputError(f'"{path}": {error}') from None
    return Timings(**built)


def is_parquet(path: Path) -> bool:
    try:
        return read_bytes(path, 4) == b"PAR1"
    except InputError:
        return False


def _table(timings: Timings) -> pyarrow.Table:
    import pyarrow as pa

    rows = [
        {"table": table, **row, **asdict(timing.environment)}
        for table, kind in KINDS.items()
        for timing in getattr(timings, table)
        for row in rows_of(kind, [timing])
    ]
    schema = _schema()
    columns = [
        pa.array([row.get(name) for row in rows], schema.field(name).type) for name in COLUMNS
    ]
    return pa.table(columns, schema=schema)


def _schema() -> pyarrow.Schema:
    import pyarrow as pa

    types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    return pa.schema(
        [(name, types[kind]) for name, kind in COLUMNS.items()],
        metadata={_VERSION_KEY: str(_VERSION)},
    )


def _read(path: Path) -> pyarrow.Table:
    table = read_parquet(
        path, "export of a profile database", "paracosm db export writes one", _schema()
    )
    stored = (table.schema.metadata or {}).get(_VERSION_KEY, str(_VERSION).encode())
    if (version := stored.decode(errors="replace")[:20]) != str(_VERSION):
        raise InputError(
            f'"{path}" is an export of version {version}, and this Paracosm supports {_VERSION}: '
            "export it again with the same version"
        )
    return table


def merge(into: str | Path, others: Sequence[str | Path]) -> dict[Environment, Added]:
    """Add all of `others` to the database `into`, which is created if missing.

    Sets of samples whose key is already there are not added again, and every file is one
    transaction: a merge may be repeated, and continues where it was interrupted. Returns how many
    sets were added, and how many had been there, by environment.

    Raises:
        InputError: one of the files cannot be used (nothing has been merged then), or `into`
            cannot be written, or is among the others.
    """
    into, sources = Path(into), [Path(other) for other in others]
    for source in sources:
        if into.exists() and source.exists() and into.samefile(source):
            raise InputError(f'"{into}" cannot be merged into itself')
    for source in sources:  # all are looked at before anything is written
        _holdings(source)
    counts: dict[Environment, Added] = {}
    with ProfileDatabase.open(into, create=True) as database:
        for source in sources:
            for environment, added in database.add_everything(_holdings(source)).items():
                counts[environment] = counts.get(environment, Added()) + added
    return counts


def _holdings(source: Path) -> Timings:
    if is_parquet(source):
        return load_export(source)
    with ProfileDatabase.open(source, readonly=True) as database:
        return database.check()


@contextlib.contextmanager
def replacing_database(path: Path) -> Iterator[Path]:
    """Yield a path to write to, which replaces `path` atomically at the end.

    After an error or Ctrl-C it is removed, and `path` is unchanged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(f"{path}: cannot be written", error) from None
    with replacing(path) as unfinished:
        try:
            yield unfinished
            # The journal of a database that was here would be rolled back into the new one.
            _journal(path).unlink(missing_ok=True)
        finally:
            _journal(unfinished).unlink(missing_ok=True)


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")
