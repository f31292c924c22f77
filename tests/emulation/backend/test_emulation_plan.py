"""The plan that a backend run writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from paracosm.emulation.backend import plan as plans
from paracosm.emulation.backend.plan import PlanWriter, load_plan
from paracosm.emulation.records import COLLECTIVES, Note
from paracosm.errors import InputError


def writer(tmp_path: Path, notes: list[Note] | None = None) -> PlanWriter:
    return PlanWriter(tmp_path / "plan.npz", 4, 0, (notes if notes is not None else []).append)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = writer(tmp_path)
    shapes = torch.tensor([3, 5])
    weights = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    written.on_collective("0", "all_gather", 64, -1, [shapes])
    written.on_collective("0", "broadcast", 24, 0, [weights.t()])  # not contiguous
    written.on_collective("0", "all_reduce", 24, -1, [weights])
    written.on_collective("7", "reduce_scatter", 48, -1, [weights, weights])
    written.on_collective("0", "send", 8, 3, [torch.tensor([True, False] * 4)])
    written.on_collective("0", "recv", 8, 3, [])
    written.write()
    plan = load_plan(tmp_path / "plan.npz")
    assert (plan.world, plan.rank, list(plan.groups)) == (4, 0, ["0", "7"])
    group = plan.groups["0"]
    kinds = [COLLECTIVES[kind] for kind in group.kind]
    assert kinds == ["all_gather", "broadcast", "all_reduce", "send", "recv"]
    assert group.size.tolist() == [64, 24, 24, 8, 8]
    assert group.peer.tolist() == [-1, 0, -1, 3, 3]
    assert group.tags.tolist() == [1, 1, 1, 0, 0]
    assert plan.groups["7"].tags.tolist() == [2]  # gloo reduces each of them on its own
    assert group.length.tolist() == [16, 24, 0, 8, 0]
    gave = [
        plan.data[start : start + length].tobytes()
        for start, length in zip(group.start, group.length, strict=True)
        if start >= 0
    ]
    assert gave[0] == shapes.numpy().tobytes()
    assert gave[1] == weights.t().contiguous().numpy().tobytes()
    assert gave[2] == bytes([1, 0] * 4)
    assert plan.groups["0"].members == ()  # torch.distributed knows no group here


def test_a_group_of_torch_says_its_members(tmp_path: Path) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        written = writer(tmp_path)
        name = dist.group.WORLD.group_name
        written.on_collective(name, "barrier", 0, -1, [])
        written.write()
        assert load_plan(tmp_path / "plan.npz").groups[name].members == (0,)
    finally:
        dist.destroy_process_group()


def test_tensors_of_every_kind_are_recorded_and_those_without_data_are_not(tmp_path: Path) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(4)
    written = writer(tmp_path)
    kinds = [
        *(torch.tensor(7), torch.ones(2, dtype=torch.complex64), torch.ones(2, requires_grad=True)),
        *(torch.ones(3, dtype=torch.bfloat16), torch.empty(0), torch.ones(4, device="meta"), fake),
    ]
    for tensor in kinds:
        written.on_collective("0", "all_gather", 4 * tensor.nbytes, -1, [tensor])
    written.write()
    assert load_plan(tmp_path / "plan.npz").groups["0"].length.tolist() == [8, 16, 8, 6, 0, 0, 0]


def test_large_messages_are_left_out_but_broadcasts_are_whole(tmp_path: Path) -> None:
    written = writer(tmp_path)
    large = torch.zeros(plans.LARGEST_SMALL + 1, dtype=torch.uint8)
    for kind in ("all_gather", "send", "scatter", "broadcast"):
        written.on_collective("0", kind, large.nbytes, 0, [large])
    written.on_collective("0", "gather", large.nbytes - 1, 0, [large[1:]])
    written.write()
    lengths = load_plan(tmp_path / "plan.npz").groups["0"].length.tolist()
    assert lengths == [0, 0, 0, large.nbytes, large.nbytes - 1]


def test_all_in_all_it_is_bounded_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "MOST_BYTES", 100)
    monkeypatch.setattr(plans, "_MOST_COLLECTIVES", 8)
    notes: list[Note] = []
    written = writer(tmp_path, notes)
    for _ in range(3):
        written.on_collective("0", "broadcast", 40, 0, [torch.zeros(10)])
        written.on_collective("0", "all_gather", 160, -1, [torch.zeros(10)])
    for _ in range(5):
        written.on_collective("0", "all_reduce", 40, -1, [torch.zeros(10)])
    written.write()
    group = load_plan(tmp_path / "plan.npz").groups["0"]
    assert group.length.tolist() == [40] * 4 + [0] * 4
    assert len(notes) == 3
    assert [note.grave for note in notes] == [False] * 3
    assert "of broadcasts: in mode wire the rest comes as zeros" in notes[0].text
    assert "of small messages" in notes[1].text
    assert notes[2].text == "the plan ends after 8 collectives"


def test_it_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = writer(tmp_path)
    written.on_collective("0", "barrier", 0, -1, [])
    written.write()
    before = (tmp_path / "plan.npz").read_bytes()

    def fail(file: object, **arrays: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", fail)
    written.on_collective("0", "barrier", 0, -1, [])
    with pytest.raises(InputError, match="no space"):
        written.write()
    assert [path.name for path in tmp_path.iterdir()] == ["plan.npz"]
    assert (tmp_path / "plan.npz").read_bytes() == before


def save(path: Path, **arrays: np.ndarray) -> None:
    np.savez(path, **arrays)


def test_what_is_no_plan_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "plan.npz"
    with pytest.raises(InputError, match=r"plan.npz: No such file"):
        load_plan(path)
    for content in (b"", b"garbage", b"PK\x03\x04" + b"\0" * 40):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"plan.npz: not a plan: a backend run writes plan"):
            load_plan(path)
    save(path, other=np.zeros(3))
    with pytest.raises(InputError, match="not a plan"):
        load_plan(path)
    save(path, plan=np.array("{"))
    with pytest.raises(InputError, match="not a plan"):
        load_plan(path)
    save(path, plan=np.array(json.dumps({"version": 99})))
    with pytest.raises(InputError, match="a plan of version 99, not 1: write it again"):
        load_plan(path)
    told = {"version": 1, "world": 2, "rank": 0, "groups": [{"name": "0", "members": []}]}
    save(path, plan=np.array(json.dumps(told)), data=np.zeros(0, np.uint8))
    with pytest.raises(InputError, match="a plan that is damaged"):
        load_plan(path)
