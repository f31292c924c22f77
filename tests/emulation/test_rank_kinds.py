"""Which ranks are alike, from records that are made up: the answers follow from the groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from paracosm.emulation.kinds import kind_of_each, met_by_messages, missing_kinds, take_turns
from paracosm.emulation.records import Collective, Group, Iteration, Record, Wait
from paracosm.errors import InputError

Call = tuple[str, str, int]
"""Name of the group, kind, and global rank of the other end or the root; -1 for none."""


def recorded(rank: int, groups: dict[str, Sequence[int]], *calls: Call) -> list[Record]:
    """Return the records of two iterations of these calls; receipts are waited for at once."""
    found: list[Record] = [
        Group(rank, name, len(members), tuple(members), "gloo") for name, members in groups.items()
    ]
    now, numbers = 0.0, dict.fromkeys(groups, 0)
    for iteration in range(3):
        for group, kind, peer in calls:
            now += 1.0
            what = Collective(rank, group, numbers[group], kind, 100, peer, now, now, now, now, -2)
            found.append(what)
            if kind != "send":
                found.append(Wait(rank, now, now, group, numbers[group]))
            numbers[group] += 1
        now += 1.0
        found.append(Iteration(rank, iteration, now, now, 1))
    return found


def stage(rank: int, ranks: Sequence[int], groups: dict[str, Sequence[int]]) -> list[Record]:
    """Return the records of a stage of a pipeline over `ranks`, which is the group "pp"."""
    place, calls = list(ranks).index(rank), []
    before = ranks[place - 1] if place else None
    behind = ranks[place + 1] if place + 1 < len(ranks) else None
    for kind, peer in (("recv", before), ("send", behind), ("recv", behind), ("send", before)):
        if peer is not None:
            calls.append(("pp", kind, peer))
    others = [(name, "all_reduce", -1) for name in groups]
    return recorded(rank, {"pp": ranks, **groups}, *calls, *others)


@pytest.mark.parametrize("stages", [2, 4])
def test_each_stage_of_a_pipeline_is_a_kind(stages: int) -> None:
    ranks, records = range(stages), list[Record]()
    for rank in ranks:
        records += stage(rank, ranks, {"world": ranks})
        assert missing_kinds(records, stages) == ({rank + 1} if rank + 1 < stages else set())
    assert kind_of_each(records, stages).tolist() == list(ranks)
    assert met_by_messages(records)[0] == {1}


def test_replicas_of_a_stage_are_alike() -> None:
    # 4 stages of 2 shards of 3 replicas: rank = stage * 6 + replica * 2 + shard
    records = list[Record]()
    ranks = range(0, 24, 6)
    for rank in ranks:
        groups = {"tp": [rank, rank + 1], "dp": [rank, rank + 2, rank + 4], "world": range(24)}
        records += stage(rank, ranks, groups)
    assert missing_kinds(records, 24) == set()
    assert kind_of_each(records, 24).tolist() == [6 * (rank // 6) for rank in range(24)]


def test_replicas_are_alike_where_messages_pass_in_the_default_group() -> None:
    records = list[Record]()
    for rank, other in ((0, 2), (2, 0)):
        calls = [("world", "send", other), ("world", "recv", other)]
        groups = {"world": range(4), "dp": [rank, rank + 1]}
        records += recorded(rank, groups, *(calls if rank == 0 else calls[::-1]))
        records += recorded(rank, groups, ("dp", "all_reduce", -1))
    assert kind_of_each(records, 4).tolist() == [0, 0, 2, 2]


def test_ranks_that_do_the_same_are_one_kind() -> None:
    ddp = recorded(0, {"world": range(1024)}, ("world", "all_reduce", -1))
    ring = recorded(0, {"world": range(16)}, ("world", "send", 1), ("world", "recv", 15))
    experts = recorded(3, {"ep": [3, 7]}, ("ep", "all_to_all", -1))
    assert missing_kinds(ddp, 1024) == missing_kinds(ring, 16) == set()
    assert set(kind_of_each(ddp, 1024).tolist()) == set(kind_of_each(ring, 16).tolist()) == {0}
    assert kind_of_each(experts, 8).tolist() == [3] * 8


def test_what_waits_before_it_sends_is_no_ring() -> None:
    line = recorded(1, {"world": range(16)}, ("world", "recv", 0), ("world", "send", 2))
    assert missing_kinds(line, 16) == {0, 2}


def test_a_root_is_a_kind_of_its_own() -> None:
    records = recorded(0, {"world": range(8)}, ("world", "gather", 0))
    assert missing_kinds(records, 8) == {1}
    records += recorded(1, {"world": range(8)}, ("world", "gather", 0))
    assert missing_kinds(records, 8) == set()
    assert kind_of_each(records, 8).tolist() == [0, *[1] * 7]


def test_a_rank_of_which_nothing_is_known_is_like_the_one_before_it() -> None:
    records = [
        *recorded(0, {"world": range(6)}, ("world", "all_reduce", -1)),
        *recorded(4, {"world": range(6)}, ("world", "all_reduce", -1)),
    ]
    assert kind_of_each(records, 6).tolist() == [0, 0, 0, 0, 4, 4]


def test_there_are_not_more_than_64_kinds(tmp_path: Path) -> None:
    ran: list[int] = []

    def run(rank: int) -> bool:
        ran.append(rank)
        return True

    with pytest.raises(InputError, match="more than 64 kinds of rank"):
        take_turns([0], tmp_path, run, lambda: set(range(100)))
    assert ran == [0]
