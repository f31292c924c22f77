"""TensorFlow's graphs and step statistics, as TensorFlow 2.21 wrote them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES, RESOURCES, Graph
from paracosm.graphs.importers.tensorflow.graph_def import read_graph_def
from paracosm.graphs.importers.tensorflow.nodes import messages
from paracosm.graphs.importers.tensorflow.step_ops import (
    StepOp,
    graph_of_step,
    read_run_metadata,
    read_timeline,
)

DATA = Path(__file__).parents[2] / "data" / "importers"


def write_graph(path: Path, *nodes: Sequence[str]) -> Path:
    """Write a GraphDef of nodes, each a name, an op and inputs."""
    graph = messages()["GraphDef"]()
    for name, op, *inputs in nodes:
        graph.node.add(name=name, op=op, input=inputs)
    path.write_bytes(graph.SerializeToString())
    return path


def work(graph: Graph) -> list[tuple[str, str, int]]:
    """Return op, phase and flops of every node with flops."""
    return sorted(
        (graph.ops[code].name, PHASES[phase], graph.ops[code].flops)
        for code, phase in zip(graph.op, graph.phase, strict=True)
        if graph.ops[code].flops
    )


def test_the_work_of_a_training_step_is_that_of_its_formulas() -> None:
    graph = read_graph_def(DATA / "convnet_sgd.pb")
    conv, product = 2 * 8 * 16 * 16 * 8 * 27, 2 * 8 * 512 * 10
    found = work(graph)
    assert ("tensorflow.Conv2D", "forward", conv) in found
    assert ("tensorflow.Conv2DBackpropFilter", "backward", conv) in found
    # The gradient of the images is in the graph, and nobody needs it: TensorFlow prunes it.
    assert [each[2] for each in found if each[0] == "tensorflow.MatMul"] == [product] * 3
    updates = [each for each in found if each[0] == "tensorflow.ApplyGradientDescent"]
    assert sum(update[2] for update in updates) == 2 * (216 + 8 + 16 + 5120 + 10)
    assert {update[1] for update in updates} == {"optimizer"}
    assert graph.resident == {"parameters": 21_480, "optimizer": 0, "inputs": 24_608}
    assert graph.provenance["examples"] == 8
    assert {"conv1", "fc", "bn"} <= set(graph.names)


@pytest.mark.parametrize("name", ["convnet_sgd.pb", "convnet_adam.pb.gz"])
def test_phases_follow_each_other_whatever_the_order_of_the_file(name: str) -> None:
    graph = read_graph_def(DATA / name, fetch=["train"])
    phases = [PHASES[phase] for phase in graph.phase if PHASES[phase] != "other"]
    assert phases == sorted(phases, key=PHASES.index)
    assert set(phases) == {"forward", "backward", "optimizer"}


def test_gradients_outlive_the_step() -> None:
    graph = read_graph_def(DATA / "convnet_sgd.pb")
    left = graph.storages.last == len(graph)
    assert sorted(graph.storages.size[left].tolist()) == [32, 32, 32, 40, 864, 20_480]
    assert {PHASES[graph.phase[row]] for row in graph.storages.first[left]} == {"backward"}


def test_inferred_shapes_are_those_that_tensorflow_noted() -> None:
    noted, inferred = (
        read_graph_def(DATA / name) for name in ("convnet_sgd.pb", "convnet_adam.pb.gz")
    )

    def passes(graph: Graph) -> list[tuple[str, str, int]]:
        return [each for each in work(graph) if each[1] != "optimizer"]

    assert len(passes(noted)) == 19
    assert passes(inferred) == passes(noted)
    assert inferred.resident["parameters"] == noted.resident["parameters"]
    # Two moments of every parameter, and two powers.
    assert inferred.resident["optimizer"] == 2 * noted.resident["parameters"] + 8


def test_a_node_waits_for_inputs_and_control() -> None:
    graph = read_graph_def(DATA / "convnet_sgd.pb")
    names = [graph.ops[code].name for code in graph.op]
    end = max(row for row, name in enumerate(names) if name == "tensorflow.NoOp")
    before = {names[row] for row in graph.predecessors(end)}
    assert before == {"tensorflow.ApplyGradientDescent"}
    assert RESOURCES[graph.resource[end]] == "host"


def test_only_what_a_node_needs_is_read() -> None:
    graph = read_graph_def(DATA / "convnet_sgd.pb", fetch=["fc/BiasAdd"])
    assert {PHASES[code] for code in graph.phase} == {"forward"}
    assert len(graph) == 24  # counted by hand in the list of nodes
    with pytest.raises(InputError, match='unknown node "fc/Bias": did you mean'):
        read_graph_def(DATA / "convnet_sgd.pb", fetch=["fc/Bias"])


def test_functions_of_a_saved_model_are_written_out() -> None:
    path = DATA / "saved_model.pb"
    graph = read_graph_def(path, saved_model=True, sizes={"batch": 8})
    found = [(name.removeprefix("tensorflow."), flops) for name, _, flops in work(graph)]
    assert found == [("AddV2", 24), ("MatMul", 2 * 8 * 4 * 3), ("Relu", 24)]
    assert read_graph_def(path, saved_model=True).provenance["unknown_sizes"] == ["batch"]


def test_a_loop_is_counted_once_and_other_cycles_are_named(tmp_path: Path) -> None:
    path = write_graph(
        tmp_path / "loop.pb",
        ("start", "Const"),
        ("merge", "Merge", "start", "next"),
        ("body", "Exp", "merge"),
        ("next", "NextIteration", "body"),
    )
    graph = read_graph_def(path)
    assert len(graph) == 4
    assert graph.provenance["loops_counted_once"] == 1
    write_graph(path, ("a", "Exp", "b"), ("b", "Log", "^a"))
    with pytest.raises(InputError) as raised:
        read_graph_def(path)
    assert str(raised.value) == (
        f"{path}: a cycle of dependencies: node 0 (Exp, a) waits for node 1 (Log, b), and so "
        "again for node 0 (Exp, a)"
    )
    write_graph(path, ("a", "Exp", "gone:1"))
    with pytest.raises(InputError, match=r"node 0 \(Exp, a\) waits for gone, which does not exist"):
        read_graph_def(path)


def test_run_metadata_and_timeline_of_a_step_are_the_same_graph() -> None:
    stats = read_run_metadata(DATA / "convnet_step.pb")
    timeline = read_timeline(DATA / "convnet_timeline.json.gz")
    assert len(stats) == 44
    assert [stats.ops[code].name for code in stats.op] == [
        timeline.ops[code].name for code in timeline.op
    ]
    np.testing.assert_array_equal(stats.dependencies, timeline.dependencies)
    np.testing.assert_array_equal(stats.phase, timeline.phase)
    # The timeline has whole microseconds, and no 0.
    np.testing.assert_allclose(stats.duration, timeline.duration, atol=1e-6)
    assert stats.flops.sum() > 1_800_000
    assert timeline.flops.sum() == 0  # it has no shapes


def test_kernels_of_a_device_are_what_its_ops_take() -> None:
    gpu = "/job:localhost/replica:0/task:0/device:GPU:0"
    stream, copies = "/device:GPU:0/stream:all", "/device:GPU:0/memcpy"
    one = StepOp("a/MatMul", "MatMul", ("x",), gpu, 1_000, 60e-6)
    two = StepOp("a/Shape", "Prod", ("a/MatMul:0", "^a/MatMul"), gpu, 2_000, 5e-6)
    kernels = [
        StepOp("a/MatMul:MatMul", "MatMul", (), stream, 3_000, 100e-6),
        StepOp("a/MatMul:MatMul", "MatMul", (), stream, 4_000, 20e-6),
        StepOp("a/MatMul:MatMul", "MatMul", (), "/device:GPU:0/stream:13", 4_000, 20e-6),
        StepOp("edge_1_x", "MEMCPYHtoD", (), copies, 500, 9e-6),
    ]
    graph = graph_of_step([two, one, *kernels], "step", {})
    np.testing.assert_allclose(graph.duration, [120e-6, 5e-6])
    assert [RESOURCES[code] for code in graph.resource] == ["compute", "host"]
    assert graph.predecessors(1).tolist() == [0]
    assert graph.provenance["inputs_not_traced"] == 1


def test_a_timeline_lacks_a_field(tmp_path: Path) -> None:
    path = tmp_path / "timeline.json"
    event = '{"ph": "X", "cat": "Op", "ts": 1, "dur": 2, "pid": 1, "args": {"name": "a"}}'
    path.write_text(f'{{"traceEvents": [{event}]}}')
    with pytest.raises(InputError, match=r'event 0 lacks "args.op"'):
        read_timeline(path)
    path.write_text('{"traceEvents": []}')
    with pytest.raises(InputError, match="no timeline of TensorFlow"):
        read_timeline(path)
