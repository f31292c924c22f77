"""The emulated process group: shapes and values at 1,024 ranks, records, refusals, futures."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from emulated_world import World, world_of
from torch.distributed.distributed_c10d import _coalescing_manager

from paracosm.emulation.backend.group import EmulatedGroup
from paracosm.emulation.backend.work import AllOf
from paracosm.emulation.cost import Cost
from paracosm.emulation.records import Collective, Group, Note, Wait

W = 1024
OPS = dist.ReduceOp


@pytest.fixture
def large(tmp_path: Path) -> Iterator[World]:
    with world_of(W, tmp_path) as world:
        yield world


@pytest.fixture
def four(tmp_path: Path) -> Iterator[World]:
    with world_of(4, tmp_path) as world:
        yield world


def reduced(numbers: list[Any], op: Any, dtype: Any = None) -> list[Any]:
    tensor = torch.tensor(numbers, dtype=dtype)
    dist.all_reduce(tensor, op=op)
    return tensor.tolist()


def test_reductions_of_1024_equal_ranks(large: World):
    assert reduced([0.5, -2.0], OPS.SUM) == [512.0, -2048.0]
    assert reduced([0.5, -2.0], OPS.AVG) == [0.5, -2.0]
    assert reduced([0.5, -2.0], OPS.MAX) == [0.5, -2.0]
    assert reduced([1.0, -1.0, 2.0], OPS.PRODUCT) == [1.0, 1.0, float("inf")]
    assert reduced([3, 5], OPS.SUM, torch.int32) == [3072, 5120]
    assert reduced([3, 5], OPS.BXOR, torch.int32) == [0, 0]
    assert reduced([3, 5], OPS.BAND, torch.int32) == [3, 5]
    assert reduced([3, -5], OPS.SUM, torch.int8) == [0, 0]  # 3,072 and -5,120 modulo 256
    assert reduced([3, 2], OPS.PRODUCT, torch.uint8) == [1, 0]  # 3 ** 1024, 2 ** 1024 modulo 256
    assert reduced([True, False], OPS.SUM, torch.bool) == [True, False]
    assert reduced([1 + 2j], OPS.SUM, torch.complex64) == [1024 + 2048j]


def test_what_only_nccl_reduces(tmp_path: Path):
    with world_of(W, tmp_path, asked="nccl"):
        halved = dist._make_nccl_premul_sum(0.5)
        assert reduced([0.5, -2.0], halved) == [256.0, -1024.0]
        assert reduced([1.0, 448.0], OPS.MIN, torch.float8_e4m3fn) == [1.0, 448.0]
        assert reduced([0.125], OPS.SUM, torch.float8_e5m2) == [128.0]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda t: dist.all_reduce(t.short()), TypeError, "not supported for NCCL.*Short"),
        (lambda t: dist.all_reduce(t, OPS.BAND), ValueError, "Cannot use ReduceOp.BAND with NCCL"),
        (lambda t: dist.all_reduce(t.bool(), OPS.AVG), TypeError, "ReduceOp.AVG with bool"),
        (
            lambda t: dist.all_reduce(t.int(), dist._make_nccl_premul_sum(0.5)),
            TypeError,
            "PreMulSum Data type must be half, float, bfloat16 or double",
        ),
        (lambda t: dist.broadcast(t.to_sparse(), 0), ValueError, "dense"),
    ],
)
def test_what_nccl_refuses_is_refused(tmp_path: Path, call: Any, kind: Any, message: str):
    with world_of(4, tmp_path, asked="nccl"), pytest.raises(kind, match=message):
        call(torch.ones(2, 2))


def test_nccl_gathers_uneven_parts(tmp_path: Path):
    with world_of(2, tmp_path, asked="nccl"):
        outputs = [torch.zeros(3), torch.zeros(2)]
        dist.all_gather(outputs, torch.ones(3))
        assert [output.tolist() for output in outputs] == [[1.0] * 3, [1.0] * 2]


def test_shapes_of_1024_equal_ranks(large: World):
    own = torch.tensor([[1.0, 2.0]])
    gathered = torch.zeros(W, 2)
    dist.all_gather_into_tensor(gathered, own)
    assert torch.equal(gathered, own.expand(W, 2))
    part = torch.zeros(2)
    dist.reduce_scatter_tensor(part, torch.tensor([1.0, 2.0]).repeat(W))
    assert part.tolist() == [1024.0, 2048.0]
    outputs = [torch.zeros(1) for _ in range(W)]
    dist.all_to_all(outputs, list(torch.arange(float(W)).reshape(W, 1)))
    assert [output.item() for output in outputs] == [0.0] * W  # all send their first part to rank 0
    everybody: list[Any] = [None] * W
    dist.all_gather_object(everybody, {"rank": dist.get_rank()})
    assert everybody == [{"rank": 0}] * W


def test_another_rank_reduces_its_own_part(tmp_path: Path):
    with world_of(4, tmp_path, rank=2):
        part = torch.zeros(2)
        dist.reduce_scatter_tensor(part, torch.arange(8.0))
        assert part.tolist() == [16.0, 20.0]
        parts = [torch.zeros(1) for _ in range(4)]
        dist.gather(torch.ones(1), None, dst=0)
        dist.all_gather(parts, torch.ones(1))
        told = ["as I have it"]
        dist.broadcast_object_list(told, src=0)
        assert told == ["as I have it"]
        assert (dist.get_rank(), dist.get_world_size()) == (2, 4)


def test_uneven_all_to_all_of_other_lengths_is_filled_with_own_data(four: World):
    source = torch.arange(6.0)
    output = torch.zeros(7)
    dist.all_to_all_single(output, source, [3, 0, 2, 2], [1, 2, 0, 3])
    # it sends [0], [1, 2], nothing and [3, 4, 5], and gets 3, none, 2 and 2 numbers
    assert output.tolist() == [0.0, 0.0, 0.0, 0.0, 1.0, 3.0, 4.0]


def test_what_only_an_emulated_root_scatters_is_said_to_be_unknown(four: World):
    output, counts = torch.zeros(8), torch.ones(3, dtype=torch.int32)
    dist.scatter(output, None, src=2)
    dist.scatter(counts, None, src=2)
    assert output.any()
    assert output.abs().max() < 0.01
    assert counts.tolist() == [0, 0, 0]
    notes = [note.text for note in four.of(Note)]
    assert len(notes) == 1
    assert "scatter from an emulated rank gave small noise" in notes[0]


def test_an_emulated_root_scatters_what_this_rank_did(tmp_path: Path):
    with world_of(4, tmp_path, rank=1) as world:
        for i, root in enumerate((1, 3)):
            output = torch.zeros(2)
            parts = [torch.tensor([10.0 * rank, i]) for rank in range(4)]
            dist.scatter(output, parts if root == 1 else None, src=root)
            assert output.tolist() == [10.0, 0.0]
        assert not world.of(Note)


def test_what_the_fake_group_of_pytorch_gets_wrong_is_right(tmp_path: Path):
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def call() -> list[list[float]]:
        total, part, received = torch.ones(1), torch.zeros(1), torch.zeros(6)
        dist.all_reduce(total)
        dist.reduce_scatter_tensor(part, torch.arange(4.0) + 1)
        dist.all_to_all_single(received, torch.arange(4.0), [3, 1, 1, 1], [1, 1, 1, 1])
        return [total.tolist(), part.tolist(), received.tolist()]

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    fake = call()
    dist.destroy_process_group()
    with world_of(4, tmp_path):
        ours = call()
    # it ignores reduce operations, and where chunks of an all-to-all begin
    assert ours == [[4.0], [4.0], [0.0, 0.0, 0.0, 1.0, 2.0, 3.0]]
    assert all(a != b for a, b in zip(fake, ours, strict=True))


def test_messages_are_like_those_to_others_and_else_small_noise(four: World):
    got = torch.zeros(1000)
    dist.recv(got, 1)
    assert 0 < got.abs().max() < 0.01
    dist.send(torch.full((1000,), 7.0), 1)
    dist.recv(got, 1)  # gradients from a peer that got activations
    assert 0 < got.abs().max() < 0.01
    dist.recv(got, 3)  # a ring
    assert got.tolist() == [7.0] * 1000
    count = torch.zeros(2, dtype=torch.int64)
    dist.recv(count, 2)
    assert count.tolist() == [0, 0]
    dist.send_object_list(["state", 3], 1)
    objects: list[Any] = [None, None]
    dist.recv_object_list(objects, 1)
    assert objects == ["state", 3]


def test_a_world_of_one(tmp_path: Path):
    with world_of(1, tmp_path):
        assert reduced([3.0], OPS.SUM) == [3.0]
        output = torch.zeros(2)
        dist.all_gather_into_tensor(output, torch.ones(2))
        assert output.tolist() == [1.0, 1.0]
        dist.barrier()


def test_records_say_what_was_asked_where_and_how_long_it_took(four: World):
    four.communication.costs = Cost(10e-3, 20e-3, "nic")
    works = [dist.all_reduce(torch.zeros(10), async_op=True) for _ in range(3)]
    line = sys._getframe().f_lineno - 1
    for work in works:
        work.wait()
    dist.all_gather([torch.zeros(3) for _ in range(4)], torch.zeros(3))
    dist.send(torch.zeros(2), 3)
    dist.barrier(device_ids=[0])
    records = four.of(Collective)
    assert [record.number for record in records] == list(range(6))
    kinds = [("all_reduce", 40, -1)] * 3
    assert [(record.kind, record.size, record.peer) for record in records] == [
        *kinds,
        *(("all_gather", 48, -1), ("send", 8, 3), ("barrier", 0, -1)),
    ]
    assert records[0].site == f"test_emulated_group.py:{line}"
    first, second, third = records[:3]
    # Of two comm workers; the second begins d later than the first, and they share the link from
    # 10 + d on: 20 - d of the first are left, which take 40 - 2d, so that it ends at 50 - d.
    later = second.asked - first.asked
    assert first.done == pytest.approx(first.asked + max(50e-3 - later, 30e-3))
    assert third.begun == pytest.approx(max(third.asked, first.done))
    assert second.done - first.asked == pytest.approx(50e-3, abs=max(1e-6, later - 20e-3))
    assert third.done == pytest.approx(third.begun + 30e-3)
    assert four.of(Group) == [Group(0, "0", 4, (0, 1, 2, 3), "gloo", 1800.0)]
    waits = four.of(Wait)
    assert 1 <= len(waits) <= 6  # on a loaded machine some are done before they are waited for
    assert all(wait.end > wait.begin for wait in waits)


def test_a_collective_runs_beside_computing(four: World):
    four.communication.costs = Cost(0.5, 0.0)  # more than a busy machine pauses for
    begin = time.monotonic()
    work = dist.all_reduce(torch.ones(1), async_op=True)
    assert not work.is_completed()
    assert time.monotonic() - begin < 0.5
    while time.monotonic() < begin + 0.6:
        pass
    assert work.is_completed()
    before = len(four.of(Wait))
    work.wait()
    assert len(four.of(Wait)) == before  # nothing was waited for
    dist.all_reduce(torch.ones(1))
    assert time.monotonic() - begin >= 1.1


def test_futures_are_completed_at_their_deadlines_in_order(four: World):
    done: list[int] = []
    works = []
    for i, milliseconds in enumerate([200, 50, 120]):
        four.communication.costs = Cost(milliseconds * 1e-3, 0.0)
        group = dist.new_group([0, 1])
        works.append(dist.all_reduce(torch.ones(2), async_op=True, group=group))
        works[-1].get_future().add_done_callback(lambda _, i=i: done.append(i))
    value = works[0].get_future().wait()
    last = max(record.done for record in four.of(Collective))
    assert time.monotonic() > last - 5e-3  # less the time that it takes to wake whoever waits
    assert [tensor.tolist() for tensor in value] == [[2.0, 2.0]]
    records = sorted(four.of(Collective), key=lambda record: float(record.asked))
    ends = [record.done for record in records]
    assert done == sorted(range(3), key=ends.__getitem__)
    doubled = works[1].get_future().then(lambda future: future.value()[0] * 2)
    assert doubled.wait().tolist() == [4.0, 4.0]


def test_large_outputs_are_there_when_the_work_is_done(four: World):
    tensor = torch.ones(1 << 20)
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()
    work.wait()
    assert torch.equal(tensor, torch.full_like(tensor, 4.0))
    assert future.done()
    record = four.of(Collective)[-1]
    assert record.done >= record.asked


def test_outputs_that_cannot_be_filled_fail_the_call(four: World, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("paracosm.emulation.backend.values.reduce", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        dist.all_reduce(torch.ones(1 << 20), async_op=True)


def test_parameters_and_inference_tensors_can_be_written(four: World):
    weight = torch.nn.Parameter(torch.ones(2))
    squared = (weight * weight).sum()
    dist.all_reduce(weight)  # a backend writes into memory, which autograd does not see
    squared.backward()
    with torch.inference_mode():
        made = torch.ones(2)
    dist.all_reduce(made)
    assert weight.tolist() == made.tolist() == [4.0, 4.0]


def test_sub_groups_have_their_own_ranks_and_names(large: World):
    pair = dist.new_group([0, 7], backend="paracosm")
    others = dist.new_group([3, 4], backend="paracosm")
    assert others == dist.GroupMember.NON_GROUP_MEMBER
    own, _ = dist.new_subgroups(16)
    assert (dist.get_world_size(pair), dist.get_world_size(own)) == (2, 16)
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=own)
    assert tensor.item() == 16.0
    dist.broadcast(tensor, src=7, group=pair)
    assert large.of(Collective)[-1].peer == 7  # a global rank
    assert {record.name for record in large.of(Group)} == {"0", pair.group_name, own.group_name}
    split = dist.group.WORLD.split_group([0, 2, 4], group_name="split")
    assert isinstance(split, EmulatedGroup)
    assert (split.size(), split.rank(), split.group_name) == (3, 0, "split")
    assert dist.group.WORLD.split_group([2, 4]) is None


def test_coalesced_messages_are_waited_for_at_once(four: World):
    got = torch.zeros(2)
    four.communication.costs = Cost(2e-3, 0.0)
    with _coalescing_manager(device=torch.device("cpu"), async_ops=True) as block:
        dist.isend(torch.ones(2), 1)
        dist.irecv(got, 3)
    block.wait()
    assert time.monotonic() >= max(record.done for record in four.of(Collective))
    assert got.tolist() == [1.0, 1.0]
    assert [record.kind for record in four.of(Collective)] == ["send", "recv"]
    works = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(2)]
    outputs = AllOf(works).get_future().wait()
    assert [tensor.tolist() for tensor in outputs] == [[4.0, 4.0]] * 2


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("sparse", lambda: dist.all_reduce(torch.eye(2).to_sparse())),
        ("scatter_object_list", lambda: dist.scatter_object_list([None], None, src=1)),
        ("recv_object_list", lambda: dist.recv_object_list([None], src=1)),
    ],
)
def test_what_is_not_supported_is_named_with_its_line(four: World, name: str, call: Any):
    with pytest.raises(NotImplementedError, match=rf"{name}.* at test_emulated_group.py:\d+"):
        call()
    note = four.of(Note)[-1]
    assert note.grave
    assert name in note.text


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: dist.broadcast(t, src=-1), "no rank -1 in a group of 4"),
        (lambda t: dist.send(t, dst=4), "no rank 4 in a group of 4"),
        (lambda t: dist.all_gather([t] * 5, t), r"expected length 4, got 5"),
        (lambda t: dist.gather(t, [t]), "Incorrect output list size 1"),
        (lambda t: dist.scatter(t, [t]), "Incorrect input list size 1"),
        (lambda t: dist.reduce_scatter(t, [t]), "invalid input tensor list size"),
        (
            lambda t: dist.all_to_all([t] * 4, [t] * 3),
            "input tensor list size 3 does not match world size 4",
        ),
        (lambda t: dist.all_gather_into_tensor(t, t), "expected length 4, got 3"),
        (
            lambda t: dist.all_gather_into_tensor(torch.zeros(24).half(), t),
            "invalid tensor type at index 0",
        ),
        (lambda t: dist.reduce_scatter_tensor(t, t), r"24 vs. 6"),
        (
            lambda t: dist.all_to_all_single(t, t),
            "does not divide equally across group size: 6 rows, 4",
        ),
        (
            lambda t: dist.all_to_all_single(t, t, [1] * 4, [1] * 4),
            "Split sizes doesn't match total dim 0 size",
        ),
        (lambda t: dist.all_reduce(t, op=OPS.BXOR), "ReduceOp.BXOR with non-integral dtype"),
    ],
)
def test_what_real_groups_refuse_is_refused_here(four: World, call: Any, message: str):
    with pytest.raises(RuntimeError, match=message):
        call(torch.zeros(6))


def test_a_collective_that_a_real_group_would_give_up_is_noted_once(four: World):
    dist.group.WORLD.set_timeout(timedelta(milliseconds=1))
    four.communication.costs = Cost(3e-3, 0.0)
    for _ in range(2):
        dist.barrier()
    (note,) = four.of(Note)
    assert "barrier" in note.text
    assert not note.grave


def test_distributed_data_parallel_averages_at_1024_ranks(large: World):
    torch.manual_seed(0)
    alone = torch.nn.Linear(4, 2)
    module = torch.nn.Linear(4, 2)
    module.load_state_dict(alone.state_dict())
    model = torch.nn.parallel.DistributedDataParallel(module)
    data = torch.randn(3, 4)
    alone(data).square().mean().backward()
    model(data).square().mean().backward()
    torch.testing.assert_close(module.weight.grad, alone.weight.grad)
    assert {"broadcast", "all_reduce", "all_gather"} <= {r.kind for r in large.of(Collective)}


def test_a_wait_lasts_until_the_machine_lets_the_script_go_on(
    four: World, monkeypatch: pytest.MonkeyPatch
):
    four.communication.costs = Cost(5e-3, 0.0)
    until = four.runtime.waiting.sleeper.until
    monkeypatch.setattr(
        four.runtime.waiting.sleeper, "until", lambda instant, sleep: until(instant + 30e-3, sleep)
    )
    dist.all_reduce(torch.ones(4))
    done, wait = four.of(Collective)[-1].done, four.of(Wait)[-1]
    assert wait.end >= done + 30e-3
