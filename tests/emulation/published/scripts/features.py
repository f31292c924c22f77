"""Use the features of torch.distributed one after the other, and print which work.

Every rank has the same data, so that what comes of a collective is known among real ranks, in
backend mode and in wire mode alike, but for sums: there emulated ranks may add nothing.

    torchrun --nproc-per-node=2 features.py
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

FEATURES: dict[str, Callable[[], None]] = {}


def feature(name: str) -> Callable[[Callable[[], None]], None]:
    def add(run: Callable[[], None]) -> None:
        FEATURES[name] = run

    return add


def data(count: int = 12) -> Tensor:
    return torch.arange(1.0, count + 1)


def same(found: Tensor, expected: Tensor) -> None:
    assert torch.equal(found, expected), f"{found} is not {expected}"


def is_sum(found: Tensor, term: Tensor) -> None:
    """Check a sum of some ranks' equal terms."""
    ratio = found / term
    assert bool((ratio == ratio.flatten()[0]).all()), found
    assert 1 <= ratio.flatten()[0] <= WORLD, found


@feature("`all_reduce`")
def _() -> None:
    found = data()
    dist.all_reduce(found)
    is_sum(found, data())


@feature("`all_reduce`, asynchronous")
def _() -> None:
    found = [data(), data()]
    works = [dist.all_reduce(each, async_op=True) for each in found]
    for work, each in zip(works, found, strict=True):
        work.wait()
        is_sum(each, data())


@feature("`all_reduce` by maximum, minimum")
def _() -> None:
    for operator in (dist.ReduceOp.MAX, dist.ReduceOp.MIN):
        found = data()
        dist.all_reduce(found, operator)
        same(found, data())


@feature("`all_reduce_coalesced`")
def _() -> None:
    found = [data(), data(5)]
    dist.all_reduce_coalesced(found)
    is_sum(found[0], data())


@feature("`reduce`")
def _() -> None:
    found = data()
    dist.reduce(found, 0)
    if RANK == 0:
        is_sum(found, data())


@feature("`broadcast`")
def _() -> None:
    for root in range(WORLD):
        found = data()
        dist.broadcast(found, root)
        same(found, data())


@feature("`all_gather`")
def _() -> None:
    found = [torch.zeros(12) for _ in range(WORLD)]
    dist.all_gather(found, data())
    same(torch.cat(found), data().repeat(WORLD))


@feature("`all_gather_into_tensor` (`all_gather_single`), asynchronous")
def _() -> None:
    found = torch.zeros(12 * WORLD)
    dist.all_gather_single(found, data(), async_op=True).wait()
    same(found, data().repeat(WORLD))


@feature("`gather`")
def _() -> None:
    found = [torch.zeros(12) for _ in range(WORLD)] if RANK == 0 else None
    dist.gather(data(), found, 0)
    for each in found or ():
        same(each, data())


@feature("`scatter`")
def _() -> None:
    found = torch.zeros(12)
    dist.scatter(found, [data() + i for i in range(WORLD)] if RANK == 0 else None, 0)
    same(found, data() + RANK)


@feature("`reduce_scatter`")
def _() -> None:
    found = torch.zeros(12)
    dist.reduce_scatter(found, [data() for _ in range(WORLD)])
    is_sum(found, data())


@feature("`reduce_scatter_tensor` (`reduce_scatter_single`)")
def _() -> None:
    found = torch.zeros(12)
    dist.reduce_scatter_single(found, data().repeat(WORLD))
    is_sum(found, data())


@feature("`all_to_all_single`")
def _() -> None:
    found = torch.zeros(12 * WORLD)
    dist.all_to_all_single(found, data().repeat(WORLD))
    same(found, data().repeat(WORLD))


@feature("`all_to_all_single` of unequal parts")
def _() -> None:
    sends, receives = [i + 1 for i in range(WORLD)], [RANK + 1] * WORLD
    found = torch.zeros(sum(receives))
    dist.all_to_all_single(found, torch.ones(sum(sends)), receives, sends)
    same(found, torch.ones(sum(receives)))


@feature("`barrier`")
def _() -> None:
    dist.barrier()
    work = dist.barrier(async_op=True)
    work.wait()


@feature("`monitored_barrier`")
def _() -> None:
    dist.monitored_barrier(timeout=timedelta(seconds=20))


