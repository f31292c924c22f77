"""The software stack of a prediction: which one it is, and what it changes."""

from __future__ import annotations

from typing import Any

import pytest

from paracosm.cluster.hardware import find_hardware
from paracosm.cluster.hardware.kernels import load_kernels
from paracosm.errors import InputError
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.graph import Graph, Op, TensorArgument, encode_arguments
from paracosm.graphs.transformer.ops import product
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.run import run_prediction
from paracosm.prediction.view import job_sentence
from paracosm.profiling.datasheets import durations_on

LLAMA = {"model": "llama-8b", "batch": 1, "hardware": "dgx-h100"}


def predicted(**asked: Any) -> Any:
    config = PredictConfig(**asked)
    config.check()
    return run_prediction(config, seed=0).summary


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({**LLAMA, "strategy": "fsdp", "workers": (8,)}, "pytorch-compile"),
        ({**LLAMA, "strategy": "tp=8", "workers": (8,)}, "megatron-te"),
        ({**LLAMA, "strategy": "dp=2, pp=4"}, "megatron-te"),
        (
            {"model": "llama-8b", "hardware": "dgx-h100", "strategy": "auto", "workers": (8,)},
            "megatron-te",
        ),
        ({**LLAMA, "stack": "deepspeed", "strategy": "tp=8"}, "deepspeed"),
        ({**LLAMA, "model": "mpt-7b"}, "llm-foundry"),
        ({**LLAMA, "hardware": "tpu-v5p"}, "maxtext"),
        ({"model": "resnet50", "hardware": "dgx-h100"}, "pytorch-eager"),
    ],
)
def test_the_usual_stack_is_by_the_model_the_device_and_the_strategy(
    asked: dict[str, Any], expected: str
) -> None:
    assert PredictConfig(**asked).software_name == expected


def test_the_answer_names_its_stack_and_where_it_is_from() -> None:
    summary = predicted(**LLAMA, strategy="tp=2, dp=2")
    assert summary.stack == "megatron-te"
    assert "in bfloat16 with adamw, by megatron-te." in job_sentence(summary)
    assert summary.durations["software"].startswith("megatron-te, by default: NVIDIA Megatron")
    asked = predicted(**LLAMA, strategy="tp=2, dp=2", stack="megatron-te")
    assert asked.durations["software"].startswith("megatron-te: NVIDIA Megatron")
    assert asked.iteration_time == summary.iteration_time


def test_eager_ops_take_longer_than_fused_ones_and_better_kernels_less() -> None:
    def seconds(stack: str) -> float:
        return float(predicted(**LLAMA, strategy="fsdp", workers=(8,), stack=stack).iteration_time)

    assert seconds("pytorch-eager") > 1.05 * seconds("pytorch-compile")
    assert seconds("megatron-te") < seconds("pytorch-compile")


def test_float8_is_scaled_as_the_stack_scales_it() -> None:
    summary = predicted(**LLAMA, strategy="tp=2, float8=yes", stack="megatron-te")
    assert "float8=delayed" in summary.strategy
    assert summary.dtype == "bfloat16, layers in float8 (delayed)"
    summary = predicted(**LLAMA, strategy="tp=2, float8=rowwise", stack="torchtitan")
    assert "float8=rowwise" in summary.strategy


def test_only_what_is_multiplied_needs_a_peak() -> None:
    """A V100 has no bfloat16: it adds such numbers, and multiplies none; float64 has no peak."""
    v100 = find_hardware("v100-sxm-16gb")

    def graph(name: str, dtype: str, flops: int) -> Graph:
        tensors = [TensorArgument((64, 64), dtype)] * 2
        op = Op(name, encode_arguments(tensors, {}), flops, 4096, 4096)
        return build_graph([Node(0, op, "", "forward")], resident={}, provenance={}, where="")

    for dtype in ("bfloat16", "float64"):
        (added,) = durations_on(graph("aten.add.Tensor", dtype, 0), v100)
        assert added is not None
        with pytest.raises(InputError, match=f"no peak for {dtype}"):
            durations_on(graph("aten.mm.default", dtype, 2 * 64**3), v100)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({**LLAMA, "stack": "megatron"}, "unknown stack"),
        ({"model": "mlp", "stack": "megatron-te"}, "stack"),
        ({**LLAMA, "strategy": "tp=2, float8=mxfp8"}, "does not multiply numbers scaled so"),
        ({**LLAMA, "hardware": "dgx-a100", "strategy": "tp=2, float8=yes"}, "no peak for float8"),
        ({**LLAMA, "strategy": "tp=2, float8=fp8"}, "float8"),
    ],
)
def test_what_a_stack_or_device_has_not_is_refused_in_one_line(
    asked: dict[str, Any], message: str
) -> None:
    with pytest.raises((InputError, ValueError)) as error:
        predicted(**asked)
    assert message in str(error.value)


def test_a_tpu_is_driven_by_a_host_as_a_gpu_is() -> None:
    asked = {**LLAMA, "hardware": "tpu-v5p", "strategy": "fsdp", "workers": (8,)}
    summary = predicted(**asked)
    assert summary.launch > 0
    assert predicted(**asked, launch=0.1).iteration_time > summary.iteration_time


def test_a_tpu_keeps_its_clock_and_a_gpu_does_not() -> None:
    """A product of 8192^3 at the rate of v6e in kernels.yaml, and of H100 at 0.9 of it."""
    table = load_kernels().products["bfloat16"]
    assert table.rates["h100-sxm"] == pytest.approx(756, rel=0.01)
    op = product(8192, 8192, 8192)
    graph = build_graph(
        [Node(0, op, "h.0.mlp.up", "forward")], provenance={"source": "published sizes"}
    )
    computing, written = 2 * 8192**3, 2 * 8192**2
    for name, rate, bandwidth in (
        ("tpu-v6e", table.rates["tpu-v6e"] * 1e12, 1640e9),
        # 2,048 tiles in 16 waves
        ("h100-sxm", 0.9 * table.rates["h100-sxm"] * 1e12 * 2048 / (16 * 132), 3350e9),
    ):
        (duration,) = durations_on(graph, find_hardware(name))
        assert duration is not None
        expected = table.fixed + computing / rate + written / bandwidth
        assert duration.duration == pytest.approx(expected, rel=1e-6)


def test_adapters_leave_out_the_gradients_of_frozen_weights() -> None:
    """Four flops of six for each weight: frozen ones have no products for their gradients."""
    whole, tuned, forward = (
        predicted(**LLAMA, **more) for more in ({}, {"lora": 8}, {"train": False})
    )
    assert 0.55 < tuned.iteration_time / whole.iteration_time < 0.75
    assert 0.25 < forward.iteration_time / whole.iteration_time < 0.4
    assert "with adamw of adapters of rank 8" in job_sentence(
        predicted(**LLAMA, lora=8, workers=(2,))
    )
    assert forward.optimizer == "none"
    with pytest.raises(ValueError, match=r"lora: has no effect, leave it out: nothing is trained"):
        predicted(**LLAMA, train=False, lora=8)
    with pytest.raises(ValueError, match=r"adapters have a rank of 1 to 4,096, not 9,000"):
        predicted(**LLAMA, lora=9000)
    with pytest.raises(ValueError, match=r"lora: .* it concerns transformers by their published"):
        predicted(model="resnet50", hardware="dgx-h100", lora=8)
