"""Tables in files that others wrote, or that may be damaged: Parquet and CSV, in our own words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from paracosm.errors import InputError
from paracosm.file_kinds import HEAD, kind_by_content
from paracosm.files import check_seal, open_file, read_at_most

if TYPE_CHECKING:
    import pyarrow

_PARQUET = b"PAR1"


def read_parquet(
    path: str | Path,
    what: str,
    way_out: str | None = None,
    schema: pyarrow.Schema | None = None,
    only: tuple[str, str] | None = None,
) -> pyarrow.Table:
    """Return the table in a Parquet file, the seal of which is checked if it has one.

    Args:
        path: the file.
        what: messages call it: "job profile".
        way_out: what to do where it is another file: "paracosm profile job writes one".
        schema: the columns that are wanted (all), and their types.
        only: a column and the text that it has in the rows which are wanted (all).

    Raises:
        InputError: as `open_file`; it is no Parquet file, or a damaged one, or lacks a column, or
            a column has another type.
    """
    import pyarrow
    from pyarrow import parquet

    _check_is_parquet(path, what, way_out)
    try:
        check_seal(path)
        # `read_table` imports pandas where it is installed.
        with parquet.ParquetFile(Path(path).absolute()) as file:
            names = file.schema_arrow.names
            check_columns(names, path)
            _check_has(() if schema is None else schema.names, names, path, what, way_out)
            table = file.read() if only is None else _rows_of(file, *only)
        table.validate(full=True)
    except pyarrow.ArrowNotImplementedError as error:
        raise InputError(f"{path}: a {what} that PyArrow does not read: {error}") from None
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        raise InputError(f"{path}: a damaged {what}: copy it or write it again") from None
    return table if schema is None else columns_of(table, schema, path, what, way_out)


def columns_of(
    table: pyarrow.Table,
    schema: pyarrow.Schema,
    path: str | Path,
    what: str,
    way_out: str | None = None,
) -> pyarrow.Table:
    """Return the columns of a schema, of its types, with the table's own metadata.

    Raises:
        InputError: a column is missing, or holds what its type does not, such as an empty field
            where there are none.
    """
    import pyarrow

    _check_has(schema.names, table.column_names, path, what, way_out)
    columns = []
    for field in schema:
        column = table[field.name]
        try:
            columns.append(column.cast(field.type))
        except (pyarrow.ArrowException, UnicodeDecodeError):
            reason = f'"{field.name}" has values that are no {field.type}'
            raise InputError(f"{path}: a damaged {what}: {reason}") from None
        if column.null_count and not field.nullable:
            raise InputError(f'{path}: a damaged {what}: "{field.name}" has empty fields')
    return pyarrow.table(columns, schema=schema.with_metadata(table.schema.metadata))


def other_file(path: str | Path, kind: str, what: str, way_out: str | None) -> InputError:
    """Return the error for a file of another kind than the one that is asked for."""
    ends = "" if way_out is None else f": {way_out}"
    return InputError(f"{path}: {kind}, and no {what}{ends}")


def read_csv(path: str | Path, what: str, are_texts: tuple[str, ...] = ()) -> pyarrow.Table:
    """Return the table in a CSV file whose first line has the names of columns.

    Args:
        path: the file.
        what: messages call it: "table of client ids".
        are_texts: columns that stay texts, whatever they look like.

    Raises:
        InputError: as `open_file`; it is empty, no text, or a line has other fields than the first.
    """
    import pyarrow
    from pyarrow import csv

    wrong: list[csv.InvalidRow] = []

    def note(row: csv.InvalidRow) -> str:
        wrong.append(row)
        return "skip"

    texts = dict.fromkeys(are_texts, pyarrow.string())
    with open_file(path, what) as file:
        head = read_at_most(file, HEAD)
        if not head.strip():
            raise other_file(path, "an empty file", what, None)
        if kind := kind_by_content(head):
            raise other_file(path, kind[0], what, kind[1])
        file.seek(0)
        try:
            table = csv.read_csv(
                file,
                # Numbers of lines are known to one thread.
                csv.ReadOptions(use_threads=False),
                csv.ParseOptions(invalid_row_handler=note),
                csv.ConvertOptions(column_types=texts),
            )
            names = table.column_names
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError):
            raise other_file(path, "no text in UTF-8", what, None) from None
    if wrong:
        row = wrong[0]
        raise InputError(
            f"{path}: line {row.number}: {row.actual_columns} values, where the first line names "
            f"{row.expected_columns} columns"
        )
    check_columns(names, path)
    return table


def check_columns(names: Sequence[str], path: str | Path) -> None:
    """Refuse a table of which two columns have one name: neither can be read by it."""
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f'{path}: two columns have the name "{twice}"')


def _check_has(
    wanted: Sequence[str], names: Sequence[str], path: str | Path, what: str, way_out: str | None
) -> None:
    for name in wanted:
        if name not in names:
            kind = f'a table without a column "{name}" (it has {", ".join(names) or "none"})'
            raise other_file(path, kind, what, way_out)


def _check_is_parquet(path: str | Path, what: str, way_out: str | None) -> None:
    with open_file(path) as file:
        head = read_at_most(file, HEAD)
        file.seek(max(0, file.seek(0, os.SEEK_END) - len(_PARQUET)))
        ends = file.read()
    if not head:
        raise other_file(path, "an empty file", what, way_out)
    if not head.startswith(_PARQUET):
        kind, unwrapped = kind_by_content(head) or ("no Parquet file", None)
        raise other_file(path, kind, what, unwrapped or way_out)
    if ends != _PARQUET or len(head) <= len(_PARQUET):
        raise InputError(f"{path}: the {what} is cut off: copy it or write it again")


def _rows_of(file: Any, name: str, text: str) -> pyarrow.Table:
    """Return the rows with a text in a column, with those of one row group at a time in memory."""
    import pyarrow

    from paracosm.columns import rows_with  # which loads NumPy

    groups = [
        rows_with(file.read_row_group(number), name, text) for number in range(file.num_row_groups)
    ]
    return pyarrow.concat_tables(groups) if groups else cast("pyarrow.Table", file.read())
