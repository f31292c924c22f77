"""Graphs as files: Arrow, one row for every node, read by any Arrow library (docs/graph.md).

id, flops, bytes_read, bytes_written    int64
op, arguments, name, phase, resource    dictionary of strings
group                                   dictionary of strings: ranks as JSON, "" for none
duration                                double, seconds; NaN where it is not known
dependencies                            list of int64: ids
allocates, released_by                  list of int64: bytes, and ids of the last users or -1

What is said of the graph as a whole stands in the schema's metadata, as JSON texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.arrays import Codes, Floats, Ints, distinct_rows
from paracosm.columns import label_column, number_column, numbers_in
from paracosm.data_files import parse_json
from paracosm.errors import InputError, unknown
from paracosm.files import check_seal, read_bytes, sealing
from paracosm.graphs.build import Columns, Lists, assemble
from paracosm.graphs.flops import counted_in_half
from paracosm.graphs.graph import PHASES, RESOURCES, Graph, Op
from paracosm.tables import check_columns
from paracosm.units import parse_whole

if TYPE_CHECKING:
    import pyarrow as pa

_MAGIC = b"ARROW1"


def save_graph(graph: Graph, path: str | Path) -> None:
    """Write `graph` as an Arrow file, replacing an existing one atomically.

    Raises:
        InputError: the file cannot be written.
    """
    import pyarrow as pa

    table = table_of(graph)
    compression = "zstd" if pa.Codec.is_available("zstd") else None
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with (
        sealing(path) as unfinished,
        pa.OSFile(str(unfinished), "wb") as sink,
        pa.ipc.new_file(sink, table.schema, options=options) as writer,
    ):
        writer.write_table(table)


def load_graph(path: str | Path) -> Graph:
    """Read a graph: its rows may be in any order, among other columns.

    A saved graph is read back to the bit, with distinct ops, names and groups numbered in the order
    in which its nodes have them, as `build_graph` numbers them.

    Raises:
        InputError: not a graph, not the whole of it, a newer one, or one that is not sound.
    """
    return assemble(columns_of(_read(Path(path)), str(path)), str(path))


def _read(path: Path) -> pa.Table:
    import pyarrow as pa

    try:
        if read_bytes(path, len(_MAGIC)) != _MAGIC:
            raise InputError(f"{path}: not a graph file: paracosm graph capture writes one")
        check_seal(path)
        with pa.OSFile(str(path), "rb") as source, pa.ipc.open_file(source) as reader:
            table = reader.read_all()
            table.validate(full=True)
        check_columns(table.column_names, path)
    # pyarrow reads names of columns only when they are asked for.
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise InputError(
            f"{path}: the file is cut off or damaged: copy or capture it again"
        ) from None
    return table


VERSION = 1
"""Of the format; raised when a reader of the old one would misread the new one."""

Texts = tuple[tuple[str, ...], Codes]

_VERSION = "paracosm_graph"
_INTEGERS = ("id", "flops", "bytes_read", "bytes_written")
_TEXTS = ("op", "arguments", "name", "phase", "resource", "group")
_LISTS = ("dependencies", "allocates", "released_by")


def table_of(graph: Graph) -> pa.Table:
    import pyarrow as pa

    allocates, released_by, before = allocations(graph)
    arguments = tuple(dict.fromkeys(op.arguments for op in graph.ops))
    names = tuple(dict.fromkeys(op.name for op in graph.ops))
    groups = ("", *(json.dumps(group, separators=(",", ":")) for group in graph.groups))
    columns = {
        "id": number_column(graph.id),
        "op": _dictionary([op.name for op in graph.ops], names, graph.op),
        "arguments": _dictionary([op.arguments for op in graph.ops], arguments, graph.op),
        "flops": number_column(graph.flops),
        "bytes_read": number_column(graph.bytes_read),
        "bytes_written": number_column(graph.bytes_written),
        "name": _dictionary(graph.names, graph.names, graph.name),
        "phase": _dictionary(PHASES, PHASES, graph.phase),
        "resource": _dictionary(RESOURCES, RESOURCES, graph.resource),
        "group": _dictionary(groups, groups, graph.group + 1),
        "duration": number_column(graph.duration),
        "dependencies": _list(Lists(graph.offsets, graph.id[graph.dependencies])),
        "allocates": _list(allocates),
        "released_by": _list(released_by),
    }
    metadata = encode_metadata(graph.resident, before, graph.provenance)
    return pa.table(columns, metadata={_VERSION: str(VERSION), **metadata})


def columns_of(table: pa.Table, where: str) -> Columns:
    metadata = _metadata(table, where)
    for name in (*_INTEGERS, *_TEXTS, *_LISTS, "duration"):
        if name not in table.column_names:
            raise InputError(f'{where}: the column "{name}" is missing')
    integers = {name: _integers(table, name, where) for name in _INTEGERS}
    texts = {name: _texts(table, name, where) for name in _TEXTS}
    lists = {name: _lists(table, name, where) for name in _LISTS}
    ops, op = _ops(texts, integers)
    groups, group = _groups(texts["group"], where)
    return Columns(
        ops=ops,
        names=texts["name"][0],
        groups=groups,
        id=integers["id"],
        op=op,
        name=texts["name"][1],
        phase=_among(texts["phase"], PHASES, "phase", where),
        resource=_among(texts["resource"], RESOURCES, "resource", where),
        group=group,
        duration=_durations(table, where),
        dependencies=lists["dependencies"],
        allocates=lists["allocates"],
        released_by=lists["released_by"],
        before=metadata.before,
        resident=metadata.resident,
        provenance=metadata.provenance,
    )


def allocations(graph: Graph) -> tuple[Lists, Lists, list[tuple[int, int]]]:
    """Return bytes and ids of the last users (or -1) by node, and of storages from before."""
    storages = graph.storages
    users = np.append(graph.id, -1)[storages.last]
    order = np.argsort(storages.first, kind="stable")
    order, there = order[storages.first[order] >= 0], storages.first < 0
    counts = np.bincount(storages.first[order], minlength=len(graph))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    before = list(zip(storages.size[there].tolist(), users[there].tolist(), strict=True))
    return Lists(offsets, storages.size[order]), Lists(offsets, users[order]), before


def _dictionary(entries: Sequence[str], distinct: Sequence[str], codes: Codes) -> pa.Array:
    number = {text: code for code, text in enumerate(distinct)}
    fresh = np.array([number[text] for text in entries], dtype=np.int32)
    return label_column(fresh[codes], distinct)


def _list(lists: Lists) -> pa.Array:
    import pyarrow as pa

    return pa.LargeListArray.from_arrays(number_column(lists.offsets), number_column(lists.values))


def _metadata(table: pa.Table, where: str) -> Metadata:
    metadata = table.schema.metadata or {}
    texts = {key.decode(errors="replace"): text for key, text in metadata.items()}
    if _VERSION not in texts:
        raise InputError(f"{where}: an Arrow file, but not of a graph")
    version = texts[_VERSION].decode(errors="replace")
    if parse_whole(version, VERSION) is None:
        raise InputError(
            f"{where}: a graph of format {version:.20}; this version reads up to {VERSION}: "
            "upgrade paracosm, or capture the graph again"
        )
    return decode_metadata(texts, where)


def _integers(table: pa.Table, name: str, where: str) -> Ints:
    import pyarrow as pa

    column = _cast(table, name, pa.int64(), where)
    if column.null_count:
        raise InputError(f'{where}: the column "{name}" has empty fields')
    return np.asarray(numbers_in(column), dtype=np.int64)


def _durations(table: pa.Table, where: str) -> Floats:
    import pyarrow as pa

    column = _cast(table, "duration", pa.float64(), where)
    return np.asarray(numbers_in(column, empty=math.nan), dtype=np.float64)


def _texts(table: pa.Table, name: str, where: str) -> Texts:
    import pyarrow as pa

    column = _cast(table, name, pa.dictionary(pa.int32(), pa.string()), where)
    entries = ["" if text is None else text for text in column.dictionary.to_pylist()]
    codes = numbers_in(column.indices, empty=len(entries))
    return (*entries, ""), codes.astype(np.int32)


def _lists(table: pa.Table, name: str, where: str) -> Lists:
    import pyarrow as pa

    column = _cast(table, name, pa.large_list(pa.int64()), where)
    counts = numbers_in(column.value_lengths(), empty=0)
    values = column.flatten()
    if values.null_count:
        raise InputError(f'{where}: the column "{name}" has lists with empty fields')
    return Lists(np.concatenate(([0], np.cumsum(counts))).astype(np.int64), numbers_in(values))


def _cast(table: pa.Table, name: str, kind: pa.DataType, where: str) -> pa.Array:
    import pyarrow as pa

    column = table.column(name)
    try:
        if pa.types.is_dictionary(kind):
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            column = column.cast(kind.value_type).dictionary_encode()
        else:
            column = column.cast(kind)
    except pa.ArrowException:
        raise InputError(
            f'{where}: the column "{name}" has the type {column.type}, not {kind}'
        ) from None
    return column.unify_dictionaries().combine_chunks()


def _among(texts: Texts, choices: Sequence[str], what: str, where: str) -> Codes:
    entries, codes = texts
    number = {choice: code for code, choice in enumerate(choices)}
    met = set(codes.tolist())
    for code, entry in enumerate(entries):
        if code in met and entry not in number:
            raise InputError(f"{where}: {unknown(what, entry, choices)}")
    fresh = np.array([number.get(entry, -1) for entry in entries], dtype=np.int32)
    return fresh[codes]


def _groups(texts: Texts, where: str) -> tuple[tuple[tuple[int, ...], ...], Codes]:
    groups: list[tuple[int, ...]] = []
    fresh = []
    for text in texts[0]:
        try:
            ranks = parse_json(text, where) if text else []
            if not all(isinstance(rank, int) for rank in ranks):
                raise TypeError
        except (ValueError, TypeError):
            raise InputError(
                f"{where}: the group {text[:80]} must be a list of ranks such as [0,1]"
            ) from None
        fresh.append(len(groups) if ranks else -1)
        groups.extend([tuple(ranks)] if ranks else [])
    return tuple(groups), np.array(fresh, dtype=np.int32)[texts[1]]


def _ops(texts: Mapping[str, Texts], integers: Mapping[str, Ints]) -> tuple[list[Op], Codes]:
    names, arguments = texts["op"], texts["arguments"]
    work = [integers[name] for name in ("flops", "bytes_read", "bytes_written")]
    rows = np.stack([names[1], arguments[1], *work], axis=1)
    first, codes = distinct_rows(rows)
    ops = [
        counted_in_half(Op(names[0][name], arguments[0][argument], flops, read, written))
        for name, argument, flops, read, written in rows[first].tolist()
    ]
    return ops, codes.astype(np.int32)


KEYS = ("resident", "before", "provenance")


@dataclass(frozen=True, slots=True)
class Metadata:
    """The last arguments of `build_graph`, which see."""

    resident: dict[str, int]
    before: list[tuple[int, int]]
    provenance: dict[str, Any]


def encode_metadata(
    resident: Mapping[str, int], before: list[tuple[int, int]], provenance: Mapping[str, Any]
) -> dict[str, str]:
    return {
        "resident": json.dumps(dict(resident)),
        "before": json.dumps(before),
        "provenance": json.dumps(dict(provenance)),
    }


def decode_metadata(texts: Mapping[str, str | bytes], where: str) -> Metadata:
    values = {}
    for key in KEYS:
        if key not in texts:
            raise InputError(f'{where}: the metadata "{key}" is missing')
        try:
            values[key] = parse_json(texts[key], where)
        except (TypeError, ValueError):
            raise InputError(f'{where}: the metadata "{key}" is not JSON') from None
    resident, before, provenance = (values[key] for key in KEYS)
    if not isinstance(resident, dict) or not all(map(_is_integer, resident.values())):
        raise InputError(f'{where}: the metadata "resident" must be a mapping of names to bytes')
    if not isinstance(before, list) or not all(map(_is_pair, before)):
        raise InputError(f'{where}: the metadata "before" must be a list of pairs of bytes and ids')
    if not isinstance(provenance, dict):
        raise InputError(f'{where}: the metadata "provenance" must be a mapping')
    return Metadata(resident, [(size, last) for size, last in before], provenance)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < 2**63


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_integer, value))
