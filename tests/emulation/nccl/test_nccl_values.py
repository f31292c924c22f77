"""What collectives through the shim put into their outputs: as if every rank held the same."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from shim_world import AVG, MAX, MIN, PROD, SUM, TYPES, ShimWorld, data_of, size_of, type_of

Worlds = Callable[..., ShimWorld]
NUMBERS = [0, 1, 2, 3, 5, 100, 250]


@pytest.fixture
def three(world: Worlds) -> tuple[ShimWorld, ctypes.c_void_p, ctypes.c_void_p]:
    made = world(3)
    return made, made.communicator("0", 3), made.stream()


Three = tuple[ShimWorld, ctypes.c_void_p, ctypes.c_void_p]


@pytest.mark.parametrize("kind", TYPES.values())
@pytest.mark.parametrize(
    ("op", "of_three"),
    [
        (SUM, lambda x: x + x + x),
        (PROD, lambda x: x * x * x),
        (AVG, lambda x: x),
        (MAX, lambda x: x),
        (MIN, lambda x: x),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_reductions_of_equal_terms(three: Three, kind: Any, op: int, of_three: Any) -> None:
    world, comm, stream = three
    before = np.array(NUMBERS[:6] if kind == np.int8 else NUMBERS, kind)
    array = before.copy()
    world.check(world.all_reduce(comm, stream, array, op))
    world.run()
    np.testing.assert_array_equal(array, of_three(before))


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid")
def test_half_precision_is_rounded_to_nearest_even(three: Three) -> None:
    world, comm, stream = three
    before = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    array = before.copy()
    world.check(world.all_reduce(comm, stream, array, SUM))
    world.run()
    np.testing.assert_array_equal(array, (before.astype(np.float64) * 3).astype(np.float16))


def test_bfloat16_is_rounded_to_nearest_even(three: Three) -> None:
    import torch

    world, comm, stream = three
    before = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16)
    tensor = before.clone()
    data = ctypes.c_void_p(tensor.data_ptr())
    world.check(world.shim.ncclAllReduce(data, data, ctypes.c_size_t(1 << 16), 9, 0, comm, stream))
    world.run()
    expected = (before.double() * 3).bfloat16()
    assert torch.equal(tensor.isnan(), expected.isnan())
    assert torch.equal(tensor.nan_to_num(1.0), expected.nan_to_num(1.0))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("is_on_host", [True, False])
def test_a_reduction_with_a_factor_of_ones_own(three: Three, kind: Any, is_on_host: bool) -> None:
    world, comm, stream = three
    array, factor, op = np.array([1, 2, 8], kind), np.array([0.25], kind), ctypes.c_int()
    create = world.shim.ncclRedOpCreatePreMulSum
    world.check(create(ctypes.byref(op), data_of(factor), type_of(array), int(is_on_host), comm))
    world.shim.ncclGroupStart()
    world.check(world.all_reduce(comm, stream, array, op.value))
    world.check(world.shim.ncclRedOpDestroy(op, comm))  # as soon as no call is to come
    world.check(world.shim.ncclGroupEnd())
    world.run()
    np.testing.assert_array_equal(array, np.array([0.75, 1.5, 6], kind))
    assert world.all_reduce(comm, stream, array, op.value) == 4


def test_a_reduce_scatter_gives_this_ranks_part(world: Worlds) -> None:
    made = world(3, rank=1)
    comm, stream = made.communicator("0", 3), made.stream()
    source, target = np.arange(6, dtype=np.float32), np.zeros(2, np.float32)
    call = made.shim.ncclReduceScatter
    made.check(call(data_of(source), data_of(target), size_of(target), 7, SUM, comm, stream))
    made.run()
    np.testing.assert_array_equal(target, [6, 9])
    (found,) = made.collectives()
    assert (found.kind, found.size) == ("reduce_scatter", 24)


@pytest.mark.parametrize(("ranks", "copies"), [(1, 1), (3, 3), (8, 4), (1000, 11)])
def test_an_all_gather_copies_twice_as_much_each_time(
    world: Worlds, ranks: int, copies: int
) -> None:
    made = world(ranks)
    comm, stream = made.communicator("0", ranks), made.stream()
    source, target = np.arange(5, dtype=np.int64), np.zeros(5 * ranks, np.int64)
    call = made.shim.ncclAllGather
    made.check(call(data_of(source), data_of(target), size_of(source), 4, comm, stream))
    made.run()
    np.testing.assert_array_equal(target, np.tile(source, ranks))
    assert made.device.fake_copies() == copies
    (found,) = made.collectives()
    assert (found.kind, found.size) == ("all_gather", 40 * ranks)


def test_an_all_gather_in_place(world: Worlds) -> None:
    made = world(3, rank=2)
    comm, stream = made.communicator("0", 3), made.stream()
    target = np.array([0, 0, 0, 0, 7, 8], np.float32)
    part = target[4:]
    call = made.shim.ncclAllGather
    made.check(call(data_of(part), data_of(target), size_of(part), 7, comm, stream))
    made.run()
    np.testing.assert_array_equal(target, [7, 8] * 3)


@pytest.mark.parametrize(("root", "result"), [(0, [1, 2]), (1, [5, 5])])
def test_a_broadcast_is_known_at_its_root_alone(
    three: Three, root: int, result: list[float]
) -> None:
    world, comm, stream = three
    source, target = np.array([1, 2], np.float32), np.array([5, 5], np.float32)
    call = world.shim.ncclBroadcast
    world.check(call(data_of(source), data_of(target), size_of(source), 7, root, comm, stream))
    world.run()
    np.testing.assert_array_equal(target, result)
    (found,) = world.collectives()
    assert (found.kind, found.size, found.peer) == ("broadcast", 8, root)


def test_what_a_rank_reduces_to_reaches_it_alone(three: Three) -> None:
    world, comm, stream = three
    for root, result in ((0, 6.0), (2, 5.0)):
        source, target = np.array([2.0]), np.array([5.0])
        data = (data_of(source), data_of(target), size_of(source))
        world.check(world.shim.ncclReduce(*data, 8, SUM, root, comm, stream))
        world.run()
        assert target[0] == result


def test_received_messages_are_zeros(three: Three) -> None:
    world, comm, stream = three
    target = np.array([3.0, 4.0])
    world.check(world.shim.ncclRecv(data_of(target), size_of(target), 8, 1, comm, stream))
    world.run()
    assert (target == 0).all()
