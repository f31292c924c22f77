"""Chakra traces: a graph that goes out and in is the same, and real traces of others are read."""

from __future__ import annotations

import gzip
import io
import json
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from random_graphs import assert_same, four_op_graph, graphs

from paracosm.errors import InputError, MissingExtraError
from paracosm.graphs.build import build_graph
from paracosm.graphs.chakra.convert import read_chakra, write_chakra
from paracosm.graphs.chakra.trace import message
from paracosm.graphs.graph import RESOURCES, Graph
from paracosm.graphs.protobuf import message_classes

DATA = Path(__file__).parents[1] / "data" / "chakra"
FORMS = ("et", "json")

TraceWriter = Callable[..., Path]


def refusal(path: Path, **settings: bool) -> str:
    with pytest.raises(InputError) as raised:
        read_chakra(path, **settings)
    text = str(raised.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def resources(graph: Graph) -> list[str]:
    return [RESOURCES[code] for code in graph.resource]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=50, deadline=None)
@given(graph=graphs())
def test_a_graph_that_goes_out_and_in_is_the_same(form: str, graph: Graph) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"trace.{form}"
        write_chakra(graph, path)
        assert_same(read_chakra(path), graph)


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_graph_and_one_by_hand_come_back(form: str, tmp_path: Path) -> None:
    for graph in (build_graph([]), four_op_graph()):
        write_chakra(graph, tmp_path / f"trace.{form}")
        assert_same(read_chakra(tmp_path / f"trace.{form}"), graph)


