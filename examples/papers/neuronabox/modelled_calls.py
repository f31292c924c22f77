"""A script that times single calls: those of its own process group beside PyTorch's fake one.

paracosm emulate --world-size 8 modelled_calls.py --calls 2000 --out FILE
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

BLOCK = 50  # calls in a row before it is the other's turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--fake", action="store_true", help="time the fake process group as well")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    tensor = torch.zeros(1)
    calls: dict[str, Callable[[], object]] = {"modelled": lambda: dist.all_reduce(tensor)}
    if options.fake:
        world = dist.group.WORLD
        fake = _fake_group()
        calls["modelled, below torch.distributed"] = lambda: world.allreduce([tensor]).wait()
        calls["fake, below torch.distributed"] = lambda: fake.allreduce([tensor]).wait()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(BLOCK):
            call()
    for _ in range(-(-options.calls // BLOCK)):
        for name, call in calls.items():
            seconds[name] += [_timed(call) for _ in range(min(BLOCK, options.calls))]
    options.out.write_text(json.dumps(seconds))
    dist.destroy_process_group()


def _fake_group() -> dist.ProcessGroup:
    """Return a fake process group; asked for by name, it would be replaced as any other."""
    from torch._C._distributed_c10d import FakeProcessGroup

    options = FakeProcessGroup.Options()
    return FakeProcessGroup._create_internal(dist.get_rank(), dist.get_world_size(), options)


def _timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
