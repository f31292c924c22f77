"""All-reduce vectors of several lengths; with --again in a group that is made anew for each."""

from __future__ import annotations

import argparse
import sys

import torch
import torch.distributed as dist


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("lengths", type=int, nargs="+")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    for place, length in enumerate(options.lengths):
        if place and options.again:
            dist.destroy_process_group()
            dist.init_process_group("gloo")
        rank = dist.get_rank()
        vector = torch.full((length,), float(rank + 1))
        dist.all_reduce(vector)
        sys.stdout.write(f"rank {rank}: {length} {vector.unique().tolist()}\n")
        sys.stdout.flush()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
