"""Plans of transformers: rates by hand, plans by hand, and plans that were measured."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from transformer_plans import (
    A100,
    Accelerator,
    Plan,
    dgx_a100,
    durations_on,
    predict_plan,
)

from paracosm.cluster import Link, switch
from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES, RESOURCES, Op
from paracosm.graphs.transformer import Transformer, transformer_graph
from paracosm.graphs.transformer.ops import product, streaming

MEASURED = Path(__file__).parents[2] / "data" / "vtrain" / "ground_truth_five.csv"
SMALL = Transformer(layers=4, width=256, heads=4, sequence=64, vocabulary=1000)
# 1 Tflop/s on two multiprocessors, 100 GB/s of which a norm reaches half.
TOY = Accelerator("toy", 1e12, 2, 100e9, {"layer_norm": 0.5}, 1.0)


def of_phases(plan: Plan) -> dict[str, float]:
    """Return seconds of a micro-batch by phase, on a GPU of its own."""
    graph = transformer_graph(plan.model, plan.micro_batch, plan.tensor)
    times = durations_on(TOY, graph)
    return {phase: float(times[graph.phase == code].sum()) for code, phase in enumerate(PHASES[:3])}


@pytest.mark.parametrize(
    ("columns", "busy"),
    [
        (256, 1.0),  # two tiles of 128 x 128: one wave, and full
        (384, 0.75),  # three of them: one and a half
        (512, 1.0),
        (200, 200 / 256),  # the second tile is cut off
    ],
)
def test_products_take_whole_waves(columns: int, busy: float) -> None:
    op = product(128, columns, 4096)
    assert TOY.seconds(op) == pytest.approx(2 * 128 * columns * 4096 / (1e12 * busy))


def test_products_of_thin_matrices_take_what_memory_lets_pass() -> None:
    op = product(128, 256, 1)
    assert TOY.seconds(op) == pytest.approx(2 * (128 + 256 + 128 * 256) / 100e9)


def test_a_batch_of_products_shares_the_waves() -> None:
    """Three products of one tile each fill one and a half waves."""
    assert TOY.seconds(product(128, 128, 4096, 3)) == pytest.approx(
        3 * 2 * 128 * 128 * 4096 / (1e12 * 0.75)
    )


def test_other_ops_pass_over_memory_at_the_share_of_their_kind() -> None:
    assert TOY.seconds(streaming("aten.add.Tensor", 60, 40)) == pytest.approx(1e-9)
    assert TOY.seconds(streaming("aten.native_layer_norm.default", 60, 40)) == pytest.approx(2e-9)


def test_a_product_of_unknown_shapes_is_refused() -> None:
    with pytest.raises(InputError, match=r"aten\.mm\.default: .* unknown shapes"):
        TOY.seconds(Op("aten.mm.default", flops=10))


def test_one_gpu_takes_the_sum_of_all() -> None:
    plan = Plan(SMALL, batch=6, micro_batch=2, recompute=False)
    time = of_phases(plan)
    expected = 3 * (time["forward"] + time["backward"]) + time["optimizer"]
    found = predict_plan(plan, TOY, switch(1))
    assert found.seconds == pytest.approx(expected)
    assert found.busy == pytest.approx(1.0)
    assert predict_plan(plan, TOY, switch(1), slowdown=2.0).seconds == pytest.approx(2 * expected)


def test_tensor_parallel_ranks_reduce_by_rings() -> None:
    """Eight of them, NCCL's 40.6 us and seven quarters of the bytes at 173 GB/s: two all-reduces
    forward and two backward in each layer, one of the embedding and one of the head's gradient."""
    model = Transformer(layers=2, width=512, heads=8, sequence=64, vocabulary=1000)
    plan = Plan(model, batch=2, micro_batch=2, tensor=8, recompute=False)
    graph = transformer_graph(model, 2, 8)
    size = 2 * 2 * 64 * 512
    reduced = 40.6e-6 + 1.75 * size / (0.735 * 235e9)
    count = int((graph.resource == RESOURCES.index("communication")).sum())
    assert count == 2 * 4 + 2
    expected = durations_on(TOY, graph).sum() + count * reduced
    assert predict_plan(plan, TOY, dgx_a100(8)).seconds == pytest.approx(expected)


