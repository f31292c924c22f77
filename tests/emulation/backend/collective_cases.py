"""Every collective, called as a script does on a rank that holds what all ranks hold.

As a program it runs them on real gloo processes, and on ranks of an emulated job, and saves what
the ranks had of each:

    python collective_cases.py FOLDER 2 3
"""

from __future__ import annotations

import datetime
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import _coalescing_manager
from value_cases import value_cases

from paracosm.emulation.config import EmulateConfig, Setting
from paracosm.emulation.rank.prepare import prepare

Case = Callable[[int], list[Any]]

SUM, PRODUCT, MIN, MAX = (
    *(dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT),
    *(dist.ReduceOp.MIN, dist.ReduceOp.MAX),
)
BITS = {"band": dist.ReduceOp.BAND, "bor": dist.ReduceOp.BOR, "bxor": dist.ReduceOp.BXOR}
REAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WHOLE = (torch.int8, torch.uint8, torch.int32, torch.int64)


def cases() -> dict[str, Case]:
    """Return what to call, by name; each returns what the calling rank then has."""
    found: dict[str, Case] = value_cases()
    for dtype in (*REAL, *WHOLE):
        for name, op in {"sum": SUM, "product": PRODUCT, "min": MIN, "max": MAX}.items():
            found[f"all_reduce {name} {dtype}"] = _all_reduce(dtype, op)
    for dtype in WHOLE:
        for name, op in BITS.items():
            found[f"all_reduce {name} {dtype}"] = _all_reduce(dtype, op)
    found["all_reduce avg"] = _all_reduce(torch.float32, dist.ReduceOp.AVG)
    found["all_reduce sum complex"] = _all_reduce(torch.complex64, SUM)
    found["all_reduce large"] = lambda world: _reduced(torch.arange(100_000.0), SUM)
    found["all_reduce empty"] = lambda world: _reduced(torch.zeros(0), SUM)
    found["all_reduce transposed"] = lambda world: _reduced(_data((3, 4)).t(), SUM)
    found |= {
        function.__name__: function
        for function in (
            *(all_reduce_async, reduce_at_root, broadcast, broadcast_of_another),
            *(all_gather, all_gather_transposed, all_gather_single, all_gather_complex),
            *(all_gather_truths, all_gather_empty, reduce_scatter, reduce_scatter_single),
            *(gather, scatter, all_to_all, all_to_all_single, all_to_all_uneven),
            *(ring, ring_in_a_batch, from_anybody, echo_of_integers, barriers, objects),
            *(coalesced_all_reduce, coalesced_all_gather, coalesced_reduce_scatter),
            *(coalesced_in_a_block, functional_collectives, of_a_subgroup),
        )
    }
    return found


def all_reduce_async(world: int) -> list[Any]:
    works, tensors = [], [_data((5,)) + i for i in range(3)]
    for tensor in tensors:
        works.append(dist.all_reduce(tensor, async_op=True))
    for work in works:
        work.wait()
    return [*tensors, all(work.is_completed() for work in works)]


def reduce_at_root(world: int) -> list[Any]:
    tensor = _data((4,))
    dist.reduce(tensor, 0, op=PRODUCT)
    return [tensor] if dist.get_rank() == 0 else []


def broadcast(world: int) -> list[Any]:
    tensor = _data((4, 2))
    dist.broadcast(tensor, 0)
    return [tensor]


def broadcast_of_another(world: int) -> list[Any]:
    tensor = _data((4, 2))
    dist.broadcast(tensor, 1)
    return [tensor]


def all_gather(world: int) -> list[Any]:
    outputs = [torch.zeros(3, 2) for _ in range(world)]
    dist.all_gather(outputs, _data((3, 2)))
    return outputs


def all_gather_transposed(world: int) -> list[Any]:
    outputs = [torch.zeros(2, 3) for _ in range(world)]
    dist.all_gather(outputs, _data((3, 2)).t().contiguous())
    return outputs


def all_gather_single(world: int) -> list[Any]:
    rows = torch.zeros(world * 3, 2)
    dist.all_gather_into_tensor(rows, _data((3, 2)))
    return [rows]


def all_gather_complex(world: int) -> list[Any]:
    outputs = [torch.zeros(4, dtype=torch.complex64) for _ in range(world)]
    dist.all_gather(outputs, _data((4,), torch.complex64))
    return outputs


def all_gather_truths(world: int) -> list[Any]:
    outputs = [torch.zeros(4, dtype=torch.bool) for _ in range(world)]
    dist.all_gather(outputs, torch.tensor([True, False, True, True]))
    return outputs


