"""Train a small network as a pipeline, a stage on each rank."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--backend", default="gloo")
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--parts", type=int, default=8, help="micro-batches of a batch")
    parser.add_argument("--shapes", action="store_true", help="tell stages the shapes")
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(options.backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    module = nn.Sequential(nn.Linear(options.width, options.width), nn.Tanh())
    example = torch.zeros(options.batch // options.parts, options.width)
    stage = PipelineStage(
        module,
        rank,
        world,
        torch.device("cpu"),
        input_args=(example.requires_grad_(rank > 0),) if options.shapes else None,
    )
    schedule = SCHEDULES[options.schedule](stage, options.parts, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

    inputs = torch.randn(options.batch, options.width)
    losses: list[torch.Tensor] = []
    for _ in range(options.steps):
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(inputs)
        elif rank == world - 1:
            losses.clear()
            schedule.step(target=inputs.tanh(), losses=losses)
        else:
            schedule.step()
        optimizer.step()
    if losses:
        print(f"loss of the last stage {torch.stack(losses).mean().item():.6f}")
    print(f"gradient of rank {rank} {module[0].weight.grad.norm().item():.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
