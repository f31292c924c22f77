"""A script that calls NCCL itself, on one stream of the fake device, in each of some iterations."""

from __future__ import annotations

import ctypes
import os

import torch
import torch.distributed as dist
from shim_world import NcclConfig, UniqueId
from torch.testing._internal.distributed.fake_pg import FakeStore

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
nccl = ctypes.CDLL(None)  # as PyTorch finds it: the loader has it already
device = ctypes.CDLL(os.environ["PARACOSM_CUDA_DRIVER"])
device.fake_stream.restype = ctypes.c_void_p
comm, config = ctypes.c_void_p(), NcclConfig(net_name=b"0")
arguments = (ctypes.byref(comm), world, UniqueId(), rank, ctypes.byref(config))
assert nccl.ncclCommInitRankConfig(*arguments) == 0
stream = ctypes.c_void_p(device.fake_stream())
weight = torch.nn.Parameter(torch.ones(250_000))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(5):
    weight.grad = torch.ones_like(weight)
    data = ctypes.c_void_p(weight.grad.data_ptr())
    assert nccl.ncclAllReduce(data, data, ctypes.c_size_t(250_000), 7, 0, comm, stream) == 0
    assert device.cuCtxSynchronize() == 0
    assert (weight.grad == world).all()
    optimizer.step()
