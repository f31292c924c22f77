"""What of an execution trace are parameters: whatever way an optimizer updates them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.graphs.importers.pytorch.ops import book, observed_step
from paracosm.graphs.importers.pytorch.read import read_execution_trace
from paracosm.graphs.importers.pytorch.trace import parse_trace

DATA = Path(__file__).parents[2] / "data" / "importers"

FOREACH = "aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other, *, Scalar alpha=1) -> ()"
FUSED = (
    "aten::_fused_adam_(Tensor(a!)[] self, Tensor(b!)[] grads, Tensor(c!)[] exp_avgs, "
    "Tensor(d!)[] exp_avg_sqs, Tensor(e!)[] max_exp_avg_sqs, Tensor[] state_steps, *, float lr, "
    "bool amsgrad, Tensor? grad_scale=None) -> ()"
)
PLAIN = "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"

PARAMETER, GRADIENT, MOMENT, SQUARE = 1000, 2000, 3000, 4000  # storages of the first of each


def tensors(first: int, sizes: Sequence[int]) -> list[list[Any]]:
    return [[first + at, first + at, 0, size, 4, "cuda:0"] for at, size in enumerate(sizes)]


def trace(sizes: Sequence[int], updates: Sequence[tuple[str, list[Any], list[Any]]]) -> bytes:
    """A trace of a forward pass that takes parameters of these sizes (in floats), a backward pass
    that adds to their gradients, and these calls of an optimizer: schema, inputs, outputs."""
    nodes: list[dict[str, Any]] = []

    def node(name: str, parent: int, schema: str = "", values: Any = (), made: Any = ()) -> int:
        number = len(nodes) + 1
        nodes.append(
            {
                "id": number,
                "name": name,
                "ctrl_deps": parent,
                "inputs": {"values": list(values), "shapes": [], "types": []},
                "outputs": {"values": list(made), "shapes": [], "types": []},
                "attrs": [{"name": "op_schema", "value": schema}],
            }
        )
        return number

    top = node("[pytorch|profiler|execution_trace|thread]", 1)
    activation = [1, 1, 0, 7, 4, "cuda:0"]
    for weight in tensors(PARAMETER, sizes):
        schema = "aten::mm(Tensor self, Tensor mat2) -> Tensor"
        node("aten::mm", top, schema, [activation, weight], [activation])
    for gradient in tensors(GRADIENT, sizes):
        passed = [5000 + gradient[0], 5000 + gradient[0], *gradient[2:]]
        node(
            "aten::mm", top, "aten::mm(Tensor self, Tensor mat2) -> Tensor", [activation], [passed]
        )
        around = node("torch::autograd::AccumulateGrad", top)
        node("aten::add_", around, PLAIN, [gradient, passed, 1], [gradient])
    step = node("Optimizer.step#SGD.step", top)
    for schema, values, made in updates:
        node(schema.partition("(")[0].rpartition(".")[0] or "aten::x", step, schema, values, made)
    return json.dumps({"schema": "1.0.2-chakra.0.0.4", "nodes": nodes}).encode()


def foreach(sizes: Sequence[int]) -> list[tuple[str, list[Any], list[Any]]]:
    return [(FOREACH, [tensors(PARAMETER, sizes), tensors(GRADIENT, sizes), -0.1], [])]


def fused(sizes: Sequence[int]) -> list[tuple[str, list[Any], list[Any]]]:
    lists = [tensors(first, sizes) for first in (PARAMETER, GRADIENT, MOMENT, SQUARE)]
    return [(FUSED, [*lists, [], [], 0.1, False, None], [])]


def plain(sizes: Sequence[int]) -> list[tuple[str, list[Any], list[Any]]]:
    pairs = zip(tensors(PARAMETER, sizes), tensors(GRADIENT, sizes), strict=True)
    return [(PLAIN, [weight, gradient, -0.1], [weight]) for weight, gradient in pairs]


def groups(sizes: Sequence[int]) -> list[tuple[str, list[Any], list[Any]]]:
    """Two parameter groups: a call for each, with halves of the lists."""
    weights, gradients = tensors(PARAMETER, sizes), tensors(GRADIENT, sizes)
    half = len(sizes) // 2
    parts = (slice(0, half), slice(half, None))
    return [(FOREACH, [weights[part], gradients[part], -0.1], []) for part in parts]


def twice(sizes: Sequence[int]) -> list[tuple[str, list[Any], list[Any]]]:
    """Weight decay, then the update."""
    return [*plain(sizes), *foreach(sizes)]


@pytest.mark.parametrize("update", [foreach, fused, plain, groups, twice])
@given(sizes=st.lists(st.integers(1, 10**6), min_size=2, max_size=6))
def test_parameters_are_all_that_the_optimizer_updates(update: Any, sizes: list[int]) -> None:
    resident = resident_of(trace(sizes, update(sizes)))
    assert resident["parameters"] == 4 * sum(sizes)
    assert resident["gradients"] == 4 * sum(sizes)
    # Adam has two moments; no other of these optimizers has a state.
    assert resident["optimizer"] == (8 * sum(sizes) if update is fused else 0)
    assert resident["inputs"] == 4 * 7  # the activation that was there before


def resident_of(data: bytes) -> dict[str, int]:
    return book(observed_step(parse_trace(data, "et.json"), None, "et.json").units)[2]


def test_views_of_one_flat_parameter_count_as_far_as_they_reach() -> None:
    # Two views of one storage: 100 floats from 0, 50 from 100.
    views = [[1, PARAMETER, 0, 100, 4, "cuda:0"], [2, PARAMETER, 100, 50, 4, "cuda:0"]]
    resident = resident_of(trace([100], [(FOREACH, [views, tensors(GRADIENT, [100, 50]), 1], [])]))
    assert resident["parameters"] == 4 * 150


def test_a_foreach_of_a_real_trace_updates_every_parameter() -> None:
    # The classifier of ResNet-50, 2048 x 1000 weights and 1000 biases.
    graph = read_execution_trace(DATA / "ddp_et.json.gz")
    assert graph.resident["parameters"] >= 4 * (2048 * 1000 + 1000)


def stepped(ops: Sequence[int]) -> bytes:
    """A trace of steps with so many ops."""
    nodes: list[dict[str, Any]] = [{"id": 1, "name": "thread", "ctrl_deps": 1}]
    for number, count in enumerate(ops):
        nodes.append({"id": len(nodes) + 1, "name": f"ProfilerStep#{number}", "ctrl_deps": 1})
        for _ in range(count):
            tensor = [9, 9, 0, 4, 4, "cpu"]
            nodes.append(
                {
                    "id": len(nodes) + 1,
                    "name": "aten::relu",
                    "ctrl_deps": 1,
                    "inputs": {"values": [tensor], "shapes": [[4]], "types": ["Tensor(float)"]},
                    "outputs": {"values": [tensor], "shapes": [[4]], "types": ["Tensor(float)"]},
                    "attrs": [{"name": "op_schema", "value": "aten::relu(Tensor x) -> Tensor"}],
                }
            )
    return json.dumps({"schema": "1.0.2-chakra.0.0.4", "nodes": nodes}).encode()


@given(ops=st.lists(st.integers(0, 3), min_size=1, max_size=6).filter(any))
def test_the_last_step_that_has_ops_is_read(ops: list[int]) -> None:
    parsed = parse_trace(stepped(ops), "et.json")
    found = observed_step(parsed, None, "et.json")
    last = max(number for number, count in enumerate(ops) if count)
    assert (found.number, len(found.units)) == (last, ops[last])
    assert found.ops_of == dict(enumerate(ops))
    for number, count in enumerate(ops):
        if count:
            assert len(observed_step(parsed, number, "et.json").units) == count
        else:
            with pytest.raises(InputError, match=f"step {number} has no ops; steps that have: "):
                observed_step(parsed, number, "et.json")


def test_the_command_says_which_steps_are_empty_or_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from paracosm.cli import main

    path = tmp_path / "et.json"
    path.write_bytes(stepped([3, 1, 0]))
    assert main(["graph", "import", str(path), "--out", str(tmp_path / "x.graph")]) == 0
    said = capsys.readouterr().out
    assert "step 1 of 0, 1, 2, no ops in step 2, it has 1 ops, step 0 3: --step 0" in said
