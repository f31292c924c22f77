"""Columns of Arrow tables from and to NumPy, without pandas.

Arrow's own conversions, `pyarrow.array` and `to_numpy`, import pandas where it is installed, to see
whether something is of pandas; that takes longer than a short run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa


def number_column(values: NDArray[Any]) -> pa.Array:
    """Return numbers, shape (n,), as a column of their type; truth values as well."""
    import pyarrow as pa

    kind = pa.from_numpy_dtype(values.dtype)
    held = np.packbits(values, bitorder="little") if values.dtype.kind == "b" else values
    return pa.Array.from_buffers(
        kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(held))]
    )


def text_column(texts: Sequence[str]) -> pa.Array:
    """Return texts as a column of strings.

    Raises:
        ValueError: a text is not valid Unicode, or all of them have 2 GiB or more.
    """
    import pyarrow as pa

    parts = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, parts)])
    if ends[-1] > np.iinfo(np.int32).max:
        raise ValueError(f"{ends[-1]:,} bytes of texts are more than a column holds")
    buffers = [pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(parts))]
    return pa.StringArray.from_buffers(len(parts), *buffers)


def label_column(codes: NDArray[np.integer[Any]], words: Sequence[str]) -> pa.Array:
    """Return places in `words`, shape (n,), as a column of strings that each occur once."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(number_column(codes), text_column(words))


@cache
def numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    """Return NumPy's type of Arrow's numbers or truth values.

    So does Arrow's `to_pandas_dtype`, which in older versions (21 among them) needs pandas.

    Raises:
        ArrowInvalid: it is a type of something else.
    """
    import pyarrow as pa

    for name in _NUMBERS:
        if kind == pa.from_numpy_dtype(name):
            return np.dtype(name)
    raise pa.ArrowInvalid(f"a column of {kind}, not of numbers")


_NUMBERS = [
    *("float64", "float32", "float16", "bool", "int64", "int32", "int16", "int8"),
    *("uint64", "uint32", "uint16", "uint8"),
]


def numbers_in(column: pa.Array | pa.ChunkedArray, empty: float | None = None) -> NDArray[Any]:
    """Return a column of numbers as an array, shape (n,), of their type; of one chunk a view.

    Args:
        column: the numbers.
        empty: stands for a field that is empty.

    Raises:
        ValueError: a field is empty, and nothing stands for it; or it is no column of numbers.
    """
    import pyarrow as pa

    if column.null_count and empty is not None:
        kind = numpy_type(column.type)
        column = column.fill_null(number_column(np.array([empty], kind))[0])
    if column.null_count:
        raise ValueError(f"{column.null_count} fields of a column are empty")
    if isinstance(column, pa.Array):
        return _numbers(column)
    none = np.empty(0, numpy_type(column.type))
    return np.concatenate([none, *map(_numbers, column.chunks)])


def _numbers(chunk: pa.Array) -> NDArray[Any]:
    dtype, buffer = numpy_type(chunk.type), chunk.buffers()[1]
    if not len(chunk):
        return np.empty(0, dtype)
    if dtype.kind == "b":
        bits = np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")
        return bits[chunk.offset : chunk.offset + len(chunk)].astype(bool)
    return np.frombuffer(buffer, dtype, len(chunk), chunk.offset * dtype.itemsize)


def texts_in(column: pa.ChunkedArray) -> NDArray[np.object_]:
    """Return a column of strings without empty fields as an array, shape (n,), of texts."""
    parts = [np.empty(0, object)]
    for chunk in column.dictionary_encode().chunks:
        words = np.array(chunk.dictionary.to_pylist(), object)
        parts.append(words[numbers_in(chunk.indices)])
    return np.concatenate(parts)


def rows_with(table: pa.Table, name: str, text: str) -> pa.Table:
    """Return the rows of a table in which the column called `name` is a text."""
    import pyarrow.compute as pc

    return table.filter(pc.equal(table[name], text_column([text])[0]))