def all_gather_empty(world: int) -> list[Any]:
    output = torch.zeros(0, 3)
    dist.all_gather_into_tensor(output, torch.zeros(0, 3))
    return [output]


def reduce_scatter(world: int) -> list[Any]:
    output = torch.zeros(3)
    dist.reduce_scatter(output, [_data((3,)) + i for i in range(world)])
    return [output]


def reduce_scatter_single(world: int) -> list[Any]:
    output, largest = torch.zeros(2, 3), torch.zeros(2, 3)
    dist.reduce_scatter_tensor(output, _data((2 * world, 3)))
    dist.reduce_scatter_tensor(largest, _data((2 * world, 3)), op=MAX)
    return [output, largest]


def gather(world: int) -> list[Any]:
    at_root = [torch.zeros(3) for _ in range(world)] if dist.get_rank() == 0 else None
    dist.gather(_data((3,)), at_root, dst=0)
    dist.gather(_data((3,)), None if dist.get_rank() != 1 else [torch.zeros(3)] * world, dst=1)
    return at_root or []


def scatter(world: int) -> list[Any]:
    output = torch.zeros(3)
    dist.scatter(output, [_data((3,)) + i for i in range(world)] if not dist.get_rank() else None)
    return [output] if dist.get_rank() == 0 else []


def all_to_all(world: int) -> list[Any]:
    outputs = [torch.zeros(2, 2) for _ in range(world)]
    dist.all_to_all(outputs, [_data((2, 2))] * world)
    return outputs


def all_to_all_single(world: int) -> list[Any]:
    output = torch.zeros(2 * world, 2)
    dist.all_to_all_single(output, _data((2, 2)).repeat(world, 1))
    return [output]


def all_to_all_uneven(world: int) -> list[Any]:
    # rank r sends i + 1 rows to rank i, so that it gets r + 1 from each; all rows are alike
    sent = [i + 1 for i in range(world)]
    received = [dist.get_rank() + 1] * world
    output = torch.zeros(sum(received), 2)
    dist.all_to_all_single(output, _data((1, 2)).repeat(sum(sent), 1), received, sent)
    return [output]


def ring(world: int) -> list[Any]:
    if world < 3:
        return []
    rank, output = dist.get_rank(), torch.zeros(5)
    sending = dist.isend(_data((5,)), (rank + 1) % world, tag=7)
    receiving = dist.irecv(output, (rank - 1) % world, tag=7)
    for work in (sending, receiving):
        assert work is not None
        work.wait()
    return [output]


def ring_in_a_batch(world: int) -> list[Any]:
    if world < 3:
        return []
    rank, output = dist.get_rank(), torch.zeros(5)
    ahead = dist.P2POp(dist.isend, _data((5,)) + 1, (rank + 1) % world)
    behind = dist.P2POp(dist.irecv, output, (rank - 1) % world)
    for work in dist.batch_isend_irecv([ahead, behind]):
        work.wait()
    return [output]


def from_anybody(world: int) -> list[Any]:
    if world < 3:
        return []
    rank, output = dist.get_rank(), torch.zeros(6)
    sending = dist.isend(_data((6,)), (rank + 1) % world)
    source = dist.recv(output)
    assert sending is not None
    sending.wait()
    return [output, source]


def echo_of_integers(world: int) -> list[Any]:
    rank, output = dist.get_rank(), torch.zeros(5, dtype=torch.int64)
    sending = dist.isend(torch.arange(5), (rank + 1) % world)
    dist.recv(output, (rank - 1) % world)
    assert sending is not None
    sending.wait()
    return [output]


def barriers(world: int) -> list[Any]:
    work = dist.barrier(async_op=True)
    assert work is not None
    work.wait()
    dist.barrier()
    return [work.is_completed()]


def objects(world: int) -> list[Any]:
    everybody: list[Any] = [None] * world
    dist.all_gather_object(everybody, {"loss": 1.5})
    told = [{"seed": 3}, "name"]
    dist.broadcast_object_list(told, src=0)
    told_by_another = [("a", 1)]
    dist.broadcast_object_list(told_by_another, src=1)
    at_root: list[Any] | None = [None] * world if dist.get_rank() == 0 else None
    dist.gather_object([1, 2], at_root, dst=0)
    given: list[Any] = [None]
    dist.scatter_object_list(given, [f"for {i}" for i in range(world)], src=0)
    return [everybody, told, told_by_another, at_root, given]


