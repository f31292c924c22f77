"""SyncBatchNorm's kernels on the CPU: those of two ranks are PyTorch's batch norm of the whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rank_processes import Ran
from torch.nn.functional import batch_norm

from paracosm.emulation.rank import sync_batch_norm as on_cpu
from paracosm.emulation.records import Collective

EPS, MOMENTUM = 1e-5, 0.1
Run = Callable[..., Ran]


def test_two_ranks_normalise_as_one_does_with_all_that_they_have() -> None:
    torch.manual_seed(0)
    values = torch.randn(7, 3, 4, 5, dtype=torch.double).mul_(2).add_(1).requires_grad_()
    weight = torch.randn(3, dtype=torch.double, requires_grad=True)
    bias = torch.randn(3, dtype=torch.double, requires_grad=True)
    gradient = torch.randn(7, 3, 4, 5, dtype=torch.double)
    running = torch.zeros(3, dtype=torch.double), torch.ones(3, dtype=torch.double)
    whole = batch_norm(values, *running, weight, bias, True, MOMENTUM, EPS)
    whole.backward(gradient)

    with torch.no_grad():
        parts, gradients = values.split([2, 5]), gradient.split([2, 5])
        means, deviations = map(
            torch.stack, zip(*(on_cpu.stats(part, EPS) for part in parts), strict=True)
        )
        counts = torch.tensor([40.0, 100.0])
        kept = torch.zeros(3, dtype=torch.double), torch.ones(3, dtype=torch.double)
        mean, deviation = on_cpu.gathered_stats(
            parts[0], means, deviations, *kept, MOMENTUM, EPS, counts
        )
        found = [on_cpu.normalised(part, weight, bias, mean, deviation, EPS) for part in parts]
        sums = [
            on_cpu.gradient_sums(*both, mean, deviation, weight, True, True, True)
            for both in zip(gradients, parts, strict=True)
        ]
        total, product, of_weight, of_bias = (sum(each) for each in zip(*sums, strict=True))
        back = [
            on_cpu.input_gradient(*both, mean, deviation, weight, total, product, counts)
            for both in zip(gradients, parts, strict=True)
        ]
    torch.testing.assert_close(torch.cat(found), whole.detach())
    torch.testing.assert_close(kept, running)
    torch.testing.assert_close(torch.cat(back), values.grad)
    torch.testing.assert_close(of_weight, weight.grad)
    torch.testing.assert_close(of_bias, bias.grad)


SCRIPT = """
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
torch.manual_seed(0)
values = torch.randn(6, 3, 4, device="cuda", requires_grad=True)
plain = nn.BatchNorm1d(3)
model = nn.SyncBatchNorm.convert_sync_batchnorm(plain).cuda()
model = nn.parallel.DistributedDataParallel(model, device_ids=[0])
loss = model(values).square().sum()
loss.backward()
torch.testing.assert_close(loss, nn.BatchNorm1d(3)(values).square().sum())  # others have the same
print("normalised")
"""


@pytest.mark.slow
def test_a_script_synchronises_where_the_cpu_is_its_gpu(run_rank: Run, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ran = run_rank(str(script), device="cpu")
    assert "normalised" in ran.out, ran.err
    kinds = [collective.kind for collective in ran.of(Collective)]
    assert kinds[-3:] == ["all_gather", "all_reduce", "all_reduce"]  # the last of DDP's gradients
