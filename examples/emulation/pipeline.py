"""An ordinary script of a pipeline: a stage on each rank, by torch.distributed.pipelining.

torchrun --nproc-per-node=4 pipeline.py                                   # as it is meant
paracosm emulate --kinds --world-size 4 --bandwidth 10Gbit/s pipeline.py    # its stages in turn
"""

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--layers", default="3,2,2,1", help="of each stage")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--parts", type=int, default=8, help="micro-batches of a batch")
    parser.add_argument("--pad", type=float, default=0.0, help="ms that a layer rests beside")
    parser.add_argument("--times", type=Path, help="file for the seconds of iterations")
    options = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    layers = [int(count) for count in options.layers.split(",")]
    model = nn.Sequential(
        *(Layer(options.width, options.pad * 1e-3) for _ in range(layers[rank % len(layers)]))
    )
    stage = PipelineStage(model, rank, world, torch.device("cpu"))
    schedule = SCHEDULES[options.schedule](stage, options.parts, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    ends, losses = [], []
    for step in range(options.steps):
        inputs = torch.randn(options.batch, options.width)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(inputs)
        elif rank == world - 1:
            losses = []
            schedule.step(target=inputs, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        ends.append(time.monotonic())
        if losses and step % 5 == 4:
            print(f"step {step + 1}: loss {torch.stack(losses).mean().item():.3f}", flush=True)
    if options.times is not None and rank == 0:
        options.times.write_text(json.dumps([late - early for early, late in pairwise(ends)]))
    dist.destroy_process_group()


class Layer(nn.Module):
    """A linear layer; with `pad` it rests that many seconds beside, twice as long on the way back.

    So it takes the same time on any number of cores.
    """

    def __init__(self, width: int, pad: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.pad = pad

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x).relu()
        return Rest.apply(x, self.pad) if self.pad else x


class Rest(torch.autograd.Function):
    """Rests, and passes on what it is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seconds: float) -> Tensor:
        ctx.seconds = seconds
        time.sleep(seconds)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        time.sleep(2 * ctx.seconds)
        return gradient, None


if __name__ == "__main__":
    main()
