"""What is asked of published steps, where a table does not say all of it."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from published_steps import Question, Row, read_rows

from paracosm.graphs.transformer import Transformer

COLUMNS = (
    *("task", "model", "layers", "width", "heads", "kv_heads", "ffn", "gated", "vocab", "experts"),
    *("top_k", "seq", "gbs", "mbs", "accumulation", "dtype", "tp", "pp", "vp", "cp", "ep"),
    *("sharding", "recompute", "offload", "gpu", "gpus", "stack", "value", "step_s"),
    *("source", "note", "stack_version", "licence"),
)
LLAMA = {"layers": 80, "width": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "gated": 1}


def row(folder: Path, **entry: Any) -> Row:
    file = folder / "e2e_some.csv"
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, COLUMNS, restval="")
        writer.writeheader()
        writer.writerow(entry)
    rows, left = read_rows(file, "some")
    assert not left, left
    return rows[0]


def test_maxtext_on_a_tpu_has_the_sizes_of_its_time(tmp_path: Path) -> None:
    """global_parameter_scale=32: 2,560 x 4 wide, 8 x 4 heads of 256, 8,192 x 4, 16 x 2 layers."""
    asked = row(
        tmp_path,
        task="pretrain",
        model="maxtext-32b",
        gpu="TPU v5e",
        gpus=512,
        value=128,
        note="2 slices of v5e-256",
    )
    model = asked.model
    assert (model.width, model.heads, model.inner, model.layers) == (10240, 32, 32768, 32)
    assert 32.2e9 < model.parameters < 32.7e9
    assert str(asked.strategy) == "dp=512, zero=3, shard=256, recompute=yes"
    flops = (6 * model.parameters + 12 * 32 * 32 * 256 * 2048) * 4 * 2048
    assert asked.seconds == pytest.approx(flops / 128e12)
    assert (asked.slice, asked.device) == (256, "tpu-v5e")


def test_mlperf_adapters_share_layers_as_far_as_accumulation_leaves_ranks(tmp_path: Path) -> None:
    asked = row(
        tmp_path,
        **{**LLAMA, "task": "lora r=16", "model": "llama2-70b", "vocab": 32000, "seq": 8192},
        gbs=8,
        mbs=1,
        accumulation=2,
        gpu="NVIDIA H200-SXM5-141GB",
        gpus=8,
        stack="PyTorch",
        step_s=3.2,
    )
    expected = "dp=4, tp=2, sp=yes, async_tp=yes, microbatches=2, float8=delayed"
    assert (str(asked.strategy), asked.model.adapter) == (expected, 16)
    assert asked.model.adapter_dropout
    # Four flops for each weight, and attention's, of 8 examples on 8 devices.
    model = asked.model
    assert asked.flops == (4 * model.parameters + 6 * 80 * 8192 * 8192) * 8192


def test_mlperf_packs_two_examples_of_bert(tmp_path: Path) -> None:
    asked = row(
        tmp_path,
        task="pretrain",
        model="bert-large (MLPerf)",
        layers=24,
        width=1024,
        heads=16,
        kv_heads=16,
        ffn=4096,
        gated=0,
        vocab=30522,
        seq=512,
        gbs=4608,
        gpu="NVIDIA H100-SXM5-80GB",
        gpus=64,
        step_s=0.08,
    )
    assert str(asked.strategy) == "dp=64, zero=1, shard=8, float8=delayed"
    assert (asked.micro_batch, asked.model.causal, asked.model.scored) == (36, False, 0.15)


def test_rows_that_ask_the_same_are_one_question(tmp_path: Path) -> None:
    first, second = (
        row(
            tmp_path,
            **{**LLAMA, "task": "forward (no grad)", "model": "llama2-70b", "vocab": 32000},
            seq=8192,
            gbs=1,
            mbs=1,
            gpu="B200",
            gpus=1,
            step_s=seconds,
            stack="PyTorch eager",
        )
        for seconds in (0.5, 0.6)
    )
    assert first.question == second.question
    assert (type(first.question), first.task, first.seconds) == (Question, "forward", 0.5)
    assert isinstance(first.model, Transformer)
    tokens = 8192 * (6 * first.model.parameters + 6 * 80 * 8192 * 8192)
    assert first.flops == pytest.approx(tokens / 3)
