"""Comm workers and links, by hand and for whatever is asked of them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.emulation.backend.clocks import CommWorkers, Links, Span
from paracosm.emulation.backend.member import Member
from paracosm.emulation.cost import Cost

MS = 1e-3


def spans(workers: int, costs: list[Cost], every: float = 0.0) -> list[Span]:
    group = CommWorkers(Links())
    return [group.run("all", workers, i * every, i * every, cost) for i, cost in enumerate(costs)]


def test_one_comm_worker_adds_up_delays():
    done = [span.done for span in spans(1, [Cost(2 * MS, 0)] * 8)]
    assert done == pytest.approx([2 * MS * (i + 1) for i in range(8)])


def test_two_comm_workers_take_half_the_time_and_turns():
    result = spans(2, [Cost(2 * MS, 0)] * 8)
    assert result[-1].done == pytest.approx(8 * MS)
    assert [span.worker for span in result] == [0, 1] * 4


def test_two_comm_workers_share_a_link():
    # both latencies pass at once, the bytes one after the other
    result = spans(2, [Cost(1 * MS, 4 * MS, "nic")] * 2)
    assert [span.done for span in result] == pytest.approx([5 * MS, 9 * MS])
    assert [span.begun for span in result] == [0, 0]


@pytest.mark.parametrize(("workers", "slope"), [(1, 8), (2, 4)])
def test_added_delay_counts_once_for_each_bucket_that_a_worker_has(workers: int, slope: int):
    # figure 4 of the paper: 8 all-reduces, 1 ms of computing apart; the end of the backward pass is
    # at 8 ms, and past the knee an added millisecond makes K / workers milliseconds
    def end(delay: float) -> float:
        return max(8 * MS, spans(workers, [Cost(delay, 0)] * 8, every=1 * MS)[-1].done)

    assert end(0) == end(0.5 * MS) == pytest.approx(8 * MS)  # hidden, all of it
    assert (end(9 * MS) - end(8 * MS)) / MS == pytest.approx(slope)


def test_a_late_member_keeps_the_comm_worker():
    group = CommWorkers(Links())
    first = group.run("all", 1, 0.0, 5 * MS, Cost(1 * MS, 0))
    second = group.run("all", 1, 0.0, 0.0, Cost(1 * MS, 0))
    assert (first.begun, first.done) == pytest.approx((0, 6 * MS))
    assert (second.begun, second.done) == pytest.approx((6 * MS, 7 * MS))


def test_a_gap_on_a_link_is_used_by_whoever_is_ready_and_fits():
    links = Links()
    assert links.hold("nic", 10.0, 5.0, now=0.0) == 10.0
    assert links.hold("nic", 0.0, 4.0, now=0.0) == 0.0
    assert links.hold("nic", 0.0, 7.0, now=0.0) == 15.0  # the gap from 4 to 10 is too short
    assert links.hold("nic", 0.0, 6.0, now=0.0) == 4.0
    assert links.hold("other", 0.0, 6.0, now=0.0) == 0.0


def test_the_directions_of_a_link_are_apart_and_a_collective_holds_both():
    links = Links()
    assert links.hold("nic out", 0.0, 5.0, now=0.0) == 0.0
    assert links.hold("nic in", 1.0, 5.0, now=0.0) == 1.0
    assert links.hold("nic", 0.0, 2.0, now=0.0) == 6.0
    assert links.hold("nic out", 0.0, 1.0, now=0.0) == 5.0
    assert links.hold("nic in", 0.0, 1.0, now=0.0) == 0.0
    assert links.hold("nic", 0.0, 1.0, now=0.0) == 8.0


def test_messages_with_different_peers_do_not_wait_for_each_other():
    group = CommWorkers(Links())
    late = group.run(("recv", 1), 1, 0.0, 50 * MS, Cost(1 * MS, 0))
    other = group.run(("recv", 2), 1, 0.0, 0.0, Cost(1 * MS, 0))
    assert (late.done, other.done) == pytest.approx((51 * MS, 1 * MS))
    assert late.worker != other.worker


@pytest.mark.parametrize(
    ("asked", "device", "given", "expected"),
    [
        ("gloo", "cpu", None, 2),
        ("nccl", "cpu", None, 1),
        ("NCCL", "cuda", None, 1),
        ("cpu:gloo,cuda:nccl", "cpu", None, 2),
        ("cpu:gloo,cuda:nccl", "cuda", None, 1),
        ("undefined", "cpu", None, 2),
        ("", "cuda", None, 1),
        ("nccl", "cuda", 4, 4),
    ],
)
def test_a_backend_has_so_many_comm_workers(
    asked: str, device: str, given: int | None, expected: int
):
    member = Member("0", 0, (0, 1), asked, 1800.0, CommWorkers(Links()), given)
    assert member.pool("all_reduce", -1, device)[1] == expected
    assert member.pool("send", 1, device)[1] == 1
    assert member.pool("send", 1, device)[0] != member.pool("recv", 1, device)[0]


times = st.integers(0, 40).map(lambda tenths: tenths / 10)
asks = st.lists(
    st.tuples(
        st.integers(0, 2),  # group
        times,  # since the last ask
        times,  # lateness of the last member
        st.builds(Cost, times, times, st.sampled_from(["a", "b"])),
    ),
    max_size=30,
)


@given(asks, st.integers(1, 3))
def test_whatever_is_asked_in_order_begins_in_order_and_shares_nothing(
    asked_for: list[tuple[int, float, float, Cost]], workers: int
):
    links = Links()
    groups = [CommWorkers(links) for _ in range(3)]
    now, of_worker = 0.0, dict[tuple[int, int], list[Span]]()
    begun_in_group: dict[int, list[float]] = {}
    on_link: dict[str, list[tuple[float, float]]] = {}
    for group, since, late, cost in asked_for:
        now += since
        span = groups[group].run("all", workers, now, now + late, cost)
        assert span.begun >= now
        assert span.done >= max(span.begun, now + late) + cost.fixed + cost.busy - 1e-9
        of_worker.setdefault((group, span.worker), []).append(span)
        begun_in_group.setdefault(group, []).append(span.begun)
        if cost.busy:
            on_link.setdefault(cost.link, []).append((span.done - cost.busy, span.done))
    for begun in begun_in_group.values():
        assert begun == sorted(begun)
    for done in of_worker.values():
        assert all(a.done <= b.begun for a, b in pairwise(done))
    for held in on_link.values():
        held.sort()
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(held))