def test_other_programs_find_what_chakra_has_a_place_for(tmp_path: Path) -> None:
    write_chakra(four_op_graph(), tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert trace["version"] == "0.0.4"
    assert trace["units"].startswith("us: runtime, start_time_micros, duration_micros; s: paracosm")
    view, product, _, reduce = trace["workload_graph"]
    assert [each["NodeType"] for each in trace["workload_graph"]] == [4, 4, 4, 7]
    assert (view["is_cpu_op"], product["is_cpu_op"]) == (True, False)
    assert (product["Id"], product["data_deps"], product["runtime"]) == (4, [3], 333_333)
    assert product["num_ops"] == 655_360
    assert product["inputs"]["shapes"] == [[64, 512], [512, 10]]
    assert (reduce["comm_type"], reduce["comm_size"]) == (7, 5_120)  # REDUCE_SCATTER


def test_the_bytes_of_a_trace_are_those_of_the_format() -> None:
    """By the wire format: field number * 8 + wire type, then the value."""
    node = message("Node")(id=3, name="a", type=4, ctrl_deps=[1], data_deps=[2], duration_micros=9)
    node.attr.add(name="n", bool_val=True)
    node.attr.add(name="l").int64_list.values.extend([5])
    expected = [8, 3, 18, 1, 97, 24, 4, 34, 1, 1, 42, 1, 2, 56, 9]
    expected += [82, 6, 10, 1, 110, 216, 1, 1]
    expected += [82, 8, 10, 1, 108, 82, 3, 10, 1, 5]
    assert node.SerializeToString() == bytes(expected)


def test_a_real_trace_with_missing_nodes_says_so_and_is_read_without_them() -> None:
    path = DATA / "feeder.json"
    assert refusal(path) == (
        "7 dependencies are on nodes that are not in the file, the first of node 216 "
        "(aten::flatten_dense_tensors(0)) on 3; --drop-missing leaves them out"
    )
    graph = read_chakra(path, drop_missing=True)
    assert graph.id.tolist() == [216, 217, 430, 432, 433, 435, 541]
    # Those of the CPU dispatch; the kernels are the work.
    expected = ["host", "host", "compute", "host", "host", "communication", "host"]
    assert resources(graph) == expected
    np.testing.assert_array_equal(graph.duration * 1e6, [318, 28, 4, 85, 79, 28, 153])
    assert graph.predecessors(5).tolist() == [0, 1, 3]
    assert graph.provenance["dropped_dependencies"] == 7
    assert graph.provenance["trace"] == {
        "workload_name": "workload_name",
        "ngpus": 8,
        "soc": "soc_name",
    }


def test_the_cycle_of_a_real_trace_is_named_and_gone_without_control_dependencies() -> None:
    path = DATA / "cycle.et"
    text = refusal(path, drop_missing=True)
    assert text.startswith(
        "a cycle of dependencies: node 3317 (aten::mul(0)) waits for node 3318 ("
    )
    assert text.endswith("--data-only leaves out control dependencies")
    graph = read_chakra(path, drop_missing=True, data_only=True)
    assert graph.id.tolist() == [3256, 3311, 3312, 3317, 3318]
    assert resources(graph) == ["communication", "host", "compute", "host", "compute"]
    assert graph.ops[0].name == "all_reduce"
    assert graph.ops[0].bytes_read == 8_196_000
    assert graph.ops[1].name == "aten.convolution_backward.default"
    assert graph.duration[0] == 5_572e-6
    assert graph.provenance["trace"]["schema"] == "1.0.1"
    assert not graph.provenance["control_dependencies"]


def test_a_trace_of_a_later_schema_is_read(tmp_path: Path) -> None:
    """By the wire format: field 11 of a node is new in schema 1.0.0, and so are types 8 to 10."""
    whole = bytes([10, 5]) + b"1.0.0"
    node = bytes([8, 3, 18, 1, 97, 24, 8, 56, 9, 90, 2, 8, 1])
    path = tmp_path / "later.et"
    path.write_bytes(bytes([len(whole)]) + whole + bytes([len(node)]) + node)
    graph = read_chakra(path)
    assert graph.provenance["version"] == "1.0.0"
    assert graph.duration.tolist() == [9e-6]


def test_calls_within_calls_are_no_chakra_trace_yet() -> None:
    assert refusal(DATA / "observer.json") == (
        "node 2: its ctrl_deps is one caller: an execution trace of PyTorch, not converted to "
        "Chakra: --format pytorch reads it"
    )


@pytest.fixture
def trace(tmp_path: Path) -> TraceWriter:
    """Return a function that writes the nodes of another program's trace."""

    def write(*nodes: dict[str, Any], form: str = "json", **whole: Any) -> Path:
        path = tmp_path / f"other.{form}"
        if form == "json":
            path.write_text(json.dumps({"schema": "x", **whole, "nodes": nodes}))
            return path
        from google.protobuf.proto import serialize_length_prefixed

        sink = io.BytesIO()
        serialize_length_prefixed(message("GlobalMetadata")(version="0.0.9"), sink)
        for node in nodes:
            serialize_length_prefixed(message("Node")(**node), sink)
        path.write_bytes(sink.getvalue())
        return path

    return write


@pytest.mark.parametrize("form", FORMS)
def test_types_stand_for_resources(form: str, trace: TraceWriter) -> None:
    kinds = [*range(8), 8, 99]
    graph = read_chakra(
        trace(*({"id": i, "type": kind} for i, kind in enumerate(kinds)), form=form)
    )
    communication = ["communication"] * 3
    assert resources(graph) == (
        ["host", "host", "memory", "memory", "compute", *communication, "host", "host"]
    )


@pytest.mark.parametrize("form", FORMS)
def test_ids_that_contradict_dependencies_are_replaced_in_a_stable_order(
    form: str, trace: TraceWriter
) -> None:
    nodes = [
        {"id": 5, "name": "first", "start_time_micros": 1},
        {"id": 9, "name": "third", "start_time_micros": 3},
        {"id": 2, "name": "fourth", "start_time_micros": 4, "data_deps": [9]},
        {"id": 1, "name": "last", "start_time_micros": 2, "ctrl_deps": [2], "data_deps": [5]},
        {"id": 3, "name": "second", "start_time_micros": 3},
    ]
    graph = read_chakra(trace(*nodes, form=form))
    assert [graph.ops[code].name for code in graph.op] == [
        *("first", "second", "third", "fourth", "last")
    ]
    assert graph.id.tolist() == [0, 1, 2, 3, 4]
    assert graph.predecessors(4).tolist() == [0, 3]
    assert graph.provenance["renumbered"]


def test_ids_that_ascend_in_the_order_of_issue_are_kept(trace: TraceWriter) -> None:
    graph = read_chakra(trace({"id": 8, "data_deps": [4]}, {"id": 4}))
    assert graph.id.tolist() == [4, 8]
    assert not graph.provenance["renumbered"]


def test_ids_beyond_63_bits_are_replaced(trace: TraceWriter) -> None:
    graph = read_chakra(trace({"id": 2**64 - 1, "data_deps": [4]}, {"id": 4}, form="et"))
    assert graph.id.tolist() == [0, 1]


def test_a_duration_of_zero_is_one_that_nobody_measured(trace: TraceWriter) -> None:
    graph = read_chakra(trace({"id": 0, "duration_micros": 0}, {"id": 1, "duration_micros": 7}))
    assert math.isnan(graph.duration[0])
    assert graph.duration[1] == 7e-6


def test_work_and_ends_are_taken_from_attributes_and_tensors(trace: TraceWriter) -> None:
    tensors = {"shapes": "[[2, 3], [[4], [5]], []]", "values": "[0, [0, 0], 1.5]"}
    kinds = "['Tensor(float)', 'GenericList[Tensor(c10::Half),Tensor(long int)]', 'Double']"
    graph = read_chakra(
        trace(
            {"id": 0, "type": 4, "num_ops": 12, "inputs": {**tensors, "types": kinds}},
            {"id": 1, "type": 5, "comm_src": 3, "comm_dst": 1, "comm_size": 100},
        )
    )
    assert graph.ops[0].flops == 12
    assert graph.ops[0].bytes_read == 2 * 3 * 4 + 4 * 2 + 5 * 8
    assert json.loads(graph.ops[0].arguments)["args"][1:] == [
        [{"tensor": [4], "dtype": "float16"}, {"tensor": [5], "dtype": "int64"}],
        1.5,
    ]
    assert graph.ops[1].bytes_read == 100
    assert graph.groups == ((3, 1),)


def test_json_that_protobuf_writes_message_by_message_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    coll = {"name": "comm_type", "int64Val": "2"}
    path.write_text(
        '{"version": "0.0.4"}\n{"id": "7", "name": "x", "type": "COMP_NODE"}'
        + json.dumps({"id": "8", "type": "COMM_COLL_NODE", "dataDeps": ["7"], "attr": [coll]})
    )
    graph = read_chakra(path)
    assert graph.provenance["version"] == "0.0.4"
    assert [op.name for op in graph.ops] == ["x", "all_gather"]
    assert graph.dependencies.tolist() == [0]


def test_gzipped_traces_are_read(tmp_path: Path) -> None:
    for form in FORMS:
        write_chakra(four_op_graph(), tmp_path / f"a.{form}")
        packed = tmp_path / f"a.{form}.gz"
        packed.write_bytes(gzip.compress((tmp_path / f"a.{form}").read_bytes()))
        assert_same(read_chakra(packed), four_op_graph())
        packed.write_bytes(packed.read_bytes()[:-9])
        assert refusal(packed) == "the gzipped file is cut off or damaged"


REFUSED: dict[str, list[dict[str, Any]]] = {
    "a Chakra trace without nodes": [],
    'node 0 of the file has no "id"': [{"name": "x"}],
    "two nodes have the id 4: x, y": [{"id": 4, "name": "x"}, {"id": 4, "name": "y"}],
    "node 4: unknown type COMPUTE: choose from": [{"id": 4, "type": "COMPUTE"}],
    "node 4: data_deps: 'x' is no whole number": [{"id": 4, "data_deps": ["x"]}],
    "node 4: data_deps: 3.5 is no whole number": [{"id": 4, "data_deps": [3.5]}],
    "node 4: data_deps: 3 is no list of nodes": [{"id": 4, "data_deps": 3}],
    "node 4.5: id: 4.5 is no whole number": [{"id": 4.5}],
    "node 4: type: 4.5 is no whole number": [{"id": 4, "type": 4.5}],
    "1 dependency is on nodes that are not in the file, the first of node 4 (x) on 9": [
        {"id": 4, "name": "x", "data_deps": [9]}
    ],
    "node 4 (x) depends on itself": [{"id": 4, "name": "x", "data_deps": [4]}],
    "a cycle of dependencies: node 4 (x) waits for node 5 (y), and so again": [
        {"id": 4, "name": "x", "data_deps": [5]},
        {"id": 5, "name": "y", "data_deps": [4]},
    ],
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_wrong_with_a_trace_is_named(text: str, trace: TraceWriter) -> None:
    assert text in refusal(trace(*REFUSED[text]))


def test_a_file_that_is_no_trace_is_refused_in_one_line(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.et") == "no such file"
    for name, content, text in (
        ("a.et", b"\x80\x02}q\x00X\x05", "no Chakra trace (.et, schema 0.0.4)"),
        ("b.et", b"", "the file is empty"),
        ("c.json", b" ", "the file is empty"),
        ("d.json", b"\xff\xfe\x00", "no Chakra trace: neither JSON nor .et"),
        ("e.json", b"[1]", "JSON, but no Chakra trace: that is an object"),
        ("f.json", b'{"traceEvents": []}', 'it has neither "workload_graph" nor "nodes"'),
        ("g.json", b'{"nodes": [3]}', "node 0 of the file must be a JSON object"),
    ):
        (tmp_path / name).write_bytes(content)
        assert text in refusal(tmp_path / name)


def test_a_trace_of_ours_that_is_newer_or_lacks_something_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ours.json"
    write_chakra(four_op_graph(), path)
    written = path.read_text()
    for old, new, text in (
        ('"paracosm_graph": 1', '"paracosm_graph": 2', "a trace with a graph of format 2"),
        ("paracosm_resident", "x", 'the metadata "resident" is missing'),
        ("paracosm_phase", "x", "node 3: the attribute 'paracosm_phase' is missing"),
        ('"paracosm_arguments": 0', '"paracosm_arguments": 77', "node 3: damaged attributes"),
        ('"num_ops": 0', '"num_ops": "0"', "node 3: damaged attributes: num_ops is '0'"),
    ):
        path.write_text(written.replace(old, new))
        assert text in refusal(path)


def test_a_trace_has_one_of_two_names(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a Chakra trace is named \.et or \.json"):
        write_chakra(four_op_graph(), tmp_path / "trace.pb")


def test_without_protobuf_json_works_and_et_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_classes.cache_clear()
    for name in [name for name in sys.modules if name.startswith("google.protobuf")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "google.protobuf.message_factory", None)
    write_chakra(four_op_graph(), tmp_path / "a.json")
    assert len(read_chakra(tmp_path / "a.json")) == 4
    with pytest.raises(MissingExtraError, match=r'pip install "paracosm\[protobuf\]"'):
        write_chakra(four_op_graph(), tmp_path / "a.et")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"version": "1"} {"id": 0, "name": "a", "id": 1}', 'the key "id" is given twice'),
        ('{"version": "1"} {"id": 0, "name": "\\ud800"}', "half a surrogate pair"),
        ('{"version": "1"} {"id": 0, "name": ' + "[" * 5000 + "]" * 5000 + "}", "too deeply"),
    ],
)
def test_json_that_means_nothing_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_chakra(path)
