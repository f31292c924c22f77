"""Calls whose results depend on which rank gives what: roots, parts, messages, and gradients.

Every rank calls them with the same data, which differs from part to part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Case = Callable[[int], list[Any]]


def value_cases() -> dict[str, Case]:
    """Return what to call, by name; each returns what the calling rank then has."""
    found: dict[str, Case] = {}
    # Not of the last two: PyTorch's functions take ranks of a group for global ones.
    for members in ("all", "first two"):
        for name, call in _AUTOGRAD.items():
            for root in (0, 1) if name in _ROOTED else (0,):
                case = partial(_gradient, name, call, members=members, root=root)
                found[f"gradient of {name} from {root} of {members}"] = case
    for members in ("all", "last two"):
        for root in (0, 1):
            found[f"rooted at {root} of {members}"] = partial(_rooted, members=members, root=root)
    return found | {
        function.__name__: function
        for function in (
            *(contrastive_loss, functional_gradients, distributed_tensors),
            *(parts_of_all, parts_of_rows, uneven_parts_of_rows, scatters_from_each),
            *(receives_before_it_sends, keys_and_values, halos, pairs, batched_pairs),
        )
    }


def parts(count: int, rows: int = 2) -> list[Tensor]:
    """Return tensors that all differ."""
    return [torch.arange(3.0 * rows).reshape(rows, 3) + 10 * i for i in range(count)]


def weighted(outputs: Sequence[Tensor], power: int = 2) -> Tensor:
    """Return a loss in which every number of every output counts otherwise."""
    weights = (torch.arange(float(output.numel())) + 7 * i for i, output in enumerate(outputs))
    flat = [output.reshape(-1) ** power for output in outputs]
    return torch.stack([(x * w).sum() for x, w in zip(flat, weights, strict=True)]).sum()


def functional() -> Any:
    import torch.distributed.nn.functional

    return torch.distributed.nn.functional


_AUTOGRAD: dict[str, Callable[[Any, list[Tensor], int], Any]] = {
    "all_reduce": lambda group, x, root: functional().all_reduce(x[1], group=group),
    "broadcast": lambda group, x, root: functional().broadcast(x[1], root, group),
    "reduce": lambda group, x, root: functional().reduce(x[1], root, group=group),
    "gather": lambda group, x, root: functional().gather(x[1], root, group),
    "scatter": lambda group, x, root: functional().scatter(x, root, group),
    "all_gather": lambda group, x, root: functional().all_gather(x[1], group),
    "reduce_scatter": lambda group, x, root: functional().reduce_scatter(
        torch.empty_like(x[0]), x, group=group
    ),
    "all_to_all": lambda group, x, root: functional().all_to_all(
        [torch.empty_like(each) for each in x], x, group
    ),
    "all_to_all_single": lambda group, x, root: functional().all_to_all_single(
        torch.empty(2 * len(x), 3), torch.cat(x), group=group
    ),
}
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_ALIKE = ("all_reduce", "broadcast", "all_gather")  # every rank gets the same


def _gradient(
    name: str, call: Callable[..., Any], world: int, *, members: str, root: int
) -> list[Any]:
    ranks, group = _group(world, members)
    if group is None:
        return []
    leaves = [part.requires_grad_() for part in parts(len(ranks))]
    outputs = call(group, leaves, ranks[root])
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    # Where ranks get different outputs, only a linear loss has the same gradients on all of them.
    weighted(outputs, 2 if name in _ALIKE else 1).backward()
    if name == "reduce" and dist.get_rank() != ranks[root]:
        outputs = []  # the result is the root's alone: elsewhere gloo leaves what it has computed
    return [*outputs, *(leaf.grad for leaf in leaves)]


def _rooted(world: int, *, members: str, root: int) -> list[Any]:
    ranks, group = _group(world, members)
    if group is None:
        return []
    own, source = parts(len(ranks)), ranks[root]
    is_root = dist.get_rank() == source
    told, total = own[1].clone(), own[1].clone()
    dist.broadcast(told, source, group=group)
    dist.reduce(total, source, dist.ReduceOp.MAX, group=group)
    gathered = [torch.zeros(2, 3) for _ in ranks] if is_root else None
    work = dist.gather(own[0], gathered, source, group=group, async_op=True)
    assert work is not None
    work.wait()
    objects: list[Any] = [{"of": "all"}, 3]
    dist.broadcast_object_list(objects, source, group=group)
    everyone: list[Any] | None = [None] * len(ranks) if is_root else None
    dist.gather_object(("alike", 1), everyone, source, group=group)
    given: list[Any] = [None]
    dist.scatter_object_list(given, [f"part {i}" for i in range(len(ranks))], source, group=group)
    output = torch.zeros(2, 3)
    if is_root:  # nobody else knows what it scatters
        dist.scatter(output, own, source, group=group)
    else:
        dist.scatter(torch.zeros(2, 3), None, source, group=group)
    return [told, total if is_root else None, gathered, objects, everyone, given, output]


def contrastive_loss(world: int) -> list[Any]:
    """As CLIP's, where each rank has the loss of all rows: they are gathered with gradients."""
    images = torch.linspace(-1, 1, 12).reshape(4, 3).requires_grad_()
    texts = torch.linspace(-2, 1, 12).reshape(4, 3).cos().requires_grad_()
    gathered = [torch.cat(functional().all_gather(each)) for each in (images, texts)]
    logits = gathered[0] @ gathered[1].T
    loss = torch.nn.functional.cross_entropy(logits, torch.arange(len(logits)))
    loss.backward()
    return [loss.detach(), images.grad, texts.grad]


