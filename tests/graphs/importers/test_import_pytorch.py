"""PyTorch execution traces that others recorded, of three schemas."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES, RESOURCES, Graph
from paracosm.graphs.importers.pytorch.read import read_execution_trace
from paracosm.graphs.importers.pytorch.trace import parse_trace
from paracosm.timeline.kineto.device import OpSpan

DATA = Path(__file__).parents[2] / "data" / "importers"
LINEAR = DATA / "linear_et.json.gz"
DDP = DATA / "ddp_et.json.gz"


def rows(graph: Graph, name: str) -> list[int]:
    return [row for row, code in enumerate(graph.op) if graph.ops[code].name == name]


def nodes_of(path: Path) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["nodes"]
    return nodes


def test_what_counts_is_the_op_with_a_kernel_and_not_its_callers() -> None:
    graph = read_execution_trace(LINEAR)
    names = {op.name for op in graph.ops}
    assert {"aten.addmm.default", "aten.mm.default", "aten.relu.default"} <= names
    assert not {"aten.linear.default", "aten.clamp_min.default", "aten.to.dtype"} & names
    # 21 layers of 1024 by 1024 on 512 examples; no gradient of the first one's input.
    products = [graph.ops[graph.op[row]].flops for row in rows(graph, "aten.addmm.default")]
    assert products == [2 * 512 * 1024 * 1024] * 21
    assert len(rows(graph, "aten.mm.default")) == 41
    assert graph.ops[graph.op[rows(graph, "aten.t.default")[0]]].bytes_read == 0


def test_phases_follow_from_the_calls_around() -> None:
    graph = read_execution_trace(LINEAR)

    def phases(name: str) -> set[str]:
        return {PHASES[graph.phase[row]] for row in rows(graph, name)}

    assert phases("aten.addmm.default") == {"forward"}
    assert phases("aten.mm.default") == {"backward"}
    assert phases("aten._foreach_add_.List") == {"optimizer"}


def test_ops_wait_for_the_last_writer_of_what_they_read() -> None:
    graph = read_execution_trace(LINEAR)
    addmm, relu = rows(graph, "aten.addmm.default"), rows(graph, "aten.relu.default")
    for product, activation in zip(addmm[:20], relu[:20], strict=True):
        assert graph.predecessors(activation).tolist() == [product]
    # The next layer reads what the activation wrote.
    assert all(a in graph.predecessors(p) for a, p in zip(relu[:20], addmm[1:21], strict=True))


def test_what_the_optimizer_changes_are_the_parameters() -> None:
    graph = read_execution_trace(LINEAR)
    # 21 layers of 1024 x 1024 and 1024; their gradients were there before, and SGD has no state.
    weights = 21 * 4 * (1024 * 1024 + 1024)
    assert graph.resident["parameters"] == graph.resident["gradients"] == weights
    assert graph.resident["optimizer"] == 0


def test_collectives_have_their_kind_bytes_and_ranks() -> None:
    graph = read_execution_trace(DATA / "all_gather_et.json.gz")
    found = rows(graph, "all_gather")
    assert len(found) == 10
    assert {RESOURCES[graph.resource[row]] for row in found} == {"communication"}
    assert {graph.groups[graph.group[row]] for row in found} == {(0, 1)}
    assert graph.bytes_read[found[0]] == 4
    ddp = read_execution_trace(DDP)
    for row in rows(ddp, "all_reduce"):
        assert ddp.groups[ddp.group[row]] == (0, 1)
        assert ddp.bytes_read[row] > 1_000_000
    assert len(rows(ddp, "all_reduce")) == 2


def test_one_step_of_several_is_read() -> None:
    last, other = read_execution_trace(DDP), read_execution_trace(DDP, step=5)
    assert last.provenance["step"] == 6
    assert last.provenance["steps"] == [4, 5, 6]
    assert len(rows(last, "aten.addmm.default")) == len(rows(other, "aten.addmm.default")) == 1
    assert other.id[-1] < last.id[0]
    assert rows(last, "aten._foreach_add_.List")
    with pytest.raises(InputError, match='unknown step "7"'):
        read_execution_trace(DDP, step=7)
    with pytest.raises(InputError, match="no step is marked"):
        read_execution_trace(LINEAR, step=1)


@pytest.mark.parametrize("has_record", [True, False])
def test_times_of_the_profiler_are_joined(has_record: bool) -> None:
    """By their number; without it, by the order of the names of a thread."""
    trace = parse_trace(gzip.decompress(LINEAR.read_bytes()), "trace")
    calls = [call for call in trace.calls.values() if call.record > 0]
    launched = {"aten::addmm": 2e-3, "aten::mm": 3e-3, "aten::relu": 1e-4}
    before = [OpSpan(-1, 7, "aten::empty", 1e-6, False)] * 5
    times = before + [
        OpSpan(
            call.record if has_record else -1,
            7 + call.attributes["tid"],
            call.name,
            launched.get(call.name, 5e-6),
            call.name in launched,
        )
        for call in calls
    ]
    graph = read_execution_trace(LINEAR, times=times)
    assert graph.provenance["without_duration"] == 0
    assert set(graph.duration[rows(graph, "aten.addmm.default")]) == {2e-3}
    kept = [RESOURCES[graph.resource[row]] for row in rows(graph, "aten.relu.default")]
    assert set(kept) == {"compute"}
    # What launches nothing on a device is done by the host.
    assert {RESOURCES[graph.resource[r]] for r in rows(graph, "aten._softmax.default")} == {"host"}
    assert np.isnan(read_execution_trace(LINEAR).duration).all()


def test_times_of_another_run_are_refused() -> None:
    times = [OpSpan(-1, 1, "aten::rand", 1e-6, False)] * 2000
    with pytest.raises(InputError, match="of another run, or of another rank"):
        read_execution_trace(LINEAR, times=times)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "et.json"

    def refusal(nodes: list[dict[str, Any]]) -> str:
        path.write_text(json.dumps({"schema": "1.0.1", "nodes": nodes}))
        with pytest.raises(InputError) as raised:
            read_execution_trace(path)
        return str(raised.value).removeprefix(f"{path}: ")

    node = {"id": 2, "name": "a", "parent": 3}
    assert refusal([]) == "an execution trace without ops: no node has an op_schema"
    assert refusal([{"name": "a"}]) == 'node 0 of the file lacks "id": None'
    assert (
        refusal([{"id": 2, "name": "a"}]) == 'node 0 of the file lacks "ctrl_deps or parent": None'
    )
    assert refusal([{"id": 2, "parent": 1}]) == 'node 2 lacks "name"'
    assert refusal([node, node]) == "two nodes have the id 2: a, a"
    other = {"id": 3, "name": "b", "parent": 2}
    assert refusal([node, other]) == (
        "a cycle of dependencies: node 2 (a) waits for node 3 (b), and so again for node 2 (a)"
    )
    path.write_text('{"schema": "1.0.1"}')
    with pytest.raises(InputError, match='it lacks "nodes"'):
        read_execution_trace(path)


def test_every_node_of_the_file_is_within_one_that_counts_or_counts_nothing() -> None:
    """The ops that count do not stand in each other."""
    graph = read_execution_trace(LINEAR)
    parents = {node["id"]: node["parent"] for node in nodes_of(LINEAR)}
    counted = set(graph.id.tolist())
    for node in counted:
        at = parents[node]
        while at in parents and parents[at] != at:
            assert at not in counted
            at = parents[at]


def linked(path: Path, schema: str, host: Any = 5) -> Path:
    """Write a trace as chakra_trace_link joins it: two ops, of which one launched two kernels."""
    values = {"in": [4, 5, 0, 16, 4, "cuda:0"], "out": [6, 7, 0, 16, 4, "cuda:0"]}
    shape, kind = [4, 4], "Tensor(float)"

    def node(number: int, name: str, parent: int, op_schema: str, **more: Any) -> dict[str, Any]:
        whole = {"id": number, "name": name, "ctrl_deps": parent, **more}
        known = {"rf_id": number, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0}
        known["op_schema"] = op_schema
        if schema == "1.0.1":
            tensors = {
                f"{way}put{what}": [each]
                for way in ("in", "out")
                for what, each in (("s", values[way]), ("_shapes", shape), ("_types", kind))
            }
            if "cat" not in more:
                whole["parent"] = whole.pop("ctrl_deps")
            return {**whole, **known, **tensors}
        sides = {
            f"{way}puts": {"values": [value], "shapes": [shape], "types": [kind]}
            for way, value in values.items()
        }
        attrs = [{"name": key, "type": "", "value": each} for key, each in known.items()]
        return {**whole, **sides, "attrs": attrs}

    add, relu = "aten::add.Tensor(Tensor self) -> Tensor", "aten::relu(Tensor self) -> Tensor"
    kernel = {"cat": "kernel", "ph": "X", "stream": 7, "ts": 20}
    nodes = [
        node(1, "[pytorch|profiler|execution_trace|thread]", 0, ""),
        node(2, "aten::add", 1, add, inclusive_dur=9, exclusive_dur=9, ts=1),
        node(3, "aten::relu", 1, relu, inclusive_dur=host, exclusive_dur=5, ts=11),
        node(4, "add_kernel", 2, add, **kernel, inclusive_dur=30, exclusive_dur=30),
        node(5, "copy_kernel", 2, add, **kernel, inclusive_dur=2.5, exclusive_dur=2.5),
    ]
    path.write_text(json.dumps({"schema": schema, "pid": 1, "nodes": nodes}))
    return path


@pytest.mark.parametrize(
    "schema",
    [
        *("1.0.1", "1.0.2-chakra.0.0.4", "1.0.3-chakra.0.0.4", "1.1.0-chakra.0.0.4"),
        *("1.1.1-chakra.0.0.4", "1.1.1-chakra.1.0.0"),
    ],
)
def test_traces_that_are_linked_have_times_in_every_schema(schema: str, tmp_path: Path) -> None:
    graph = read_execution_trace(linked(tmp_path / "linked.json", schema))
    names = [graph.ops[op].name for op in graph.op.tolist()]
    assert names == ["aten.add.Tensor", "aten.relu.default"]
    assert 1e6 * graph.duration == pytest.approx([32.5, 5])
    # The one that launched nothing is the host's.
    assert [RESOURCES[code] for code in graph.resource] == ["compute", "host"]
    assert graph.provenance["schema"] == schema
    assert graph.provenance["without_duration"] == 0


@pytest.mark.parametrize("host", ["5", -1, float("nan"), None])
def test_a_linked_time_that_is_none_is_refused(host: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'linked.json: node 3: "inclusive_dur" is .*, no time$'):
        read_execution_trace(linked(tmp_path / "linked.json", "1.1.1-chakra.0.0.4", host))


@pytest.mark.parametrize("causal", [False, True])
def test_recorded_attention_counts_as_captured_attention_does(causal: bool, tmp_path: Path) -> None:
    """Two products of 8 x 8 scores of 2 x 4 heads of 16 forward, five backward; half if causal."""
    torch = pytest.importorskip("torch")
    q, k, v = (torch.ones(2, 4, 8, 16, requires_grad=True) for _ in range(3))
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(tmp_path / "et.json"))
    observer.start()
    attend = torch.nn.functional.scaled_dot_product_attention
    attend(q, k, v, is_causal=causal).sum().backward()
    observer.stop()
    observer.unregister_callback()
    graph = read_execution_trace(tmp_path / "et.json")
    found = {op.name: op.flops for op in graph.ops if "attention" in op.name}
    product = 2 * 2 * 4 * 8 * 8 * 16 // (2 if causal else 1)
    fused = "aten._scaled_dot_product_flash_attention_for_cpu"
    assert found == {f"{fused}.default": 2 * product, f"{fused}_backward.default": 5 * product}
