"""The metrics of a run on disk: an Arrow stream while it runs, a Parquet file once it is finished.

Parquet keeps its index at the end of the file, so a truncated file cannot be read at all. An Arrow
stream is a sequence of self-contained batches: whenever the run is killed, the batches before
remain readable. It is several times larger than Parquet, hence the Parquet file at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.columns import number_column, numbers_in, numpy_type, text_column
from paracosm.errors import InputError
from paracosm.files import create_file, open_file
from paracosm.tables import read_parquet

if TYPE_CHECKING:
    import pyarrow as pa

FLUSH_ROWS = 4096
FLUSH_SECONDS = 1.0
ROW_GROUP = 2**20  # rows of one Parquet row group; bounds the memory that finishing takes


def schema() -> pa.Schema:
    """Return the columns of the long table, node and name as dictionaries."""
    import pyarrow as pa

    words = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            ("virtual_time", pa.float64()),
            ("wall_time", pa.float64()),
            ("node", words),
            ("name", words),
            ("value", pa.float64()),
            ("step", pa.int64()),
        ]
    )


def _stream_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            (field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type)
            for field in schema()
        ]
    )


class MetricsWriter:
    """Appends rows to an Arrow stream: every 4096 rows, or a second after the last batch."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._schema = _stream_schema()
        create_file(path)
        # An OSFile passes each write to the kernel at once: nothing is buffered in this process.
        self._file = pa.OSFile(str(path), "wb")
        self._stream = pa.ipc.new_stream(self._file, self._schema)
        self._rows: list[tuple[float, float, str, str, float, int]] = []
        self._written = False
        self._flush_at = monotonic() + FLUSH_SECONDS

    def append(
        self, virtual_time: float, wall_time: float, node: str, name: str, value: float, step: int
    ) -> None:
        """Add one row. Cheap: called for every update."""
        rows = self._rows
        rows.append((virtual_time, wall_time, node, name, value, step))
        if len(rows) >= FLUSH_ROWS or monotonic() >= self._flush_at:
            self.flush()

    @property
    def is_empty(self) -> bool:
        """Whether no row was ever added."""
        return not self._rows and not self._written

    def flush(self) -> None:
        """Write the rows so far as one batch."""
        import pyarrow as pa

        if self._rows:
            self._written = True
            columns = zip(self._schema, zip(*self._rows, strict=True), strict=True)
            self._stream.write_batch(
                pa.record_batch([_array(field, cells) for field, cells in columns], self._schema)
            )
            self._rows.clear()
        self._flush_at = monotonic() + FLUSH_SECONDS

    def close(self) -> None:
        """Flush and close the file; a second call does nothing."""
        if not self._file.closed:
            self.flush()
            self._stream.close()
            self._file.close()


def read_stream(path: Path) -> pa.Table:
    """Read an Arrow stream up to its last complete batch, even if truncated."""
    import pyarrow as pa

    batches = list(_complete_batches(path))
    return pa.Table.from_batches(batches, schema=_stream_schema()).cast(schema())


def read_metrics(path: Path, name: str | None = None) -> pa.Table:
    """Read a Parquet file of metrics, all of them or those called `name`."""
    only = None if name is None else ("name", name)
    table = read_parquet(path, "file of metrics", schema=schema(), only=only)
    for clock in ("virtual_time", "wall_time"):
        column = table[clock]
        if column.null_count or not np.isfinite(numbers_in(column)).all():
            raise InputError(f'{path}: damaged metrics: a "{clock}" is no time')
    for column in table.column_names:
        if table[column].null_count:
            raise InputError(f'{path}: damaged metrics: "{column}" has empty fields')
    return table


def stream_to_parquet(stream: Path, parquet: Path) -> None:
    """Copy a stream to a Parquet file, rows in the same order, a million rows at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetWriter(parquet, schema(), compression="zstd") as writer:
        group: list[pa.RecordBatch] = []
        for batch in _complete_batches(stream):
            group.append(batch)
            if sum(part.num_rows for part in group) >= ROW_GROUP:
                writer.write_table(pa.Table.from_batches(group).cast(schema()))
                group.clear()
        if group:
            writer.write_table(pa.Table.from_batches(group).cast(schema()))


def _complete_batches(path: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    with open_file(path), pa.OSFile(str(path), "rb") as file:  # a pipe need not ever end
        try:
            with pa.ipc.open_stream(file) as reader:
                yield from reader
        except (pa.ArrowInvalid, OSError):
            return  # truncated here, in the schema or in a batch


def _array(field: pa.Field, cells: tuple[Any, ...]) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_string(field.type):
        return text_column(cells)
    # Through NumPy, since values may be scalars of NumPy or PyTorch, mixed.
    return number_column(np.array(cells, dtype=numpy_type(field.type)))
