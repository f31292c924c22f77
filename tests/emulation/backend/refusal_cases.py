"""What gloo refuses: collectives by types, operators, layouts and sizes.

As a program it runs all cases on two real ranks, which call the same, and writes what rank 0 met,
with the version of PyTorch, as in tests/data/emulation/gloo_refusals.json; or on an emulated one:

    python refusal_cases.py gloo FILE
    python refusal_cases.py emulated FILE
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

WORLD = 2
TIME_LIMIT = 3  # seconds for which a rank waits for what the other refuses
TYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32),
    *(torch.uint64, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2),
)
OPERATORS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")

Case = Callable[[], Any]


def refusal_cases(rank: int) -> dict[str, Case]:
    """Return what to call on a rank of two, by name."""
    found: dict[str, Case] = {}
    for dtype in TYPES:
        for name in OPERATORS:
            for collective, call in _reductions(dtype, _operator(name)).items():
                found[f"{collective} {name} {dtype}"] = call
        for collective, call in _copies(dtype, rank).items():
            found[f"{collective} {dtype}"] = call
    for layout, make in _LAYOUTS.items():
        for place, use in _places(rank).items():
            found[f"{layout} {place}"] = lambda make=make, use=use: use(make())
    return found | _sizes(rank)


def _operator(name: str) -> Any:
    return dist._make_nccl_premul_sum(0.5) if name == "PREMUL_SUM" else getattr(dist.ReduceOp, name)


def _of(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.zeros(*(shape or (2,))).to(dtype)


def _reductions(dtype: torch.dtype, op: Any) -> dict[str, Case]:
    return {
        "all_reduce": lambda: dist.all_reduce(_of(dtype), op),
        "all_reduce_coalesced": lambda: dist.all_reduce_coalesced([_of(dtype)], op),
        "reduce": lambda: dist.reduce(_of(dtype), 0, op),
        "reduce_scatter": lambda: dist.reduce_scatter(_of(dtype), [_of(dtype)] * WORLD, op),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(
            _of(dtype), _of(dtype, 2 * WORLD), op
        ),
    }


def _copies(dtype: torch.dtype, rank: int) -> dict[str, Case]:
    def all_of() -> list[Tensor]:
        return [_of(dtype) for _ in range(WORLD)]

    def at_root() -> list[Tensor] | None:
        return all_of() if rank == 0 else None

    whole = 2 * WORLD
    return {
        "broadcast": lambda: dist.broadcast(_of(dtype), 0),
        "all_gather": lambda: dist.all_gather(all_of(), _of(dtype)),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(
            _of(dtype, whole), _of(dtype)
        ),
        "all_gather_coalesced": lambda: dist.all_gather_coalesced(
            [[each] for each in all_of()], [_of(dtype)]
        ),
        "gather": lambda: dist.gather(_of(dtype), at_root(), 0),
        "scatter": lambda: dist.scatter(_of(dtype), at_root(), 0),
        "all_to_all": lambda: dist.all_to_all(all_of(), all_of()),
        "all_to_all_single": lambda: dist.all_to_all_single(_of(dtype, whole), _of(dtype, whole)),
        "send": lambda: dist.recv(_of(dtype), 0) if rank else dist.send(_of(dtype), 1),
        "recv": lambda: dist.send(_of(dtype), 0) if rank else dist.recv(_of(dtype), 1),
    }


_LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "leaf": lambda: torch.zeros(2, 2).requires_grad_(),
    "result": lambda: torch.zeros(2, 2).requires_grad_() * 1,
    "transposed": lambda: torch.zeros(4, 2).t(),
    "strided": lambda: torch.zeros(8, 2)[::2],
    "sparse": lambda: torch.zeros(2, 2).to_sparse(),
}


def _places(rank: int) -> dict[str, Callable[[Tensor], Any]]:
    """Return the places of a tensor in the calls of collectives; all else fits to it."""

    def like(tensor: Tensor, times: int = 1) -> Tensor:
        return torch.zeros(times * tensor.shape[0], tensor.shape[1])

    def lists(first: Tensor) -> list[Tensor]:
        return [first, *(like(first) for _ in range(1, WORLD))]

    def at_root(tensors: list[Tensor]) -> list[Tensor] | None:
        return tensors if rank == 0 else None

    def part(tensor: Tensor) -> Tensor:
        return torch.zeros(tensor.shape[0] // WORLD, tensor.shape[1])

    gather, scatter = dist.all_gather_into_tensor, dist.reduce_scatter_tensor
    return {
        "all_reduce": lambda x: dist.all_reduce(x),
        "all_reduce_coalesced": lambda x: dist.all_reduce_coalesced([x]),
        "reduce": lambda x: dist.reduce(x, 0),
        "broadcast": lambda x: dist.broadcast(x, 0),
        "output of all_gather": lambda x: dist.all_gather(lists(x), like(x)),
        "input of all_gather": lambda x: dist.all_gather(lists(like(x)), x),
        "output of all_gather_into_tensor": lambda x: gather(x, part(x)),
        "input of all_gather_into_tensor": lambda x: gather(like(x, WORLD), x),
        "output of gather": lambda x: dist.gather(like(x), at_root(lists(x)), 0),
        "input of gather": lambda x: dist.gather(x, at_root(lists(like(x))), 0),
        "output of scatter": lambda x: dist.scatter(x, at_root(lists(like(x))), 0),
        "input of scatter": lambda x: dist.scatter(like(x), at_root(lists(x)), 0),
        "output of reduce_scatter": lambda x: dist.reduce_scatter(x, lists(like(x))),
        "input of reduce_scatter": lambda x: dist.reduce_scatter(like(x), lists(x)),
        "output of reduce_scatter_tensor": lambda x: scatter(x, like(x, WORLD)),
        "input of reduce_scatter_tensor": lambda x: scatter(part(x), x),
        "output of all_to_all": lambda x: dist.all_to_all(lists(x), lists(like(x))),
        "input of all_to_all": lambda x: dist.all_to_all(lists(like(x)), lists(x)),
        "output of all_to_all_single": lambda x: dist.all_to_all_single(x, like(x)),
        "input of all_to_all_single": lambda x: dist.all_to_all_single(like(x), x),
        "send": lambda x: dist.recv(like(x), 0) if rank else dist.send(x, 1),
        "recv": lambda x: dist.send(like(x), 0) if rank else dist.recv(x, 1),
    }


def _sizes(rank: int) -> dict[str, Case]:
    def of(*sizes: int) -> list[Tensor]:
        return [torch.zeros(size) for size in sizes]

    def at_root(tensors: list[Tensor]) -> list[Tensor] | None:
        return tensors if rank == 0 else None

    one, two, three, four, five = of(1, 2, 3, 4, 5)
    square, wide = torch.zeros(2, 2), torch.zeros(4, dtype=torch.float64)
    gather, exchange = dist.all_gather_into_tensor, dist.all_to_all_single
    return {
        "all_gather of uneven parts": lambda: dist.all_gather(of(1, 2), of(1, 2)[rank]),
        "all_gather to larger outputs": lambda: dist.all_gather(of(4, 4), three),
        "all_gather to too few": lambda: dist.all_gather(of(2), two),
        "all_gather to too many": lambda: dist.all_gather(of(2, 2, 2), two),
        "all_gather to another shape": lambda: dist.all_gather(of(4, 4), square),
        "all_gather to another type": lambda: dist.all_gather(of(4, 4), wide),
        "all_gather_into_tensor of another size": lambda: gather(five, two),
        "all_gather_into_tensor of another type": lambda: gather(torch.zeros(8), wide),
        "all_gather_into_tensor of another shape": lambda: gather(torch.zeros(2, 2, 2), four),
        "gather of uneven parts": lambda: dist.gather(two, at_root(of(2, 3)), 0),
        "gather to too few": lambda: dist.gather(two, of(2), rank),
        "gather to another type": lambda: dist.gather(wide, at_root(of(4, 4)), 0),
        "scatter of uneven parts": lambda: dist.scatter(torch.zeros(2), of(2, 3), rank),
        "scatter of too few": lambda: dist.scatter(torch.zeros(2), of(2), rank),
        "scatter of another type": lambda: dist.scatter(torch.zeros(2), [wide, wide], rank),
        "reduce_scatter of uneven parts": lambda: dist.reduce_scatter(
            torch.zeros(rank + 2), of(2, 3)
        ),
        "reduce_scatter of too few": lambda: dist.reduce_scatter(two, of(2)),
        "reduce_scatter of another type": lambda: dist.reduce_scatter(four, [wide, wide]),
        "reduce_scatter_tensor of another size": lambda: dist.reduce_scatter_tensor(two, five),
        "reduce_scatter_tensor of another type": lambda: dist.reduce_scatter_tensor(two, wide),
        "all_to_all of unequal parts": lambda: dist.all_to_all(of(rank + 1, rank + 1), of(1, 2)),
        "all_to_all of too few": lambda: dist.all_to_all(of(2), of(2)),
        "all_to_all to larger outputs": lambda: dist.all_to_all(of(4, 4), of(3, 3)),
        "all_to_all_single of other splits": lambda: exchange(four, torch.ones(4), [1, 2], [1, 2]),
        "all_to_all_single of too few splits": lambda: exchange(four, torch.ones(4), [4], [4]),
        "all_to_all_single of another type": lambda: exchange(four, wide),
        "all_reduce_coalesced of two types": lambda: dist.all_reduce_coalesced([four, wide]),
        "all_reduce_coalesced of nothing": lambda: dist.all_reduce_coalesced([]),
        "send to itself": lambda: dist.send(one, rank),
        "split_group without a device": lambda: dist.split_group(split_ranks=[[0, 1]]),
    }


def run(rank: int, renew: Callable[[str, str], None]) -> dict[str, str]:
    """Return the error of each case, its class and first line; "" where it passes.

    `renew` is called with the name of each case and what came of it.
    """
    results: dict[str, str] = {}
    for name, case in refusal_cases(rank).items():
        results[name] = ""
        try:
            case()
        except Exception as error:
            results[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        renew(name, results[name])
    return results


def main() -> None:
    """Run the cases on two real ranks, or on one emulated."""
    warnings.simplefilter("ignore")
    file = Path(sys.argv[2])
    if sys.argv[1] == "emulated":
        from paracosm.emulation.config import EmulateConfig, Setting
        from paracosm.emulation.rank.prepare import prepare

        config = EmulateConfig(script=Path(__file__), world_size=WORLD)
        setting = Setting(config, 0, 0, file.with_suffix(".records"))
        os.environ.update(setting.environment())
        prepare(setting)
        dist.init_process_group("gloo")
        _write(file, run(0, lambda name, result: None))
        return
    with tempfile.TemporaryDirectory() as folder:
        other = os.fork()
        rank = 0 if other else 1
        store = dist.FileStore(f"{folder}/store", WORLD)
        results = run(rank, _begin(store, rank))
        if rank:
            os._exit(0)
        os.waitpid(other, 0)
        _write(file, results)


def _begin(store: Any, rank: int) -> Callable[[str, str], None]:
    """Make a group, and return what makes another one when a rank has met an error.

    Where one refuses what the other waits for, that one's time-out breaks the connection.
    """

    def begin(prefix: str) -> None:
        limit = datetime.timedelta(seconds=TIME_LIMIT)
        own = dist.PrefixStore(prefix, store)
        dist.init_process_group("gloo", store=own, rank=rank, world_size=WORLD, timeout=limit)

    def renew(name: str, result: str) -> None:
        store.set(f"{name}/{rank}", result or "passed")
        both = [store.get(f"{name}/{each}") for each in range(WORLD)]
        if both != [b"passed"] * WORLD:
            dist.destroy_process_group()
            begin(name)

    begin("first")
    return renew


def _write(file: Path, refusals: dict[str, str]) -> None:
    names: dict[str, list[str]] = {}
    for name, text in refusals.items():
        if text:
            names.setdefault(text, []).append(name)
    version = torch.__version__.partition("+")[0]
    table = {"torch": version, "cases": len(refusals), "refusals": names}
    file.write_text(json.dumps(table, indent=0))


if __name__ == "__main__":
    main()
