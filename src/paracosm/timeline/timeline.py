"""Who did what, when: spans and counters by (node, resource), in virtual time, kept in columns.

The Parquet file of a timeline has a row per span, then a row per counter value. Columns: node,
resource, name (strings), begin, end (float64, seconds), flow (int64, -1 for none), value (float64).
A counter has a `value`, and neither `resource` nor `end`; its time is `begin`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from paracosm.arrays import Bools, Codes, Floats, Ints
from paracosm.columns import label_column, number_column, numbers_in, text_column
from paracosm.errors import InputError
from paracosm.files import sealing
from paracosm.tables import read_parquet

if TYPE_CHECKING:
    import pyarrow

_COLUMNS = ("node", "resource", "name", "begin", "end", "flow", "value")
_ROWS = 1 << 17  # in one row group of a file
_LATEST = 1e18  # seconds; a time beyond is damage


class Span(NamedTuple):
    """A resource of a node is busy with something from `begin` to `end`, in seconds."""

    node: str
    resource: str
    name: str
    begin: float
    end: float
    flow: int = -1


class Counter(NamedTuple):
    """The quantity `name` of a node has a value from `time` on."""

    node: str
    name: str
    time: float
    value: float


@dataclass(frozen=True, eq=False)
class Labels:
    """A column of n strings: `codes`, shape (n,), are places in `words`."""

    codes: NDArray[np.integer[Any]]
    words: Sequence[str]

    def __getitem__(self, rows: Any) -> Labels:
        return Labels(self.codes[rows], self.words)

    def tolist(self) -> list[str]:
        """Return the n strings."""
        words = self.words
        return [words[code] for code in self.codes.tolist()]

    def distinct(self) -> list[str]:
        """Return the words that occur, in the order of first appearance."""
        codes, first = np.unique(self.codes, return_index=True)
        return [self.words[code] for code in codes[np.argsort(first)].tolist()]

    def isin(self, *words: str) -> Bools:
        """Return which of the n strings are one of `words`."""
        wanted = set(words)
        return np.isin(self.codes, [code for code, word in enumerate(self.words) if word in wanted])


class _Columns:
    """The fields of a dataclass as columns of one length: indexing takes rows of all of them."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())).codes)

    def __getitem__(self, rows: Any) -> Self:
        return type(self)(*(var[rows] for var in vars(self).values()))

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        return zip(*(var.tolist() for var in vars(self).values()), strict=True)


@dataclass(frozen=True, eq=False)
class Spans(_Columns):
    """Columns of n spans; iterating yields a `Span` for each, indexing takes rows of all columns.

    Attributes:
        node, resource, name: labels.
        begin, end: n seconds.
        flow: n numbers; the two ends of a message share one; -1 for none.
    """

    node: Labels
    resource: Labels
    name: Labels
    begin: Floats
    end: Floats
    flow: Ints

    def __iter__(self) -> Iterator[Span]:
        return map(Span._make, self._rows())


@dataclass(frozen=True, eq=False)
class Counters(_Columns):
    """Columns of n values of counters, as `Spans` are of spans; `time` in seconds."""

    node: Labels
    name: Labels
    time: Floats
    value: Floats

    def __iter__(self) -> Iterator[Counter]:
        return map(Counter._make, self._rows())