@feature("`send`, `recv`")
def _() -> None:
    found, other = torch.zeros(12), (RANK + 1) % WORLD if RANK % 2 == 0 else RANK - 1
    for receives in (RANK % 2, 1 - RANK % 2):
        dist.recv(found, other) if receives else dist.send(data(), other)
    assert bool(found.isfinite().all())


@feature("`isend`, `irecv`")
def _() -> None:
    found = torch.zeros(12)
    for work in (dist.isend(data(), (RANK + 1) % WORLD), dist.irecv(found, (RANK - 1) % WORLD)):
        work.wait()
    assert bool(found.isfinite().all())


@feature("`batch_isend_irecv`")
def _() -> None:
    found = torch.zeros(12)
    asked = [
        dist.P2POp(dist.isend, data(), (RANK + 1) % WORLD),
        dist.P2POp(dist.irecv, found, (RANK - 1) % WORLD),
    ]
    for work in dist.batch_isend_irecv(asked):
        work.wait()
    assert bool(found.isfinite().all())


@feature("`broadcast_object_list`")
def _() -> None:
    held = [{"of": "all"}]
    dist.broadcast_object_list(held, WORLD - 1)
    assert held == [{"of": "all"}]


@feature("`all_gather_object`")
def _() -> None:
    found = [None] * WORLD
    dist.all_gather_object(found, {"of": "all"})
    assert found == [{"of": "all"}] * WORLD


@feature("`gather_object`")
def _() -> None:
    found = [None] * WORLD if RANK == 0 else None
    dist.gather_object("of all", found, 0)
    assert RANK or found == ["of all"] * WORLD


@feature("`scatter_object_list`")
def _() -> None:
    found = [None]
    dist.scatter_object_list(found, list(range(WORLD)) if RANK == 0 else None, 0)
    assert found == [RANK]


@feature("`new_group`")
def _() -> None:
    group = dist.new_group([0, 1])
    if RANK < 2:
        found = data()
        dist.all_reduce(found, dist.ReduceOp.MAX, group=group)
        same(found, data())


@feature("`new_subgroups`")
def _() -> None:
    group, _ = dist.new_subgroups(2)
    found = [torch.zeros(12) for _ in range(2)]
    dist.all_gather(found, data(), group=group)
    same(torch.cat(found), data().repeat(2))


@feature("keys of the store")
def _() -> None:
    store = dist.distributed_c10d._get_default_store()
    store.set(f"of {RANK}", "something")
    assert store.get(f"of {RANK}") == b"something"
    assert store.add("count", 1) >= 1


@feature("coalescing, `get_future`")
def _() -> None:
    found = data()
    future = dist.all_reduce(found, async_op=True).get_future()
    future.then(lambda done: done.value()[0].mul_(2)).wait()
    is_sum(found, 2 * data())


@feature("functional collectives")
def _() -> None:
    group = dist.group.WORLD
    is_sum(functional.wait_tensor(functional.all_reduce(data(), "sum", group)), data())
    same(functional.all_gather_single(data(), 0, group).clone(), data().repeat(WORLD))
    part = functional.reduce_scatter_single(data().repeat(WORLD), "sum", 0, group)
    is_sum(part.clone(), data())


@feature("device mesh")
def _() -> None:
    mesh = init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=("data", "tensor"))
    found = data()
    dist.all_reduce(found, dist.ReduceOp.MAX, group=mesh["tensor"].get_group())
    same(found, data())


