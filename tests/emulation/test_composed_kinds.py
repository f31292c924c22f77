"""Iterations of ranks that ran one after the other: every instant is found by hand."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from paracosm.emulation.compose import compose
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.records import Collective, Group, Iteration, Note, Record, Wait
from paracosm.validation import validated

MS = 1e-3
MB = 1_000_000


def job(world: int, **given: Any) -> EmulateConfig:
    """Return a job on links of 1 GB/s, over which a message of 1 MB takes 1 ms."""
    values = {"script": "train.py", "workers": world, **given}
    if "cluster" not in given:
        values["bandwidth"] = "8Gbit/s"
    return validated(EmulateConfig, values, "here")


class Script:
    """Records what one rank does, on a clock of its own."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank, self.now = rank, 1000.0 * (1 + rank)
        members = tuple(range(world))
        self.records: list[Record] = [Group(rank, "0", world, members, "gloo", 1800.0)]
        self.asked = self.iterations = 0

    def compute(self, seconds: float) -> None:
        self.now += seconds

    def ask(self, kind: str, size: int = MB, peer: int = -1, waits: bool = True) -> None:
        times = (self.now,) * 4
        self.records.append(Collective(self.rank, "0", self.asked, kind, size, peer, *times, -2))
        if waits:
            self.records.append(Wait(self.rank, self.now, self.now, "0", self.asked))
        self.asked += 1

    def end(self) -> None:
        self.records.append(Iteration(self.rank, self.iterations, self.now, self.now, 1))
        self.iterations += 1


def times(records: list[Record], rank: int) -> list[float]:
    ends = [
        record.end for record in records if isinstance(record, Iteration) and record.rank == rank
    ]
    return [after - before for before, after in itertools.pairwise(ends)]


def records_of(*scripts: Script) -> list[Record]:
    return [record for script in scripts for record in script.records]


def two_stages(iterations: int = 4) -> list[Record]:
    """Forward 10 and 30 ms, back 60 and 20 ms."""
    first, last = Script(0, 2), Script(1, 2)
    for _ in range(iterations):
        first.compute(10 * MS)
        first.ask("send", peer=1, waits=False)
        first.ask("recv", peer=1)
        first.compute(20 * MS)
        first.end()
        last.ask("recv", peer=0)
        last.compute(90 * MS)
        last.ask("send", peer=0)
        last.end()
    return records_of(first, last)


def test_stages_wait_for_each_other() -> None:
    composed = compose(job(2), 0, two_stages())
    # 10 there, 1 on the way, 90 in the last stage, 1 back, 20
    assert times(composed, 0) == pytest.approx([122 * MS] * 3)
    assert times(composed, 1) == pytest.approx([122 * MS] * 3)
    assert not [each for each in composed if isinstance(each, Note)]


def test_computing_that_is_faster_is_composed() -> None:
    faster = job(2, what_if=["compute: 50x faster"])
    assert times(compose(faster, 0, two_stages()), 0) == pytest.approx([4.4 * MS] * 3)
    one = job(2, what_if=["worker 1: compute 2x slower"])
    assert times(compose(one, 0, two_stages()), 0) == pytest.approx([212 * MS] * 3)
    none = job(2, what_if=["compute: none"])
    assert times(compose(none, 0, two_stages()), 0) == pytest.approx([2 * MS] * 3)


def test_the_speed_of_a_node_counts() -> None:
    nodes = [{"count": 1}, {"count": 1, "speed": 0.5}]
    cluster = {
        "topology": "switch",
        "workers": nodes,
        "links": {"default": {"bandwidth": "8Gbit/s"}},
    }
    slow = job(2, cluster=cluster)
    assert times(compose(slow, 0, two_stages()), 0) == pytest.approx([212 * MS] * 3)


def test_a_message_moves_when_its_receiver_has_come() -> None:
    sender, receiver = Script(0, 2), Script(1, 2)
    for _ in range(3):
        sender.ask("send", peer=1)
        sender.end()
        receiver.compute(40 * MS)
        receiver.ask("recv", peer=0)
        receiver.end()
    composed = compose(job(2), 0, records_of(sender, receiver))
    assert times(composed, 0) == pytest.approx([41 * MS] * 2)


def test_what_comes_to_one_rank_at_a_time_shares_its_port() -> None:
    senders, receiver = [Script(rank, 3) for rank in (0, 1)], Script(2, 3)
    for _ in range(3):
        for script in senders:
            script.ask("send", 10 * MB, peer=2)
            script.end()
        receiver.ask("recv", 10 * MB, peer=0, waits=False)
        receiver.ask("recv", 10 * MB, peer=1)
        receiver.end()
    composed = compose(job(3), 0, records_of(*senders, receiver))
    assert times(composed, 2) == pytest.approx([20 * MS] * 2)


def test_a_collective_of_several_kinds_waits_for_the_slowest() -> None:
    scripts = [Script(rank, 2) for rank in range(2)]
    for script, computes in zip(scripts, (5 * MS, 50 * MS), strict=True):
        for _ in range(4):
            script.compute(computes)
            script.ask("all_reduce", 10 * MB)
            script.end()
    composed = compose(job(2), 0, records_of(*scripts))
    # An all-reduce among two takes 10 ms
    assert times(composed, 0) == times(composed, 1) == pytest.approx([60 * MS] * 3)
    late = [each for each in composed if isinstance(each, Collective) and each.rank == 0]
    assert [each.entered - each.asked for each in late[1:]] == pytest.approx([45 * MS] * 3)


def test_a_rank_stands_for_those_like_it() -> None:
    # Ranks 1 to 3 are like rank 1, since they are not the root; the scatter takes 3 messages
    root, other = Script(0, 4), Script(1, 4)
    for _ in range(3):
        root.compute(9 * MS)
        root.ask("scatter", 4 * MB, peer=0)
        root.end()
        other.ask("scatter", 4 * MB, peer=0)
        other.compute(30 * MS)
        other.end()
    composed = compose(job(4), 0, records_of(root, other))
    alone = compose(job(4), 0, root.records)
    scatter = times(alone, 0)[0] - 9 * MS
    assert times(composed, 1) == pytest.approx([30 * MS + scatter] * 2)


def test_ranks_that_took_other_paths_end_the_job() -> None:
    first, last = Script(0, 2), Script(1, 2)
    for script, count in ((first, 4), (last, 2)):
        for _ in range(count):
            script.compute(10 * MS)
            script.ask("all_reduce")
            script.end()
    composed = compose(job(2), 0, records_of(first, last))
    assert times(composed, 0) == times(composed, 1) == pytest.approx([11 * MS])
    (note,) = [each for each in composed if isinstance(each, Note)]
    assert note.grave
    assert "all_reduce number 2 of group 0 at an unknown line meets no call" in note.text