class Timeline:
    """An append-only record of spans and counters; times in seconds of virtual time.

    In a span a `resource` ("compute", "send", "receive", "wait") of a node was busy with something.
    The two spans of one message, on the sender's "send" and the receiver's "receive", share a
    `flow` of 0 or more; -1 means none.

    Recording costs as much as appending to a list: rows become columns only when these are read.
    """

    def __init__(self) -> None:
        self._spans = _Rows(3, (np.float64, np.float64, np.int64))
        self._counters = _Rows(2, (np.float64, np.float64))

    @property
    def spans(self) -> Spans:
        """All spans, in the order of recording."""
        return Spans(*self._spans.columns())

    @property
    def counters(self) -> Counters:
        """All values of counters, in the order of recording."""
        return Counters(*self._counters.columns())

    @property
    def append(self) -> Callable[[tuple[str, str, str, float, float, int]], None]:
        """Records the fields of a `Span`. Code that records millions binds it once."""
        return self._spans.pending.append

    def span(
        self, node: str, resource: str, name: str, begin: float, end: float, flow: int = -1
    ) -> None:
        """Record that `resource` of `node` was busy with `name` from `begin` to `end`."""
        self._spans.pending.append((node, resource, name, begin, end, flow))

    def counter(self, node: str, name: str, time: float, value: float) -> None:
        """Record that the quantity `name` of `node` has the `value` from `time` on."""
        self._counters.pending.append((node, name, time, value))

    def extend(
        self,
        node: str | Labels,
        resource: str | Labels,
        name: str | Labels,
        begin: Floats,
        end: Floats,
        flow: int | Ints = -1,
        where: Bools | None = None,
    ) -> None:
        """Record many spans at once, from arrays of shapes that broadcast to that of `begin`.

        Those of two dimensions are taken row by row: k spans for each of n tasks. Values common to
        all of them may be a string or a number. With `where`, only spans for which it holds.
        """
        self._spans.extend((node, resource, name), (begin, end, flow), where)

    def extend_counters(
        self, node: str | Labels, name: str | Labels, time: Floats, value: NDArray[Any]
    ) -> None:
        """Record many values of counters at once, from arrays."""
        self._counters.extend((node, name), (time, value))

    def table(self) -> pyarrow.Table:
        """Return everything as an Arrow table with the columns of the file."""
        import pyarrow as pa

        return pa.concat_tables(self._tables()).unify_dictionaries()

    def to_pandas(self) -> Any:
        """Return everything as a pandas data frame with the columns of the file."""
        return self.table().to_pandas()

    def save(self, path: str | Path) -> None:
        """Write everything to a Parquet file at `path`."""
        from pyarrow import parquet

        spans, counters = self._tables()
        with (
            sealing(path) as file,
            parquet.ParquetWriter(file, spans.schema, compression="zstd") as writer,
        ):
            writer.write_table(spans, _ROWS)
            writer.write_table(counters, _ROWS)

    @classmethod
    def load(cls, path: str | Path) -> Timeline:
        """Return the timeline that `save` wrote, equal to the bit.

        Raises:
            InputError: there is no such file, or it is not a timeline; a missing column is named;
                a time is not finite, or beyond 10^18 seconds.
        """
        timeline = cls()
        table = read_parquet(path, "timeline", schema=_schema())
        for name in ("begin", "flow"):
            if table[name].null_count:
                raise InputError(f'{path}: a damaged timeline: a row has no "{name}"')
        for batch in table.to_batches(_ROWS):
            timeline._add(batch)
        times = timeline.spans.begin, timeline.spans.end, timeline.counters.time
        if not all((np.abs(column) < _LATEST).all() for column in times):  # which a NaN fails
            raise InputError(f"{path}: a damaged timeline: a time is no number of seconds")
        return timeline

    def _add(self, batch: pyarrow.RecordBatch) -> None:
        is_span = numbers_in(batch.column("resource").is_valid())
        node, resource, name = (_labels(batch.column(column)) for column in _COLUMNS[:3])
        begin, end, flow, value = (
            numbers_in(batch.column(column), empty=math.nan) for column in _COLUMNS[3:]
        )
        labels = node[is_span], resource[is_span], name[is_span]
        self.extend(*labels, begin[is_span], end[is_span], flow[is_span])
        self.extend_counters(node[~is_span], name[~is_span], begin[~is_span], value[~is_span])

    def _tables(self) -> tuple[pyarrow.Table, pyarrow.Table]:
        import pyarrow as pa

        schema = _schema()

        def table(number: int, *columns: Any) -> pyarrow.Table:
            arrays = []
            for kind, column in zip(schema.types, columns, strict=True):
                if isinstance(column, Labels):
                    arrays.append(label_column(column.codes, column.words))
                else:
                    empty = column is None
                    arrays.append(pa.nulls(number, kind) if empty else number_column(column))
            return pa.table(arrays, schema=schema)

        spans, values = self.spans, self.counters
        no_flow = np.full(len(values), -1)
        return table(len(spans), *vars(spans).values(), None), table(
            *(len(values), values.node, None, values.name, values.time, None, no_flow), values.value
        )


class _Rows:
    """Rows of strings, then numbers of types `numbers`, appended one by one or many at once."""

    def __init__(self, texts: int, numbers: Sequence[type]) -> None:
        self.pending: list[Any] = []
        self._words: list[dict[str, int]] = [{} for _ in range(texts)]
        self._types = [*[np.int32] * texts, *numbers]
        self._parts: list[list[NDArray[Any]]] = []

    def columns(self) -> list[Any]:
        self._take_pending()
        if len(self._parts) != 1:
            # The empty row of columns gives their types where nothing was recorded.
            parts = [[np.empty(0, kind) for kind in self._types], *self._parts]
            self._parts = [[np.concatenate(column) for column in zip(*parts, strict=True)]]
        columns, texts = self._parts[0], len(self._words)
        labels = zip(columns[:texts], map(tuple, self._words), strict=True)
        return [*(Labels(codes, words) for codes, words in labels), *columns[texts:]]

    def extend(
        self, labels: Sequence[str | Labels], numbers: Sequence[Any], where: Any = None
    ) -> None:
        self._take_pending()
        shape = np.shape(numbers[0])
        chosen = np.ones(shape, dtype=bool) if where is None else where

        def column(values: Any) -> NDArray[Any]:
            return np.broadcast_to(values, shape)[chosen]

        if not chosen.any():
            return
        columns: list[NDArray[Any]] = []
        for words, label in zip(self._words, labels, strict=True):
            if isinstance(label, str):
                columns.append(column(words.setdefault(label, len(words))))
            else:
                columns.append(_recoded(words, column(label.codes), label.words))
        self._add([*columns, *(column(number) for number in numbers)])

    def _take_pending(self) -> None:
        if not self.pending:
            return
        columns: list[Any] = list(zip(*self.pending, strict=True))
        for place, words in enumerate(self._words):
            for word in dict.fromkeys(columns[place]):
                words.setdefault(word, len(words))
            codes = map(words.__getitem__, columns[place])
            columns[place] = np.fromiter(codes, np.int32, len(self.pending))
        self.pending.clear()  # the list itself stays: its `append` may be bound
        self._add(columns)

    def _add(self, columns: Sequence[Any]) -> None:
        self._parts.append(
            [np.array(column, kind) for column, kind in zip(columns, self._types, strict=True)]
        )


def _recoded(known: dict[str, int], codes: NDArray[np.integer[Any]], words: Sequence[str]) -> Codes:
    place = np.zeros(len(words), np.int32)
    for code in np.unique(codes).tolist():
        place[code] = known.setdefault(words[code], len(known))
    return np.take(place, codes)


def _schema() -> pyarrow.Schema:
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    kinds = (text, text, text, pa.float64(), pa.float64(), pa.int64(), pa.float64())
    return pa.schema(zip(_COLUMNS, kinds, strict=True))


def _labels(column: Any) -> Labels:
    import pyarrow as pa

    if column.null_count:
        column = column.cast(pa.string()).fill_null(text_column([""])[0])
    if not isinstance(column, pa.DictionaryArray):
        column = column.dictionary_encode()
    return Labels(numbers_in(column.indices), column.dictionary.to_pylist())