def coalesced_all_reduce(world: int) -> list[Any]:
    tensors = [_data((3,)), _data((2, 2))]
    dist.all_reduce_coalesced(tensors)
    return list(tensors)


def coalesced_all_gather(world: int) -> list[Any]:
    outputs = [[torch.zeros(3), torch.zeros(2, 2)] for _ in range(world)]
    dist.all_gather_coalesced(outputs, [_data((3,)), _data((2, 2))])
    return [tensor for output in outputs for tensor in output]


def coalesced_reduce_scatter(world: int) -> list[Any]:
    outputs = [torch.zeros(2), torch.zeros(3)]
    with _coalescing_manager():
        for output in outputs:
            dist.reduce_scatter_tensor(output, _data((world * len(output),)))
    return list(outputs)


def coalesced_in_a_block(world: int) -> list[Any]:
    tensors = [_data((3,)), _data((4,))]
    with _coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    with _coalescing_manager(async_ops=True) as block:
        for tensor in tensors:
            dist.all_reduce(tensor)
    block.wait()
    return list(tensors)


def functional_collectives(world: int) -> list[Any]:
    # the operators, since the functions around them load the compiler, which takes seconds
    call, group = torch.ops._c10d_functional, dist.group.WORLD.group_name
    results = [
        call.all_reduce(_data((3,)), "sum", group),
        *call.all_reduce_coalesced([_data((2,)), _data((3,))], "sum", group),
        call.all_gather_into_tensor(_data((3, 2)), world, group),
        call.reduce_scatter_tensor(_data((2 * world, 2)), "sum", world, group),
        call.broadcast(_data((3,)), 0, group),
        call.all_to_all_single(_data((1, 2)).repeat(world, 1), [1] * world, [1] * world, group),
    ]
    return [call.wait_tensor(result) for result in results]


def of_a_subgroup(world: int) -> list[Any]:
    pair, tensor = dist.new_group([0, 1]), _data((3,))
    if dist.get_rank() < 2:
        dist.all_reduce(tensor, group=pair)
        return [tensor, dist.get_world_size(pair), dist.get_rank(pair)]
    return [tensor]


def run(world: int) -> dict[str, list[Any] | str]:
    """Return what the real rank has of each case, or the error that it met."""
    results: dict[str, list[Any] | str] = {}
    for name, case in cases().items():
        try:
            results[name] = case(world)
        except Exception as error:  # some backends lack some collectives
            results[name] = f"{type(error).__name__}: {error}"
        dist.barrier()
    return results


def _all_reduce(dtype: torch.dtype, op: Any) -> Case:
    return lambda world: _reduced(_data((2, 3), dtype), op)


def _reduced(tensor: Tensor, op: Any) -> list[Any]:
    dist.all_reduce(tensor, op=op)
    return [tensor]


def _data(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
    """Return small numbers, some negative and none 0, that wrap where integers are short."""
    count = torch.Size(shape).numel()
    numbers = torch.arange(count, dtype=torch.float64) * 1.5 - 4.25
    if dtype in WHOLE:
        return (numbers * 9).to(torch.int64).to(dtype).reshape(shape)
    return numbers.to(dtype).reshape(shape)


def _be_rank(rank: int, world: int, folder: Path) -> None:
    store = dist.FileStore(str(folder / f"store{world}"), world)
    limit = datetime.timedelta(seconds=30)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=limit)
    results = run(world)
    torch.save(results, folder / f"gloo{world}.{rank}.pt")
    dist.barrier()


def _be_emulated(rank: int, world: int, folder: Path) -> None:
    config = EmulateConfig(script=Path(__file__), world_size=world, rank=(rank,))
    setting = Setting(config, 0, rank, folder / f"ours{world}.{rank}.records")
    os.environ.update(setting.environment())
    prepare(setting)
    dist.init_process_group("gloo")
    torch.save(run(world), folder / f"ours{world}.{rank}.pt")


def main() -> None:
    """Fork the ranks of some worlds, which load PyTorch once, and wait for all of them."""
    warnings.simplefilter("ignore")
    folder, worlds = Path(sys.argv[1]), [int(world) for world in sys.argv[2:]]
    children = []
    for world in worlds:
        for rank in range(world):
            children.append(_forked(_be_rank, rank, world, folder))
            children.append(_forked(_be_emulated, rank, world, folder))
    failed = [child for child in children if os.waitpid(child, 0)[1]]
    sys.exit(len(failed))


def _forked(be: Callable[[int, int, Path], None], rank: int, world: int, folder: Path) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        be(rank, world, folder)
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
