"""Flops and bytes of captured ops, by hand and by PyTorch's own counter."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from paracosm.graphs.capture import CaptureOptions, capture, training_step
from paracosm.graphs.capture.record import record
from paracosm.graphs.capture.step import TrainingStep
from paracosm.graphs.graph import PHASES, RESOURCES, Graph, Op
from paracosm.models import Workload

PRODUCTS = ("convolution", "addmm", "mm", "bmm", "scaled_dot_product")


def flops(graph: Graph, phase: str) -> int:
    """Return the flops of matrix products and convolutions in a phase."""
    return sum(
        graph.ops[op].flops
        for op, code in zip(graph.op, graph.phase, strict=True)
        if PHASES[code] == phase and any(word in graph.ops[op].name for word in PRODUCTS)
    )


class Apply(torch.nn.Module):
    """Calls a function, as a model would."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> object:
        return self.function(*inputs)  # type: ignore[operator]


def op_of(function: object, *inputs: torch.Tensor) -> Op:
    """Return the only op of a function that works."""
    module = Apply(function).eval()
    graph = record(TrainingStep(Workload(module, inputs, torch.sum, 1), None))
    busy = [
        op for op, code in zip(graph.op, graph.resource, strict=True) if RESOURCES[code] != "host"
    ]
    assert len(busy) == 1
    return graph.ops[busy[0]]


def test_resnet50_takes_four_billion_multiply_adds() -> None:
    graph = capture(CaptureOptions("resnet50", train=False))
    assert flops(graph, "forward") / 2 == pytest.approx(4.09e9, rel=0.005)
    assert flops(graph, "forward") <= graph.flops.sum() < 1.02 * flops(graph, "forward")


def test_products_are_counted_as_by_pytorch() -> None:
    from paracosm.graphs.capture import training_step

    options = CaptureOptions("resnet18", batch=2, shape=(3, 32, 32))
    graph, step = capture(options), training_step(options)
    with FlopCounterMode(display=False) as counter:
        step.run()
    assert flops(graph, "forward") + flops(graph, "backward") == counter.get_total_flops()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 4, 8])
def test_both_gradients_of_a_convolution_take_as_much_as_it(groups: int, transposed: bool) -> None:
    """Also of one in groups, whose weight's gradient PyTorch counts once for each of them."""
    kind = torch.nn.ConvTranspose2d if transposed else torch.nn.Conv2d
    module = kind(8, 16, 3, groups=groups, bias=False)
    inputs = torch.randn(2, 8, 10, 10, requires_grad=True)
    step = TrainingStep(Workload(module, (inputs,), torch.sum, 1), None)
    graph = record(step)
    # Each of the input's or output's elements meets 3 x 3 elements of each channel of its group.
    moved = 8 * 10 * 10 * 16 // groups if transposed else 16 * 8 * 8 * 8 // groups
    once = 2 * 2 * moved * 9
    assert flops(graph, "forward") == once
    assert flops(graph, "backward") == 2 * once


def test_a_perceptron_by_hand() -> None:
    graph = capture(CaptureOptions("mlp(hidden=512, layers=2)", batch=3, shape=(784,)))
    weights = [784 * 512, 512 * 512, 512 * 10]
    assert flops(graph, "forward") == 2 * 3 * sum(weights)
    # As much for the gradients of the weights, and of the inputs but for the first layer's.
    assert flops(graph, "backward") == 2 * 3 * (2 * sum(weights) - weights[0])
    parameters = sum(weights) + 512 + 512 + 10
    update = graph.phase == PHASES.index("optimizer")
    assert graph.flops[update].sum() == parameters
    assert graph.bytes_read[update].sum() == 2 * 4 * parameters
    assert graph.bytes_written[update].sum() == 4 * parameters


def test_attention_by_hand() -> None:
    graph = capture(CaptureOptions("tiny_models:gpt", batch=2))
    counts: dict[str, set[int]] = defaultdict(set)
    for op in graph.ops:
        counts[op.name].add(op.flops)
    # a product for 2 examples, 4 heads of 8, 8 x 8 tokens, of which a token sees half
    scores = 2 * 2 * 4 * 8 * 8 * 8 // 2
    fused = "aten._scaled_dot_product_flash_attention_for_cpu"
    assert counts[f"{fused}.default"] == {2 * scores}
    assert counts[f"{fused}_backward.default"] == {5 * scores}


def test_an_lstm_by_hand() -> None:
    """Four gates of 8, for 2 sequences of 5, from 3 inputs and 8 states; twice that backward."""
    module = torch.nn.LSTM(3, 8, batch_first=True)
    work = Workload(module, (torch.ones(2, 5, 3),), lambda outputs: outputs[0].sum(), 2)
    graph = record(TrainingStep(work, None))
    found = {op.name: op.flops for op in graph.ops if "rnn_layer" in op.name}
    once = 2 * (2 * 5) * (4 * 8) * (3 + 8)
    assert found == {
        "aten.mkldnn_rnn_layer.default": once,
        "aten.mkldnn_rnn_layer_backward.default": 2 * once,
    }


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_sparse_gradients_keep_their_rows_under_fake_tensors(optimizer: str) -> None:
    """Of 2 x 3 rows of 16 numbers out of 1000; as in a real step, were no row drawn twice."""
    options = CaptureOptions("tiny_models:bag", batch=2, optimizer=optimizer)
    step = training_step(options)
    step.workload.inputs[0].copy_(torch.arange(6).reshape(2, 3))
    step.run()
    fake, real = capture(options), record(step)
    assert [op.name for op in fake.ops] == [op.name for op in real.ops]
    assert fake.bytes_read.tolist() == real.bytes_read.tolist()
    (update,) = [op for op in fake.ops if '"alpha"' in op.arguments]
    assert update.flops == 6 * 16
    assert update.bytes_read == 4 * (6 * 16) + (4 * 6 * 16 + 8 * 6)
    assert update.bytes_written == 4 * 6 * 16


def test_element_wise_ops_count_one_for_each_element() -> None:
    op = op_of(torch.add, torch.ones(3, 4), torch.ones(4))
    assert (op.flops, op.bytes_read, op.bytes_written) == (12, 4 * (12 + 4), 4 * 12)


def test_reductions_count_one_for_each_element_that_goes_in() -> None:
    op = op_of(torch.sum, torch.ones(3, 4))
    assert (op.flops, op.bytes_read, op.bytes_written) == (12, 48, 4)


def test_expanded_tensors_count_their_storage() -> None:
    op = op_of(torch.exp, torch.ones(3, 1).expand(3, 100))
    assert (op.bytes_read, op.bytes_written) == (12, 1200)


def test_what_is_overwritten_is_not_read() -> None:
    op = op_of(torch.Tensor.copy_, torch.ones(5), torch.ones(5))
    assert (op.flops, op.bytes_read, op.bytes_written) == (0, 20, 20)


def test_a_gather_reads_what_it_returns() -> None:
    table, tokens = torch.ones(1000, 8), torch.tensor([1, 2, 3])
    op = op_of(lambda t, i: torch.nn.functional.embedding(i, t), table, tokens)
    assert (op.flops, op.bytes_read, op.bytes_written) == (0, 3 * 8 * 4 + 3 * 8, 3 * 8 * 4)