def functional_gradients(world: int) -> list[Any]:
    from torch.distributed import _functional_collectives as collectives

    found: list[Any] = []
    group = dist.group.WORLD
    for call in (
        lambda x: collectives.all_gather_tensor_autograd(x, 0, group),
        lambda x: collectives.reduce_scatter_tensor_autograd(x, "sum", 0, group),
        lambda x: collectives.all_to_all_single_autograd(x, None, None, group),
    ):
        leaf = torch.cat(parts(world)).requires_grad_()
        output = call(leaf)
        weighted([output], 1).backward()
        found += [output.detach() + 0, leaf.grad]
    for call in (
        lambda x: collectives.all_reduce(x, "max", group),
        lambda x: collectives.broadcast(x, world - 1, group),
        lambda x: collectives.all_gather_tensor(x, 1, group),
        lambda x: collectives.reduce_scatter_tensor(x, "sum", 0, group),
        lambda x: collectives.all_to_all_single(x, None, None, group),
    ):
        found.append(call(torch.cat(parts(world))) + 0)
    return found


def distributed_tensors(world: int) -> list[Any]:
    """A tensor that every rank has is distributed from the first of a mesh, and turned."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (world,))
    whole = torch.arange(float(6 * world)).reshape(2 * world, 3)
    shard = distribute_tensor(whole, mesh, [Shard(0)])
    copies = distribute_tensor(whole, mesh, [Replicate()])
    return [shard.to_local(), copies.to_local()]


def parts_of_all(world: int) -> list[Any]:
    outputs = [torch.zeros(2, 3) for _ in range(world)]
    work = dist.all_to_all(outputs, parts(world), async_op=True)
    assert work is not None
    work.wait()
    return outputs


def parts_of_rows(world: int) -> list[Any]:
    output = torch.zeros(2 * world, 3)
    dist.all_to_all_single(output, torch.cat(parts(world)))
    return [output]


def uneven_parts_of_rows(world: int) -> list[Any]:
    """Rank r gets r + 1 rows from everybody: those that it sends to itself."""
    sent, received = [i + 1 for i in range(world)], [dist.get_rank() + 1] * world
    rows = torch.cat([torch.full((n, 2), float(n)) for n in sent])
    output = torch.zeros(sum(received), 2)
    dist.all_to_all_single(output, rows, received, sent)
    return [output]


def scatters_from_each(world: int) -> list[Any]:
    """An all-to-all by scatters: the real rank 0 begins, so that what others scatter is known."""
    outputs = [torch.zeros(2, 3) for _ in range(world)]
    for root, output in enumerate(outputs):
        dist.scatter(output, parts(world) if root == dist.get_rank() else None, root)
    return outputs if dist.get_rank() == 0 else []


def receives_before_it_sends(world: int) -> list[Any]:
    rank, output = dist.get_rank(), torch.zeros(4)
    receiving = dist.irecv(output, (rank - 1) % world)
    sending = dist.isend(torch.arange(4.0), (rank + 1) % world)
    for work in (receiving, sending):
        assert work is not None
        work.wait()
    return [output]


def keys_and_values(world: int) -> list[Any]:
    """As ring attention: two tensors of a shape go round, some rounds."""
    rank, found = dist.get_rank(), []
    keys, values = torch.arange(4.0), torch.arange(4.0) + 10
    for turn in range(3):
        outputs = [torch.zeros(4), torch.zeros(4)]
        ops = []
        for tensor, output in zip((keys + turn, values + turn), outputs, strict=True):
            ops.append(dist.P2POp(dist.isend, tensor, (rank + 1) % world))
            ops.append(dist.P2POp(dist.irecv, output, (rank - 1) % world))
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        found += outputs
    return found


def halos(world: int) -> list[Any]:
    """Both edges of a slab go to its neighbours, which are different ranks from three on."""
    rank, left, right = dist.get_rank(), torch.zeros(2), torch.zeros(2)
    before, after = (rank - 1) % world, (rank + 1) % world
    if world < 3:
        return []
    ops = [
        dist.P2POp(dist.irecv, left, before),
        dist.P2POp(dist.irecv, right, after),
        dist.P2POp(dist.isend, torch.tensor([1.0, 2.0]), before),
        dist.P2POp(dist.isend, torch.tensor([3.0, 4.0]), after),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return [left, right]


def pairs(world: int) -> list[Any]:
    return _pair(world, [torch.arange(5.0), torch.arange(5.0) + 1])


def batched_pairs(world: int) -> list[Any]:
    rank, output = dist.get_rank(), torch.zeros(5)
    if rank ^ 1 >= world:
        return []
    ops = [
        dist.P2POp(dist.irecv, output, rank ^ 1),
        dist.P2POp(dist.isend, torch.arange(5.0) + 3, rank ^ 1),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return [output]


def _pair(world: int, tensors: list[Tensor]) -> list[Any]:
    rank = dist.get_rank()
    if rank ^ 1 >= world:
        return []
    found = []
    for tensor in tensors:
        output = torch.zeros_like(tensor)
        sending = dist.isend(tensor, rank ^ 1)
        dist.recv(output, rank ^ 1)
        assert sending is not None
        sending.wait()
        found.append(output)
    return found


def _group(world: int, members: str) -> tuple[list[int], Any]:
    """Return global ranks of a group, and the group, or None on a rank outside it."""
    if members == "all":
        return list(range(world)), dist.group.WORLD
    ranks = [0, 1] if members == "first two" else [world - 2, world - 1]
    group = dist.new_group(ranks)
    return ranks, group if dist.get_rank() in ranks else None
