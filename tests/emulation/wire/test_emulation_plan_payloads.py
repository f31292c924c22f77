"""What a plan makes emulated ranks send."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from paracosm.emulation.backend.plan import PlanWriter
from paracosm.emulation.wire.connection import WireGroup
from paracosm.emulation.wire.payloads import Payloads, load_payloads
from paracosm.errors import InputError


def default(real: int = 1, world: int = 4) -> WireGroup:
    return WireGroup("default_pg/0//cpu//0", world, (real,), tuple(range(world)))


def bytes_of(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.uint8)


def planned(tmp_path: Path, *rows: tuple[str, str, list[torch.Tensor]]) -> Payloads:
    """The payloads of a plan of rows: group, kind, inputs."""
    path = tmp_path / "plan.npz"
    written = PlanWriter(path, 4, 0, lambda note: None)
    for group, kind, inputs in rows:
        written.on_collective(group, kind, 0, 1 if kind == "send" else 0, inputs)
    written.write()
    return load_payloads(path, 4)


def given(data: memoryview | None) -> list[int] | None:
    return None if data is None else list(data)


def test_without_a_plan_nothing_is_given() -> None:
    payloads = load_payloads(None, 4)
    assert payloads.of(default(), "broadcast", 0, 0, 0, 4) is None
    assert payloads.groups == {}


def test_operations_are_found_by_their_tag(tmp_path: Path) -> None:
    payloads = planned(
        tmp_path,
        ("0", "all_reduce", [bytes_of([9])]),
        ("0", "send", [bytes_of([8])]),  # takes no tag
        ("0", "broadcast", [bytes_of([1, 2, 3, 4])]),
        ("0", "reduce_scatter", [bytes_of([7]), bytes_of([7])]),  # takes two
        ("0", "broadcast", [bytes_of([5, 6])]),
    )
    assert given(payloads.of(default(), "broadcast", 1, 0, 0, 4)) == [1, 2, 3, 4]
    assert given(payloads.of(default(), "broadcast", 1, 2, 1, 2)) == [2, 3]  # passed on by rank 2
    assert given(payloads.of(default(), "broadcast", 4, 0, 0, 2)) == [5, 6]
    assert payloads.of(default(), "broadcast", 3, 0, 0, 2) is None
    assert payloads.of(default(), "broadcast", 5, 0, 0, 2) is None  # beyond the plan


def test_another_kind_or_length_than_planned_is_not_given(tmp_path: Path) -> None:
    payloads = planned(tmp_path, ("0", "broadcast", [bytes_of([1, 2, 3, 4])]))
    assert payloads.of(default(), "all_gather", 0, 0, 0, 4) is None
    assert payloads.of(default(), "broadcast", 0, 0, 0, 5) is None
    assert payloads.of(default(), "broadcast", 0, 0, 3, 2) is None


def test_scatter_gives_each_rank_its_own(tmp_path: Path) -> None:
    chunks = [bytes_of([rank, rank]) for rank in range(4)]
    payloads = planned(tmp_path, ("0", "scatter", chunks), ("0", "all_to_all", chunks))
    assert given(payloads.of(default(3), "scatter", 0, 0, 0, 2)) == [3, 3]
    assert given(payloads.of(default(1), "all_to_all", 1, 2, 1, 1)) == [1]
    assert payloads.of(default(1), "scatter", 0, 0, 0, 3) is None
    several = WireGroup("default_pg/0//cpu//0", 4, (1, 3), (0, 1, 2, 3))
    assert payloads.of(several, "scatter", 0, 0, 0, 2) is None


def test_messages_are_given_in_the_order_they_were_sent(tmp_path: Path) -> None:
    payloads = planned(
        tmp_path,
        ("0", "send", [torch.tensor([40])]),
        ("0", "send", [torch.zeros(10)]),
        ("0", "send", [bytes_of([6])]),
    )
    first = payloads.of(default(), "recv", 0, 0, 0, 8)
    assert first is not None
    assert np.frombuffer(first, dtype=np.int64).tolist() == [40]
    assert given(payloads.of(default(), "recv", 0, 0, 0, 40)) == [0] * 40
    assert payloads.of(default(), "recv", 0, 0, 0, 2) is None  # another length than was sent
    assert payloads.of(default(), "recv", 0, 0, 0, 1) is None
    assert payloads.of(default(real=3), "recv", 0, 2, 0, 8) is not None  # one further, as rank 0
    assert payloads.of(default(real=1), "recv", 0, 2, 0, 8) is None  # it never sent one back


def test_groups_without_the_rank_of_the_plan_do_as_its_own_of_the_kind(
    tmp_path: Path,
) -> None:
    path = tmp_path / "plan.npz"
    written = PlanWriter(path, 8, 0, lambda note: None)
    for number, name in enumerate(("0", "1", "3", "aaff")):
        written.on_collective(name, "broadcast", 1, 0, [bytes_of([number])])
    members = {"0": range(8), "1": range(4), "3": (0, 4), "aaff": (0, 1, 2)}
    for name, each in members.items():
        written._groups[name].members = tuple(each)
    written.write()
    payloads = load_payloads(path, 8)
    assert payloads.groups["3"] == (0, 4)

    def first(name: str, size: int) -> list[int] | None:
        group = WireGroup(f"default_pg/0//{name}//cpu//0", size, (1,))
        return given(payloads.of(group, "broadcast", 0, 0, 0, 1))

    assert first("1", 4) == [1]
    assert first("2", 4) == [1]  # the second row of a mesh, as the first
    assert first("4", 2) == [2]
    assert first("4", 3) is None
    assert first("bb00", 3) == [3]
    assert first("bb00", 4) is None


def test_a_plan_of_another_world_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.npz"
    PlanWriter(path, 8, 0, lambda note: None).write()
    with pytest.raises(InputError, match="a plan of 8 ranks, but the world has 4: write it again"):
        load_payloads(path, 4)
