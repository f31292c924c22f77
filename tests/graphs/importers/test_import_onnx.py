"""ONNX models: shapes as onnx's own inference has them, work and gradients by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from protobuf_bytes import onnx_model, onnx_node, onnx_tensor_type, onnx_weight

from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES, RESOURCES, Graph
from paracosm.graphs.importers.onnx.model import read_model
from paracosm.graphs.importers.onnx.read import read_onnx
from paracosm.graphs.importers.onnx.shapes import infer_shapes
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


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    """Relu(x w) v, with x of N by 4, w of 4 by 8, v of 8 by 2."""
    path = tmp_path / "chain.onnx"
    path.write_bytes(
        onnx_model(
            onnx_node("MatMul", "x w", "h"),
            onnx_node("Relu", "h", "a"),
            onnx_node("MatMul", "a v", "y"),
            inputs=(onnx_tensor_type("x", "N", 4),),
            outputs=(onnx_tensor_type("y", "N", 2),),
            weights=(onnx_weight("w", 4, 8), onnx_weight("v", 8, 2)),
        )
    )
    return path


@pytest.mark.parametrize("name", ["gpt", "convnet", "convnet_dynamo"])
def test_every_value_has_a_shape(name: str) -> None:
    assert read_onnx(DATA / f"{name}.onnx").provenance["without_shape"] == 0


def test_inferred_shapes_are_those_that_pytorch_noted() -> None:
    path = DATA / "convnet_dynamo.onnx"
    noted, inferred = (read_model(path.read_bytes(), str(path), {}) for _ in range(2))
    given = {*inferred.weights, *inferred.inputs}
    for value in [value for value in inferred.tensors if value not in given]:
        del inferred.tensors[value]
    infer_shapes(inferred)
    assert len(noted.tensors) == 18
    assert inferred.tensors == noted.tensors


def test_shapes_that_are_computed_by_the_model_are_known() -> None:
    """As onnx.shape_inference.infer_shapes (1.23, with data propagation) has them."""
    path = DATA / "gpt.onnx"
    model = read_model(path.read_bytes(), str(path), {})
    infer_shapes(model)
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
    path = tmp_path / "sum.onnx"
    path.write_bytes(
        onnx_model(
            onnx_node("Relu", "w", "h"),
            onnx_node("Add", "w h", "y"),
            inputs=(),
            outputs=(onnx_tensor_type("y", 3, 5),),
            weights=(onnx_weight("w", 3, 5),),
        )
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
    path = tmp_path / "odd.onnx"
    path.write_bytes(
        onnx_model(
            onnx_node("Bessel", "w", "y"),
            inputs=(),
            outputs=(onnx_tensor_type("y", 3),),
            weights=(onnx_weight("w", 3),),
        )
    )
    assert read_onnx(path).flops.sum() == 3
    with pytest.raises(InputError, match="no rule for the gradient of Bessel"):
        read_onnx(path, train=True)


def test_a_model_without_parameters_cannot_be_trained(tmp_path: Path) -> None:
    path = tmp_path / "none.onnx"
    x, y = onnx_tensor_type("x", 3), onnx_tensor_type("y", 3)
    path.write_bytes(onnx_model(onnx_node("Relu", "x", "y"), inputs=(x,), outputs=(y,)))
    with pytest.raises(InputError, match="nothing to train"):
        read_onnx(path, train=True)
    with pytest.raises(InputError, match='unknown optimizer "adams": did you mean "adam"'):
        read_onnx(path, train=True, optimizer="adams")
    with pytest.raises(InputError, match="--optimizer has no effect without --train"):
        read_onnx(path, optimizer="adam")


def test_a_cycle_is_named_and_a_value_made_twice(tmp_path: Path) -> None:
    path = tmp_path / "wrong.onnx"
    y = onnx_tensor_type("y", 3)
    path.write_bytes(
        onnx_model(
            onnx_node("Relu", "b", "a"), onnx_node("Tanh", "a", "b"), inputs=(), outputs=(y,)
        )
    )
    with pytest.raises(InputError) as raised:
        read_onnx(path)
    assert str(raised.value) == (
        f"{path}: a cycle of dependencies: node 0 (onnx.Relu) waits for node 1 (onnx.Tanh), "
        "and so again for node 0 (onnx.Relu)"
    )
    twice = onnx_node("Relu", "x", "a")
    path.write_bytes(onnx_model(twice, twice, inputs=(), outputs=(y,)))
    with pytest.raises(InputError, match="both put out a"):
        read_onnx(path)


@pytest.mark.parametrize("sizes", [[1] * 100, [0, 1 << 62]])
def test_a_shape_that_numpy_has_no_arrays_of_is_unknown(sizes: list[int]) -> None:
    assert shape_of(sizes) is None
