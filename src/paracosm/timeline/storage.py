"""A timeline as a Parquet file: one row per span, then one row per counter value.

Columns: node, resource, name (strings), begin, end (float64, seconds), flow (int64, -1 for none),
value (float64). A counter has a `value`, and neither `resource` nor `end`; its time is `begin`.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paracosm.errors import InputError
from paracosm.timeline.timeline import Timeline

if TYPE_CHECKING:
    import pyarrow

__all__ = ["load", "save"]

_ROWS = 1 << 17  # in one row group: bounds the memory that the columns need beside the tuples
_COLUMNS = ("node", "resource", "name", "begin", "end", "flow", "value")


def save(timeline: Timeline, path: str | Path) -> None:
    """Write `timeline` to a Parquet file at `path`, row group by row group."""
    from pyarrow import parquet

    with parquet.ParquetWriter(path, _schema(), compression="zstd") as writer:
        spans = iter(timeline.spans)
        while rows := [(*span, None) for span in islice(spans, _ROWS)]:
            writer.write_table(_table(rows))
        counters = iter(timeline.counters)
        while part := list(islice(counters, _ROWS)):
            writer.write_table(
                _table(
                    [(node, None, name, time, None, -1, value) for node, name, time, value in part]
                )
            )


def load(path: str | Path) -> Timeline:
    """Return the timeline in the Parquet file at `path`.

    Raises:
        InputError: there is no such file, or it is not a timeline (the missing column is named).
    """
    import pyarrow
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path)
    except FileNotFoundError:
        raise InputError(f'no timeline at "{path}"') from None
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f'"{path}" is not a Parquet file: {error}') from None
    with file:
        for name in _COLUMNS:
            if name not in file.schema_arrow.names:
                raise InputError(f'"{path}" is not a timeline: it has no column "{name}"')
        timeline = Timeline()
        for batch in file.iter_batches(_ROWS, columns=list(_COLUMNS)):
            node, resource, name, begin, end, flow, value = (
                batch.column(column).to_pylist() for column in _COLUMNS
            )
            for row in zip(node, resource, name, begin, end, flow, value, strict=True):
                if row[1] is None:
                    timeline.counter(row[0], row[2], row[3], row[6])
                else:
                    timeline.spans.append(row[:6])
    return timeline


def _schema() -> pyarrow.Schema:
    import pyarrow as pa

    # Dictionaries make a million repeated names cost a few bytes each.
    text = pa.dictionary(pa.int32(), pa.string())
    kinds = (text, text, text, pa.float64(), pa.float64(), pa.int64(), pa.float64())
    return pa.schema(zip(_COLUMNS, kinds, strict=True))


def _table(rows: list[tuple[Any, ...]]) -> pyarrow.Table:
    import pyarrow as pa

    schema = _schema()
    columns = zip(zip(*rows, strict=True), schema.types, strict=True)
    return pa.table([pa.array(values, kind) for values, kind in columns], schema=schema)