@feature("device mesh of three dimensions, flattened")
def _() -> None:
    names = ("pipeline", "data", "tensor")
    mesh = init_device_mesh("cpu", (1, WORLD // 2, 2), mesh_dim_names=names)
    flat = mesh["data", "tensor"]._flatten("both")
    for group, size in ((mesh["pipeline"], 1), (mesh["data"], WORLD // 2), (flat, WORLD)):
        found = torch.zeros(12 * size)
        dist.all_gather_single(found, data(), group=group.get_group())
        same(found, data().repeat(size))


@feature("DTensor, redistributed")
def _() -> None:
    mesh = init_device_mesh("cpu", (WORLD,))
    sharded = distribute_tensor(torch.ones(4 * WORLD, 3), mesh, [Shard(0)])
    assert sharded.to_local().shape == (4, 3)
    same(sharded.redistribute(mesh, [Replicate()]).to_local(), torch.ones(4 * WORLD, 3))
    assert sharded.redistribute(mesh, [Shard(1)]).to_local().shape[0] == 4 * WORLD


@feature("tensor parallel")
def _() -> None:
    module = nn.Sequential(nn.Linear(4, 8 * WORLD))
    parallelize_module(module, init_device_mesh("cpu", (WORLD,)), {"0": ColwiseParallel()})
    module(torch.ones(2, 4)).sum().backward()


def train(model: nn.Module, optimizer: torch.optim.Optimizer | None = None, steps: int = 3) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 8)).square().mean()
        loss.backward()
        optimizer.step()
    assert bool(loss.isfinite())


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


@feature("DDP")
def _() -> None:
    train(DistributedDataParallel(network()))


@feature("DDP: `no_sync`")
def _() -> None:
    model = DistributedDataParallel(network())
    with model.no_sync():
        model(torch.ones(2, 8)).sum().backward()
    train(model)


@feature("DDP: `find_unused_parameters`, `static_graph`")
def _() -> None:
    train(DistributedDataParallel(network(), find_unused_parameters=True))
    train(DistributedDataParallel(network(), static_graph=True))


@feature("DDP: hook that compresses to half precision")
def _() -> None:
    model = DistributedDataParallel(network())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train(model)


@feature("DDP: PowerSGD")
def _() -> None:
    model = DistributedDataParallel(network())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train(model, steps=5)


@feature("DDP: `join`")
def _() -> None:
    model = DistributedDataParallel(network())
    with Join([model]):
        train(model)


@feature("model averaging")
def _() -> None:
    model = network()
    train(model)  # parameters without a gradient are left out
    averager = PeriodicModelAverager(period=2, warmup_steps=0)
    averager.average_parameters(model.parameters())


@feature("`ZeroRedundancyOptimizer`, its state consolidated")
def _() -> None:
    model = DistributedDataParallel(network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    train(model, optimizer)
    optimizer.consolidate_state_dict(0)


@feature("FSDP2: `fully_shard`")
def _() -> None:
    model = network()
    for layer in (model[0], model[2]):
        fully_shard(layer)
    train(fully_shard(model))


@feature("HSDP: `fully_shard` on a mesh of two dimensions")
def _() -> None:
    mesh = init_device_mesh("cpu", (WORLD // 2, 2), mesh_dim_names=("replicas", "shards"))
    model = network()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    train(fully_shard(model, mesh=mesh))


@feature("sharded state of FSDP2, saved and loaded again")
def _() -> None:
    model = fully_shard(network())
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, 0)
    parameters, _ = get_state_dict(model, [])
    before = parameters["0.weight"].to_local().clone()
    checkpoint.save(parameters, checkpoint_id=folder[0])
    parameters["0.weight"].to_local().zero_()
    checkpoint.load(parameters, checkpoint_id=folder[0])
    same(parameters["0.weight"].to_local(), before)


@feature("branches by rank")
def _() -> None:
    first = dist.new_group([0])
    group = dist.new_group(list(range(WORLD // 2, WORLD)))
    if RANK == 0:
        dist.barrier(group=first)
        dist.broadcast(data(), 0)
    else:
        found = torch.zeros(12)
        dist.broadcast(found, 0)
    if RANK >= WORLD // 2:
        dist.all_reduce(data(), group=group)
    dist.barrier()


@feature("pipeline stages")
def _() -> None:
    torch.manual_seed(0)
    example = torch.zeros(2, 8).requires_grad_(RANK > 0)
    stage = PipelineStage(nn.Linear(8, 8), RANK, WORLD, torch.device("cpu"), input_args=(example,))
    schedule = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss)
    if RANK == 0:
        schedule.step(torch.ones(4, 8))
    else:
        schedule.step(target=torch.ones(4, 8)) if RANK == WORLD - 1 else schedule.step()


@feature("`checkpoint.save`, `async_save`")
def _() -> None:
    state = {"model": network().state_dict()}
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, 0)
    checkpoint.save(state, checkpoint_id=folder[0])
    checkpoint.async_save(state, checkpoint_id=folder[0] + "/again").result()


@feature("groups made again")
def _() -> None:
    dist.barrier()
    dist.destroy_process_group()
    dist.init_process_group("gloo")
    found = data()
    dist.all_reduce(found, dist.ReduceOp.MAX)
    same(found, data())


def main() -> None:
    asked = sys.argv[1:] or list(FEATURES)
    for name in asked:
        why = ""
        try:
            FEATURES[name]()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
        if RANK == 0:
            print(json.dumps({"feature": name, "why": why}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    RANK, WORLD = dist.get_rank(), dist.get_world_size()
    main()
