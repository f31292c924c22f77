"""What DistributedDataParallel hides under a backward pass, against a calculation by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rank_processes import Ran

from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.summary import summarise

Run = Callable[..., Ran]

# Four layers, a bucket each, whose gradients come after 20, 40, 60 and 80 ms of backward pass.
SCRIPT = """
import sys, time, torch, torch.distributed as dist
dist.init_process_group(sys.argv[1])
torch.set_num_threads(1)
class Slow(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()
    @staticmethod
    def backward(context, gradient):
        time.sleep(20e-3)
        return gradient
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64, bias=False) for _ in range(4))
    def forward(self, x):
        for layer in self.layers:
            x = Slow.apply(layer(x))
        return x
model = torch.nn.parallel.DistributedDataParallel(Model(), bucket_cap_mb=0.001)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for _ in range(12):
    optimizer.zero_grad()
    model(torch.randn(8, 64)).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "more", "exposed", "hidden"),
    [
        # One comm worker: 20 to 50, 80, 110 and 140 ms, of which 60 are beside the backward pass.
        ("nccl", (), 60e-3, 60e-3),
        # Two: 20 to 50, 40 to 70, 60 to 90 and 80 to 110 ms.
        ("gloo", (), 30e-3, 60e-3),
        # Rank 3 comes after 30, 60, 90 and 120 ms: 30 to 60, 60 to 90, 90 to 120, 120 to 150 ms.
        ("nccl", ("worker 3: compute 1.5x slower",), 70e-3, 60e-3),
    ],
)
def test_exposed_and_hidden_are_what_they_should_be(
    run_rank: Run,
    tmp_path: Path,
    backend: str,
    more: tuple[str, ...],
    exposed: float,
    hidden: float,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    fields: dict[str, Any] = {"world_size": 8, "what_if": ("all_reduce: +30 ms", *more)}
    ran = run_rank(str(script), backend, **fields)
    assert ran.exit_code == 0, ran.err
    config = EmulateConfig.model_validate({"script": str(script), **fields})
    found = summarise(config, ran.records, 0)
    in_iteration = found["all_collectives"]["per_iteration"]
    # Forward pass, gradients and the wake-ups of a loaded machine come on top.
    assert in_iteration["exposed"] == pytest.approx(exposed, abs=6e-3)
    assert in_iteration["hidden"] == pytest.approx(hidden, abs=12e-3)
    assert found["iteration_time"]["median"] == pytest.approx(80e-3 + exposed, rel=0.1)
