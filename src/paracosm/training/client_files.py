"""Tables of clients: CSV or Parquet files with a row for each, or for each interval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paracosm.errors import InputError
from paracosm.factory import one_line

SUFFIXES = (".csv", ".parquet")


def is_table(text: str) -> bool:
    """Whether a text is the name of a table of clients, and no distribution."""
    return text.strip().lower().endswith(SUFFIXES)


def read_columns(path: Path, names: Sequence[str], clients: int) -> dict[str, list[Any]]:
    """Return the column "client" of a table and those called `names`.

    Cells of a CSV file stay texts.

    Raises:
        InputError: there is no such file, or it cannot be read; a column is missing; a client is
            not a number from 0 to `clients` - 1; a cell is empty.
    """
    import pyarrow
    from pyarrow import csv, parquet

    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        if path.suffix.lower() == ".csv":
            text = dict.fromkeys(("client", *names), pyarrow.string())
            options = csv.ConvertOptions(column_types=text, strings_can_be_null=True)
            table = csv.read_csv(path, convert_options=options)
        else:
            table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read as a table: {one_line(error)}") from None
    for name in ("client", *names):
        if name not in table.column_names:
            raise InputError(
                f"{path}: the column {name} is missing: it has {', '.join(table.column_names)}"
            )
    found = {name: table[name].to_pylist() for name in ("client", *names)}
    found["client"] = [_client(path, value, clients) for value in found["client"]]
    for name in names:
        for client, value in zip(found["client"], found[name], strict=True):
            if value is None or value == "":
                raise InputError(f"{path}: client {client} has no {name}")
    return found


def _client(path: Path, value: Any, clients: int) -> int:
    try:
        client = int(value)
    except (TypeError, ValueError):
        raise InputError(f'{path}: "{value}" is no client\'s number') from None
    if not 0 <= client < clients:
        raise InputError(
            f"{path}: there is no client {client}: the {clients} clients have the numbers 0 to "
            f"{clients - 1}"
        )
    return client
