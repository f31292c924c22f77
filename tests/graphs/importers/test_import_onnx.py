"""ONNX models: shapes that onnx infers, work and gradients by hand."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto
from onnx.helper import (
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_tensor_value_info,
)
from onnx.numpy_helper import from_array

from paracosm.errors import InputError, MissingExtraError
from paracosm.graphs.graph import PHASES, RESOURCES, Graph
from paracosm.graphs.importers.onnx.model import read_model
from paracosm.graphs.importers.onnx.read import read_onnx
from paracosm.graphs.importers.shape_rules import shape_of

DATA = Path(__file__).parents[2] / "data" / "importers"


def work(graph: Graph, op: str) -> list[int]:
    return [graph.ops[code].flops for code in graph.op if graph.ops[code].name == op]


def gradients(graph: Graph) -> list[int]:
    """Return the bytes of what the backward pass leaves behind."""
    storages = graph.storages
    left = storages.last == len(graph)
    assert all(PHASES[graph.phase[row]] == "backward" for row in storages.first[left])
    return sorted(storages.size[left].tolist())


def value(name: str, *sizes: int | str | None) -> ValueInfoProto:
    return make_tensor_value_info(name, TensorProto.FLOAT, sizes)


def weight(name: str, *sizes: int) -> TensorProto:
    return from_array(np.zeros(sizes, np.float32), name)


def whole(name: str, *numbers: int) -> TensorProto:
    return from_array(np.array(numbers, np.int64), name)


def node(op: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return make_node(op, inputs.split(), [output], **attributes)


def write_model(
    path: Path,
    *nodes: NodeProto,
    inputs: Sequence[ValueInfoProto] = (),
    outputs: Sequence[ValueInfoProto],
    weights: Sequence[TensorProto] = (),
) -> Path:
    graph = make_graph(nodes, "test", inputs, outputs, weights)
    model = make_model(graph, opset_imports=[make_opsetid("", 20)])
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """Relu(x w) v, with x of N by 4, w of 4 by 8, v of 8 by 2."""
    return write_model(
        tmp_path / "chain.onnx",
        node("MatMul", "x w", "h"),
        node("Relu", "h", "a"),
        node("MatMul", "a v", "y"),
        inputs=[value("x", "N", 4)],
        outputs=[value("y", "N", 2)],
        weights=[weight("w", 4, 8), weight("v", 8, 2)],
    )


@pytest.mark.parametrize("name", ["gpt", "convnet", "convnet_dynamo"])
def test_every_value_has_a_shape(name: str) -> None:
    assert read_onnx(DATA / f"{name}.onnx").provenance["without_shape"] == 0


def test_inferred_shapes_are_those_that_pytorch_noted() -> None:
    data = (DATA / "convnet_dynamo.onnx").read_bytes()
    noted = read_model(data, "noted", {})
    model = ModelProto.FromString(data)
    model.graph.ClearField("value_info")
    assert len(noted.tensors) == 18
    assert read_model(model.SerializeToString(), "inferred", {}).tensors == noted.tensors


def test_shapes_that_are_computed_by_the_model_are_known() -> None:
    path = DATA / "gpt.onnx"
    model = read_model(path.read_bytes(), str(path), {})
    expected = {
        "/h.0/qkv/MatMul_output_0": (2, 4, 24),
        "/h.0/Reshape_output_0": (2, 4, 3, 2, 4),
        "/h.0/Split_output_1": (1, 2, 2, 4, 4),
        "/h.0/Squeeze_output_0": (2, 2, 4, 4),
        "/h.1/Softmax_output_0": (2, 2, 4, 4),
        "/h.1/Reshape_1_output_0": (2, 4, 8),
        "/h.1/down/MatMul_output_0": (2, 4, 8),
    }
    assert {value: model.tensors[value].shape for value in expected} == expected


def test_sizes_are_computed_where_onnx_does_not_follow_them(tmp_path: Path) -> None:
    """Attention splits its width in heads: Shape, Gather, Div, Concat; Trilu masks its scores."""
    path = write_model(
        tmp_path / "heads.onnx",
        node("Shape", "x", "sizes"),
        node("Gather", "sizes last", "width"),
        node("Div", "width heads", "head_width"),
        node("Concat", "kept heads head_width", "shape", axis=0),
        node("Reshape", "x shape", "split"),
        node("Trilu", "split", "y"),
        inputs=[value("x", 2, "N", 8)],
        outputs=[value("y", None, None, None, None)],
        weights=[whole("last", 2), whole("heads", 4), whole("kept", 0, 0)],
    )
    model = read_model(path.read_bytes(), str(path), {"N": 5})
    assert model.tensors["y"].shape == (2, 5, 4, 2)
    graph = read_onnx(path, sizes={"N": 5})
    assert [RESOURCES[code] for code in graph.resource] == ["host"] * 5 + ["compute"]


def test_shapes_of_another_batch_in_the_file_do_not_stop_the_inference(chain: Path) -> None:
    model = ModelProto.FromString(chain.read_bytes())
    model.graph.value_info.append(value("a", 1, 8))
    chain.write_bytes(model.SerializeToString())
    tensors = read_model(chain.read_bytes(), "chain", {"batch": 16}).tensors
    assert [tensors[name].shape for name in "hay"] == [(16, 8), (1, 8), (16, 2)]


def test_without_onnx_the_extra_is_named(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r'pip install "paracosm\[onnx\]"'):
        read_onnx(chain)


def test_weights_in_other_files_are_not_looked_for(chain: Path) -> None:
    model = ModelProto.FromString(chain.read_bytes())
    for tensor in model.graph.initializer:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../gone.bin")
    outside = chain.with_name("outside.onnx")
    outside.write_bytes(model.SerializeToString())
    graphs = [read_onnx(path, sizes={"N": 16}) for path in (chain, outside)]
    assert graphs[0].flops.tolist() == graphs[1].flops.tolist()
    assert graphs[0].resident == graphs[1].resident


def test_the_work_of_a_convnet_is_that_of_its_formulas() -> None:
    graph = read_onnx(DATA / "convnet.onnx")
    images, small = 4 * 8 * 16 * 16, 4 * 8 * 8 * 8
    assert work(graph, "onnx.Conv") == [2 * images * 27, 2 * small * 72]
    assert work(graph, "onnx.Gemm") == [2 * 4 * 10 * 8]
    # Normalisation, Relu and pooling of large images; sum, Relu and mean of small ones.
    assert graph.flops.sum() == 2 * images * 27 + 2 * small * 72 + 640 + 3 * images + 3 * small
    conv = graph.op.tolist().index(next(i for i, op in enumerate(graph.ops) if op.flops))
    assert graph.bytes_read[conv] == 4 * (4 * 3 * 256 + 8 * 27)
    assert graph.bytes_written[conv] == 4 * images
    assert graph.names[graph.name[conv]] == "stem.0"
    assert [RESOURCES[code] for code in graph.resource].count("host") == 1  # Flatten
    assert graph.resident == {"parameters": 4 * 906, "buffers": 64, "inputs": 12_288}
    assert graph.provenance["examples"] == 4


def test_a_layer_has_the_name_of_its_module() -> None:
    assert {"h.0.qkv", "h.0.up", "h.1.proj", "wte"} <= set(read_onnx(DATA / "gpt.onnx").names)
    assert "stem.2" in read_onnx(DATA / "convnet_dynamo.onnx").names


def test_gradients_of_products_cost_what_the_product_does(chain: Path) -> None:
    graph = read_onnx(chain, sizes={"N": 16}, train=True)
    first, second = 2 * 16 * 4 * 8, 2 * 16 * 8 * 2
    assert work(graph, "onnx.MatMul") == [first, second]
    # x is no parameter: the first product has one gradient, that of w.
    assert work(graph, "onnx.MatMul.backward_weight") == [second, first]
    assert work(graph, "onnx.MatMul.backward_input") == [second]
    assert work(graph, "onnx.Relu.backward") == [2 * 16 * 8]
    assert gradients(graph) == [4 * 8 * 2, 4 * 4 * 8]
    assert work(graph, "optimizer.sgd") == [2 * 32, 2 * 16]
    # h was freed when Relu had read it; a is kept for the gradient of v and for that of Relu.
    names = [graph.ops[code].name for code in graph.op]
    lives = {
        int(first): names[last]
        for first, last in zip(graph.storages.first, graph.storages.last, strict=True)
        if last < len(graph)
    }
    assert (lives[0], lives[1]) == ("onnx.Relu", "onnx.Relu.backward")


def test_every_parameter_has_one_gradient_and_one_update() -> None:
    for name in ("gpt", "convnet", "convnet_dynamo"):
        graph = read_onnx(DATA / f"{name}.onnx", train=True, optimizer="adam")
        phases = Counter(PHASES[code] for code in graph.phase)
        assert phases["optimizer"] == len(gradients(graph))
        assert sum(gradients(graph)) == graph.resident["parameters"]
        assert graph.resident["optimizer"] == 2 * graph.resident["parameters"]
        updates = np.flatnonzero(graph.phase == PHASES.index("optimizer"))
        for row in updates:
            before = graph.predecessors(row)
            assert [PHASES[graph.phase[each]] for each in before] == ["backward"]


def test_a_sum_hands_its_gradient_on_and_what_meets_is_added(tmp_path: Path) -> None:
    """y = w + Relu(w): two gradients of w, one of them that of y itself, added."""
    path = write_model(
        tmp_path / "sum.onnx",
        node("Relu", "w", "h"),
        node("Add", "w h", "y"),
        outputs=[value("y", 3, 5)],
        weights=[weight("w", 3, 5)],
    )
    graph = read_onnx(path, train=True)
    names = [graph.ops[code].name for code in graph.op]
    assert names[2:] == ["loss.backward", "onnx.Relu.backward", "onnx.Add", "optimizer.sgd"]
    assert gradients(graph) == [4 * 15]
    assert PHASES[graph.phase[4]] == "backward"


def test_an_open_size_is_named_and_given(chain: Path) -> None:
    graph = read_onnx(chain)
    assert graph.provenance["unknown_sizes"] == ["N"]
    assert graph.provenance["without_shape"] == 3
    assert graph.flops.sum() == 0
    for sizes in ({"N": 16}, {"batch": 16}):
        known = read_onnx(chain, sizes=sizes)
        assert known.provenance["without_shape"] == 0
        assert known.flops.sum() == 2 * 16 * 32 + 16 * 8 + 2 * 16 * 16


def test_ops_without_a_gradient_are_named(tmp_path: Path) -> None:
    path = write_model(
        tmp_path / "odd.onnx",
        node("Bessel", "w", "y"),
        outputs=[value("y", 3)],
        weights=[weight("w", 3)],
    )
    assert read_onnx(path).flops.sum() == 3
    with pytest.raises(InputError, match="no rule for the gradient of Bessel"):
        read_onnx(path, train=True)


@pytest.mark.parametrize("domain", ["com.example", "com.microsoft", "ai.onnx.contrib"])
def test_ops_of_a_domain_without_a_version_leave_their_outputs_open(
    domain: str, chain: Path
) -> None:
    model = ModelProto.FromString(chain.read_bytes())
    model.graph.node[1].domain, model.graph.node[1].op_type = domain, "Own"
    chain.write_bytes(model.SerializeToString())
    graph = read_onnx(chain, sizes={"N": 16})
    assert work(graph, "onnx.MatMul") == [2 * 16 * 4 * 8, 0]
    assert graph.provenance["without_shape"] == 1


def test_a_model_without_parameters_cannot_be_trained(tmp_path: Path) -> None:
    path = write_model(
        tmp_path / "none.onnx",
        node("Relu", "x", "y"),
        inputs=[value("x", 3)],
        outputs=[value("y", 3)],
    )
    with pytest.raises(InputError, match="nothing to train"):
        read_onnx(path, train=True)
    with pytest.raises(InputError, match='unknown optimizer "adams": did you mean "adam"'):
        read_onnx(path, train=True, optimizer="adams")
    with pytest.raises(InputError, match="--optimizer has no effect without --train"):
        read_onnx(path, optimizer="adam")


def test_a_cycle_is_named_and_a_value_made_twice(tmp_path: Path) -> None:
    nodes = node("Relu", "b", "a"), node("Tanh", "a", "b")
    path = write_model(tmp_path / "wrong.onnx", *nodes, outputs=[value("y", 3)])
    with pytest.raises(InputError) as raised:
        read_onnx(path)
    assert str(raised.value) == (
        f"{path}: a cycle of dependencies: node 0 (onnx.Relu) waits for node 1 (onnx.Tanh), "
        "and so again for node 0 (onnx.Relu)"
    )
    twice = node("Relu", "x", "a")
    write_model(path, twice, twice, inputs=[value("x", 3)], outputs=[value("y", 3)])
    with pytest.raises(InputError, match="both put out a"):
        read_onnx(path)


@pytest.mark.parametrize("sizes", [[1] * 100, [0, 1 << 62]])
def test_a_shape_that_numpy_has_no_arrays_of_is_unknown(sizes: list[int]) -> None:
    assert shape_of(sizes) is None
