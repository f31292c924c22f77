"""What an iteration works on, counted by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from recordings import Row, iterations, recording

from paracosm.cli.app import main
from paracosm.emulation.device.batch import batch_of
from paracosm.emulation.device.recording import OP, Recording
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments


def op(name: str, *tensors: tuple[tuple[int, ...], str]) -> Op:
    return Op(name, encode_arguments([TensorArgument(*tensor) for tensor in tensors], {}), 0, 8, 8)


def lookup(rows: int, *shape: int) -> Op:
    return op("aten.embedding.default", ((rows, 64), "float32"), (shape, "int64"))


PRODUCT = op("aten.mm.default", ((64, 64), "float32"), ((64, 64), "float32"))
CONVOLUTION = op(
    "aten.convolution.default", ((32, 3, 224, 224), "float32"), ((64, 3, 7, 7), "float32")
)


def of(*ops: Op | tuple[Op, str]) -> Recording:
    rows: Sequence[Row] = [
        (OP, 0, *entry) if isinstance(entry, tuple) else (OP, 0, entry) for entry in ops
    ]
    return recording(iterations(rows), world=8)


MICRO_BATCH = (lookup(100, 16), lookup(1000, 4, 16), PRODUCT, (lookup(1000, 4, 16), "backward"))


def test_tokens_are_those_of_all_micro_batches_but_not_positions_or_recomputed_ones() -> None:
    batch = batch_of([of(*MICRO_BATCH, *MICRO_BATCH)], 8)
    assert batch is not None
    assert (batch.count, batch.unit) == (2 * 4 * 16 * 8, "tokens")
    assert batch.origin == (
        "counted: 128 tokens in an iteration of a rank, which the first embedding (1,000 x 64) "
        "looks up"
    )


def test_ranks_of_tensor_parallelism_and_stages_share_tokens() -> None:
    first = replace(of(*MICRO_BATCH), sharing=2)
    batch = batch_of([first, of(PRODUCT)], 8)  # two stages of two ranks, for two replicas
    assert batch is not None
    assert batch.count == 4 * 16 * 2
    assert batch.origin.endswith("2 ranks of tensor parallelism share them")


def test_images_are_what_the_first_convolution_takes() -> None:
    batch = batch_of([of(CONVOLUTION, lookup(10, 5), CONVOLUTION, PRODUCT)], 8)
    assert batch is not None
    assert (batch.count, batch.unit) == (2 * 32 * 8, "images")


@pytest.mark.parametrize("ops", [(PRODUCT, lookup(10, 5)), (op("aten.relu.default"),)])
def test_nothing_is_guessed(ops: tuple[Op, ...]) -> None:
    assert batch_of([of(*ops)], 8) is None


TENSOR_PARALLEL = """
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

torch.distributed.init_process_group("nccl")
mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("data", "tensor"))
model = nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 8)).cuda()
parts = {"0": RowwiseParallel(input_layouts=Replicate()), "1": ColwiseParallel()}
parallelize_module(model, mesh["tensor"], parts)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.randint(64, (3, 5), device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
def test_a_script_says_which_ranks_share_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(TENSOR_PARALLEL)
    command = ["emulate", "--hardware", "h100-sxm", "--world-size", "4", "--json"]
    assert main([*command, "--output", "none", str(script)]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["batch"]["count"] == 3 * 5 * 2  # of two replicas
    assert summary["throughput"] == pytest.approx(30 / summary["iteration_time"])
