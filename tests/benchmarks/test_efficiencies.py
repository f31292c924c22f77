"""What ops of NeuSight's tables compute and move, and what is read off their latencies."""

from __future__ import annotations

import pytest
from efficiencies import Sample, measured_table
from op_latencies import Row
from op_work import graph_of_shapes, passes_of

from paracosm.cluster.hardware import load_catalogue
from paracosm.graphs import Op

FLOAT = 4


def row(function: str, shapes: tuple[tuple[int, ...], ...], shape: tuple[int, ...]) -> Row:
    layer = function if function[0].isupper() else ""
    return Row(
        "x", "call_module", function, "h.0.x", True, 1e-3, 2e-3, 1e-4, (), layer, shapes, shape
    )


def test_a_linear_map_is_three_products_and_a_sum_of_gradients() -> None:
    (_, _, forward, _), (_, _, backward, _), (_, _, update, _) = passes_of(
        [row("Linear", ((8, 128, 64),), (8, 128, 256))]
    )
    assert forward.flops == 2 * 8 * 128 * 256 * 64
    assert backward.flops == 2 * forward.flops
    assert forward.bytes_read + forward.bytes_written == FLOAT * (1024 * 64 + 64 * 256 + 1024 * 256)
    # Read the sum and the gradient, write the sum.
    assert update.bytes_read + update.bytes_written == 3 * FLOAT * 64 * 256


@pytest.mark.parametrize(
    ("function", "shapes", "passes"),
    [
        ("tanh", ((16, 32),), 3.0),
        ("softmax", ((16, 32),), 6.0),
        ("mul", ((16, 32), (1,)), 2.0),  # with a number
        ("mul", ((16, 32), (16, 32)), 6.0),
        ("max", ((16, 32), (1,)), 10.0),
    ],
)
def test_a_backward_pass_moves_what_its_kernels_do(
    function: str, shapes: tuple[tuple[int, ...], ...], passes: float
) -> None:
    ops = passes_of([row(function, shapes, (16, 32))])
    assert [phase for _, phase, _, _ in ops] == ["forward", "backward"]
    backward = ops[1][2]
    assert backward.bytes_read + backward.bytes_written == passes * FLOAT * 16 * 32


def test_views_and_sums_launch_nothing_backward() -> None:
    assert passes_of([row("view", ((16, 32),), (32, 16))]) == []
    assert len(passes_of([row("add", ((16, 32), (16, 32)), (16, 32))])) == 1


def test_the_graph_goes_forward_then_back() -> None:
    first, second = row("Linear", ((8, 64),), (8, 64)), row("tanh", ((8, 64),), (8, 64))
    graph = graph_of_shapes([first, second])
    names = [graph.ops[code].name for code in graph.op.tolist()]
    assert names == [
        *("aten.mm.default", "aten.tanh.default"),
        *("aten.tanh_backward.default", "aten.mm.default", "aten.add_.Tensor"),
    ]


def test_shares_are_recovered_from_latencies_that_have_them() -> None:
    device = load_catalogue().devices["v100-pcie-32gb"]
    samples = [
        Sample(model, "product", op, 20e-6 + op.flops / (0.9 * device.peak("float32")))
        for model in ("a", "b", "c")
        for op in (Op("aten.mm.default", str(n), flops=10**9 * n) for n in (1, 4, 16, 64))
    ]
    found = measured_table({"v100-pcie-32gb": samples}).devices["v100-pcie-32gb"]["product"]
    assert found.compute == pytest.approx(0.9, rel=1e-3)
    assert found.fixed == pytest.approx(20e-6, rel=1e-2)
    assert found.spread == pytest.approx(0.0, abs=1e-2)
    assert found.ops == 4