def test_where_ops_are_shorter_than_launches_the_host_decides() -> None:
    """A second for each op, far longer than any: of the last alone the device's time is seen."""
    plan = Plan(SMALL, batch=6, micro_batch=2, recompute=False)
    graph = transformer_graph(SMALL, 2)
    update = graph.phase == PHASES.index("optimizer")
    launches = 3 * (~update).sum() + update.sum()
    last = durations_on(TOY, graph)[-1]
    found = predict_plan(plan, replace(TOY, launch=1.0), switch(1)).seconds
    assert found == pytest.approx(launches + last, abs=1e-9)


def test_recomputation_is_another_forward_pass_of_the_layers() -> None:
    plan = Plan(SMALL, batch=6, micro_batch=2)
    without = predict_plan(replace(plan, recompute=False), TOY, switch(1)).seconds
    again = predict_plan(plan, TOY, switch(1)).seconds - without
    graph = transformer_graph(SMALL, 2)
    forward = graph.phase == PHASES.index("forward")
    layers = np.array([graph.names[name].startswith("h.") for name in graph.name.tolist()])
    assert again >= 3 * durations_on(TOY, graph)[forward & layers].sum() * (1 - 1e-9)
    assert again <= 3 * of_phases(plan)["forward"] * (1 + 1e-9)


def test_data_parallel_replicas_reduce_all_gradients_at_the_end() -> None:
    """Two ranks, a ring: each sends half of the gradients twice."""
    plan = Plan(SMALL, batch=8, micro_batch=2, data=2, recompute=False)
    time = of_phases(plan)
    gradients = transformer_graph(SMALL, 2).resident["parameters"]
    expected = 2 * (time["forward"] + time["backward"]) + time["optimizer"] + gradients / 1e9
    found = predict_plan(plan, TOY, switch(2, 0, Link(bandwidth=1e9))).seconds
    assert found == pytest.approx(expected)


def test_a_pipeline_has_its_bubble() -> None:
    """Two stages and links that cost nothing: longer than half of the work, by less than the
    share of a stage that is idle at either end, were both alike, and the head on one of them."""
    plan = Plan(SMALL, batch=16, micro_batch=2, pipeline=2, recompute=False)
    time = of_phases(plan)
    work = 8 * (time["forward"] + time["backward"])
    found = predict_plan(plan, TOY, switch(2)).seconds
    assert work / 2 * (1 + 1 / 8) < found < work + time["optimizer"]


def test_published_plans_are_predicted_without_having_been_seen() -> None:
    """Eight tensor-parallel ranks in each machine: within a tenth, and most a little too short."""
    errors = []
    with MEASURED.open(newline="") as lines:
        for row in csv.DictReader(lines):
            model = Transformer(
                layers=int(row["# layers"]),
                width=int(row["hidden size"]),
                heads=int(row["attention heads"]),
                sequence=int(row["sequence length"]),
            )
            ways = (f"{way} parallelism" for way in ("tensor", "data", "pipeline"))
            plan = Plan(
                model,
                int(row["global batch"]),
                int(row["micro batch"]),
                *(int(row[way]) for way in ways),
            )
            found = predict_plan(plan, A100, dgx_a100(plan.gpus))
            errors.append(found.seconds / (float(row["iteration time (ms)"]) / 1e3) - 1)
            assert 0.3 < found.busy < 0.9
    assert max(map(abs, errors)) < 0.12
    assert float(np.mean(np.abs(errors))) < 0.09


def test_machines_share_their_adapters_between_their_gpus() -> None:
    cluster = dgx_a100(16)
    assert cluster.link("worker0", "worker7").bandwidth == 235e9
    assert cluster.link("worker0", "worker8").bandwidth == 12e9
    assert dgx_a100(16, adapters=8).link("worker0", "worker8").bandwidth == 24e9
    with pytest.raises(InputError, match="20 GPUs do not fill machines of 8; 16 would"):
        dgx_a100(20)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tensor": 3}, "tensor=3 ranks do not divide 4 heads"),
        ({"micro_batch": 5}, "no multiple of 1 replicas x 5 examples; 15 is"),
        ({"data": 32}, "no multiple of 32 replicas x 1 examples; 32 is"),
        ({"micro_batch": 0}, "no multiple of 1 replicas x 0 examples"),
        ({"pipeline": 3}, "3 stages do not divide 4 layers; 2 would"),
    ],
)
def test_plans_that_do_not_divide_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Plan(SMALL, **{"batch": 16, "micro_batch": 1, **changes})  # type: ignore[arg-type]
