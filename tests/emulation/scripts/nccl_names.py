"""Call what in torch.distributed looks for NCCL's process group, and print what comes of it."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

CALLS: dict[str, Callable[[], Any]] = {
    "is_nccl_available": lambda: dist.is_nccl_available(),
    "_get_process_group_uid": lambda: c10d._get_process_group_uid(dist.group.WORLD) in (-1, 0),
    "_add_ephemeral_timeout_for_all_pgs": lambda: c10d._add_ephemeral_timeout_for_all_pgs(
        datetime.timedelta(seconds=3)
    ),
    "_set_pg_timeout": lambda: c10d._set_pg_timeout(datetime.timedelta(seconds=30)),
    "_new_process_group_helper": lambda: dist.new_group([0, 1], pg_options=options()).size(),
    "_object_to_tensor": lambda: c10d._object_to_tensor([3], torch.device("cpu"), None)[0].dtype,
    "_tensor_to_object": lambda: read(),
    "_abort_process_group": lambda: c10d._abort_process_group(),
}


def options() -> Any:
    from torch.distributed import ProcessGroupNCCL

    made = ProcessGroupNCCL.Options(is_high_priority_stream=True)
    made.config.cta_policy = dist.ProcessGroupNCCL.NCCL_CTA_POLICY_ZERO
    made.config.min_ctas = 4
    return made if dist.get_backend() == "nccl" else None


def read() -> Any:
    return c10d._tensor_to_object(*c10d._object_to_tensor([3], torch.device("cpu"), None), None)


def main() -> None:
    dist.init_process_group(sys.argv[1], pg_options=None)
    for _ in range(2):
        dist.all_reduce(torch.ones(4))
    world = dist.group.WORLD
    print("is nccl", isinstance(world, c10d.ProcessGroupNCCL))
    for name, call in CALLS.items():
        try:
            print(name, call())
        except BaseException as error:
            print(name, "failed:", type(error).__name__, error)


if __name__ == "__main__":
    main()
