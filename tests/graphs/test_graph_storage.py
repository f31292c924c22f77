"""Graph files: what is saved is loaded, whatever the order of the rows, or refused in one line."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import assert_same, four_op_graph, graphs

from paracosm.errors import InputError
from paracosm.graphs.build import build_graph
from paracosm.graphs.file import load_graph, save_graph
from paracosm.graphs.graph import Graph
from paracosm.graphs.summary import fingerprint


def read(path: Path) -> pa.Table:
    with pa.ipc.open_file(path) as reader:
        return reader.read_all()


def write(table: pa.Table, path: Path, rows: int | None = None) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as raised:
        load_graph(path)
    message = str(raised.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    saved = tmp_path / "four.graph"
    save_graph(four_op_graph(), saved)
    return saved


def test_a_graph_comes_back_to_the_bit(path: Path) -> None:
    assert_same(load_graph(path), four_op_graph())


def test_a_graph_without_nodes_comes_back(tmp_path: Path) -> None:
    save_graph(build_graph([]), tmp_path / "empty.graph")
    assert_same(load_graph(tmp_path / "empty.graph"), build_graph([]))


@settings(max_examples=40, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_any_graph_comes_back_from_rows_in_any_order(graph: Graph, order: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.graph"
        save_graph(graph, path)
        assert_same(load_graph(path), graph)
        rows = list(range(len(graph)))
        order.shuffle(rows)  # type: ignore[attr-defined]
        write(read(path).take(pa.array(rows, pa.int64())), path)
        assert_same(load_graph(path), graph)
        assert fingerprint(load_graph(path)) == fingerprint(graph)


def test_plainer_types_batches_and_more_columns_are_read(path: Path) -> None:
    table = read(path)
    for name in ("op", "arguments", "name", "phase", "resource", "group"):
        at = table.column_names.index(name)
        table = table.set_column(at, name, table[name].cast(pa.large_string()))
    for name in ("dependencies", "allocates"):
        at = table.column_names.index(name)
        table = table.set_column(at, name, table[name].cast(pa.list_(pa.int32())))
    table = table.append_column("colour", pa.array(["red"] * 4)).select(
        [*reversed(table.column_names), "colour"]
    )
    write(table, path, rows=3)
    assert_same(load_graph(path), four_op_graph())


def test_empty_fields_are_what_is_not_known(path: Path) -> None:
    table = read(path)
    durations = pa.array([None, 1 / 3, None, 0.5])
    groups = pa.array([None, None, None, "[0,2]"])
    at = table.column_names.index("duration")
    table = table.set_column(at, "duration", durations)
    table = table.set_column(table.column_names.index("group"), "group", groups)
    write(table, path)
    assert_same(load_graph(path), four_op_graph())


def test_nothing_is_left_beside_the_file(path: Path) -> None:
    save_graph(four_op_graph(), path)
    assert list(path.parent.iterdir()) == [path]


def test_a_graph_that_cannot_be_written_leaves_what_was_there(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="No space left on device"):
        save_graph(four_op_graph(), path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none") == "no such file"
    assert refusal(tmp_path) == "cannot be read: Is a directory"
    (tmp_path / "text").write_text("id,op\n1,add\n")
    assert refusal(tmp_path / "text").startswith("not a graph file")
    (tmp_path / "nothing").touch()
    assert refusal(tmp_path / "nothing").startswith("not a graph file")
    write(pa.table({"id": [1]}), tmp_path / "other.arrow")
    assert refusal(tmp_path / "other.arrow") == "an Arrow file, but not of a graph"


def test_a_file_that_is_cut_off_anywhere_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for length in range(6, len(whole), max(1, len(whole) // 97)):
        path.write_bytes(whole[:length])
        assert "cut off or damaged" in refusal(path)


@pytest.mark.parametrize("column", ["id", "op", "duration", "allocates"])
def test_a_column_that_is_missing_or_there_twice_is_named(path: Path, column: str) -> None:
    table = read(path)
    write(table.drop_columns([column]), path)
    assert refusal(path) == f'the column "{column}" is missing'
    write(table.append_column(column, table[column]), path)
    assert refusal(path) == f'two columns have the name "{column}"'


def with_metadata(key: str, value: str | None) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        metadata = dict(table.schema.metadata)
        metadata.pop(key.encode())
        return table.replace_schema_metadata(metadata | ({key: value} if value else {}))

    return change


def with_column(name: str, values: pa.Array) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index(name), name, values)

    return change


DAMAGED: dict[str, Callable[[pa.Table], pa.Table]] = {
    "a graph of format 2; this version reads up to 1: upgrade": with_metadata(
        "paracosm_graph", "2"
    ),
    "a graph of format 99999999999999999999; this version": with_metadata(
        "paracosm_graph", "9" * 5000
    ),
    'the metadata "resident" is missing': with_metadata("resident", None),
    'the metadata "provenance" is not JSON': with_metadata("provenance", "{"),
    'the metadata "before" must be a list of pairs': with_metadata("before", "3"),
    'the metadata "resident" must be a mapping': with_metadata("resident", "[1]"),
    'unknown phase "sideways"': with_column("phase", pa.array(["forward"] * 3 + ["sideways"])),
    'the column "flops" has the type string, not int64': with_column("flops", pa.array(["x"] * 4)),
    'the column "id" has empty fields': with_column("id", pa.array([1, None, 2, 3])),
    'the column "dependencies" has lists with empty fields': with_column(
        "dependencies", pa.array([[], [None], [], []], pa.list_(pa.int64()))
    ),
    "the group [0,x] must be a list of ranks": with_column("group", pa.array(["[0,x]"] * 4)),
    "node 4 (aten.mm.default, fc) depends on node 99, which does not exist": with_column(
        "dependencies", pa.array([[], [99], [], []], pa.list_(pa.int64()))
    ),
    "node 4 (aten.mm.default, fc) allocates 0 storages, and 1 nodes": with_column(
        "allocates", pa.array([[]] * 4, pa.list_(pa.int64()))
    ),
    "node 3 (aten.t.default, fc) and node 3 (aten.mm.default, fc) have the same id": with_column(
        "id", pa.array([3, 3, 7, 8])
    ),
}


@pytest.mark.parametrize("message", DAMAGED)
def test_what_is_wrong_in_a_file_is_named(path: Path, message: str) -> None:
    write(DAMAGED[message](read(path)), path)
    assert message in refusal(path)


def test_a_file_damaged_in_any_byte_is_refused_or_read(path: Path) -> None:
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[random.integers(6, len(whole))] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        try:
            load_graph(path)
        except InputError:
            refused += 1
    assert refused > 30
