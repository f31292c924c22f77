"""Train with PowerSGD in groups that are made anew many times; argument: how many."""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    torch.set_num_threads(1)
    for _ in range(int(sys.argv[1])):
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(64, 64))
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=2, start_powerSGD_iter=2
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(16, 64)).square().mean().backward()
            optimizer.step()
        assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
        # PyTorch frees the hook's closures on gloo's own thread, and aborts, without Paracosm too,
        # if they are then the last to hold the group, or if the interpreter ends meanwhile.
        time.sleep(0.05)
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
