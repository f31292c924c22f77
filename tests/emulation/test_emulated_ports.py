"""Comm workers and links, by hand and for whatever is asked of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cluster.link import Packets
from paracosm.emulation.cost import Cost
from paracosm.emulation.ports import Ports, Span
from paracosm.errors import InputError
from paracosm.network.clock import LAST_INSTANT
from paracosm.network.fair import FairTraffic

MS = 1e-3
Sharing = Literal["fair", "serial"]


def spans(
    workers: int, costs: list[Cost], every: float = 0.0, sharing: Sharing = "fair"
) -> list[Span]:
    ports = Ports(sharing)
    return [
        ports.ask("group", "all", workers, i * every, i * every, cost)
        for i, cost in enumerate(costs)
    ]


def ends(sharing: Sharing, *asked: tuple[float, Cost]) -> list[float]:
    """Ask for each with a comm worker of its own, at that instant; return when each was done."""
    ports = Ports(sharing)
    found = [ports.ask("group", i, 1, at, at, cost) for i, (at, cost) in enumerate(asked)]
    return pytest.approx([span.done for span in found])


def test_one_comm_worker_adds_up_delays() -> None:
    done = [span.done for span in spans(1, [Cost(2 * MS, 0)] * 8)]
    assert done == pytest.approx([2 * MS * (i + 1) for i in range(8)])


def test_two_comm_workers_take_half_the_time_and_turns() -> None:
    result = spans(2, [Cost(2 * MS, 0)] * 8)
    assert result[-1].done == pytest.approx(8 * MS)
    assert [span.worker for span in result] == [0, 1] * 4


@pytest.mark.parametrize(("sharing", "first"), [("serial", 5 * MS), ("fair", 9 * MS)])
def test_two_comm_workers_share_a_link(sharing: Sharing, first: float) -> None:
    """Both latencies pass at once; the bytes go one after the other, or each at half the rate."""
    result = spans(2, [Cost(1 * MS, 4 * MS, "nic")] * 2, sharing=sharing)
    assert [span.done for span in result] == pytest.approx([first, 9 * MS])
    assert [span.begun for span in result] == [0, 0]


@pytest.mark.parametrize(("workers", "slope"), [(1, 8), (2, 4)])
def test_added_delay_counts_once_for_each_bucket_that_a_worker_has(
    workers: int, slope: int
) -> None:
    """Figure 4 of the paper: 8 all-reduces, 1 ms of computing apart.

    The end of the backward pass is at 8 ms, and past the knee an added millisecond makes
    K / workers milliseconds.
    """

    def end(delay: float) -> float:
        return max(8 * MS, spans(workers, [Cost(delay, 0)] * 8, every=1 * MS)[-1].done)

    assert end(0) == end(0.5 * MS) == pytest.approx(8 * MS)  # hidden, all of it
    assert (end(9 * MS) - end(8 * MS)) / MS == pytest.approx(slope)


def test_a_late_member_keeps_the_comm_worker() -> None:
    ports = Ports("fair")
    first = ports.ask(0, "all", 1, 0.0, 5 * MS, Cost(1 * MS, 0))
    second = ports.ask(0, "all", 1, 0.0, 0.0, Cost(1 * MS, 0))
    assert (first.begun, first.done) == pytest.approx((0, 6 * MS))
    assert (second.begun, second.done) == pytest.approx((6 * MS, 7 * MS))


def test_what_becomes_ready_first_has_a_serial_link_first() -> None:
    """The first, whose latency is 10, finds the link taken from 8 to 15 by the last."""
    asked = [(0.0, Cost(10.0, 5.0, "nic")), (0.0, Cost(0.0, 4.0, "nic"))]
    assert ends("serial", *asked) == [15.0, 4.0]
    assert ends("serial", *asked, (0.0, Cost(8.0, 7.0, "nic"))) == [20.0, 4.0, 15.0]
    assert ends("serial", *asked, (0.0, Cost(0.0, 9.0, "other"))) == [15.0, 4.0, 9.0]


def test_the_directions_of_a_serial_link_are_apart_and_a_collective_holds_both() -> None:
    """In: from 1 to 6; out: from 0 to 5, and from 5 to 6, since the collective waits for both."""
    out, into = "nic out", "nic in"
    asked = [(0.0, Cost(0, 5.0, out)), (1.0, Cost(0, 5.0, into)), (1.0, Cost(0, 2.0, "nic"))]
    assert ends("serial", *asked) == [5.0, 6.0, 8.0]
    assert ends("serial", *asked, (1.0, Cost(0, 1.0, out))) == [5.0, 6.0, 8.0, 6.0]


def test_shares_are_max_min_fair() -> None:
    """A collective and two sends have a third each of "out", and what comes in has the rest.

    Until 3: a third each, and 2/3 for what comes in (2 of its 3). Then the collective has ended,
    with 1 of 1; so the sends have half each (2 left, at 7), and what comes in has all (1, at 4).
    """
    out, into = Cost(0, 3.0, "nic out"), Cost(0, 3.0, "nic in")
    asked = [(0.0, Cost(0, 1.0, "nic")), (0.0, out), (0.0, out), (0.0, into)]
    assert ends("fair", *asked) == [3.0, 7.0, 7.0, 4.0]


def test_an_end_moves_when_another_begins_and_nobody_is_told_of_later() -> None:
    """Alone until 2, half the rate from then on: 2 left take until 6; then the other has all."""
    ports = Ports("fair")
    first = ports.ask(0, 0, 1, 0.0, 0.0, Cost(0, 4.0, "nic"))
    assert first.done == 4.0
    told = []
    first.on_earlier = lambda: told.append(first.done)
    second = ports.ask(0, 1, 1, 2.0, 2.0, Cost(0, 3.0, "nic"))
    assert (first.done, second.done) == (6.0, 7.0)
    assert told == []


def test_an_end_that_becomes_earlier_is_told() -> None:
    """In and out are shared by a collective; a second send takes some of its rate away.

    Two collectives of 6 and what comes in, of 4: a third each, so the latter ends at 12. From 0 on
    five sends take part of "out": the collectives then have a seventh each, and what comes in has
    5/7, and ends at 5.6.
    """
    ports = Ports("fair")
    for pool in range(2):
        ports.ask(0, pool, 1, 0.0, 0.0, Cost(0, 6.0, "nic"))
    into = ports.ask(0, 2, 1, 0.0, 0.0, Cost(0, 4.0, "nic in"))
    assert into.done == pytest.approx(12.0)
    told = []
    into.on_earlier = lambda: told.append(into.done)
    for pool in range(3, 8):
        ports.ask(0, pool, 1, 0.0, 0.0, Cost(0, 100.0, "nic out"))
    assert into.done == pytest.approx(5.6)
    assert told[-1] == into.done


def test_a_slower_link_of_two_ranks_leaves_room_for_others() -> None:
    """A quarter of the rank's link, for 4; another message has 3/4 meanwhile: 3 of its 4."""
    slow = Cost(0, 4.0, "nic out", after=1.0, own="with 3 out", share=0.25)
    assert ends("fair", (0.0, slow)) == [5.0]
    assert ends("fair", (0.0, slow), (0.0, Cost(0, 4.0, "nic out"))) == [5.0, 5.0]
    assert ends("fair", (0.0, slow), (0.0, slow)) == [9.0, 9.0]


def test_packets_need_the_bandwidth_of_a_link_and_all_rules_an_end_in_106_days() -> None:
    with pytest.raises(InputError, match=r"packets\(1kB\).*Cost\.bandwidth"):
        Ports(Packets(1000.0)).ask(0, 0, 1, 0.0, 0.0, Cost(0, 1.0, "nic"))
    for sharing in ("fair", "serial"):
        with pytest.raises(InputError, match="106 days"):
            Ports(sharing).ask(0, 0, 1, 0.0, 0.0, Cost(0, 1e7, "nic"))


def test_messages_of_a_pair_follow_on_each_other_and_not_on_latencies() -> None:
    ports = Ports("fair")
    cost = Cost(0, 2.0, "nic out", after=5.0)
    found = [ports.ask(0, "to 1", 1, 0.0, 0.0, cost) for _ in range(2)]
    assert [span.done for span in found] == [7.0, 9.0]


def test_messages_with_different_peers_do_not_wait_for_each_other() -> None:
    ports = Ports("fair")
    late = ports.ask(0, ("recv", 1), 1, 0.0, 50 * MS, Cost(1 * MS, 0))
    other = ports.ask(0, ("recv", 2), 1, 0.0, 0.0, Cost(1 * MS, 0))
    assert (late.done, other.done) == pytest.approx((51 * MS, 1 * MS))
    assert late.worker != other.worker


times = st.integers(0, 40).map(lambda tenths: tenths / 10)
asks = st.lists(
    st.tuples(
        st.integers(0, 2),  # group
        times,  # since the last ask
        times,  # lateness of the last member
        st.builds(Cost, times, times, st.sampled_from(["a", "b", "a out", "a in"])),
    ),
    max_size=30,
)


def play(
    asked_for: list[tuple[int, float, float, Cost]], workers: int, sharing: Sharing
) -> list[Span]:
    ports, now, found = Ports(sharing), 0.0, []
    for group, since, late, cost in asked_for:
        now += since
        found.append(ports.ask(group, group, workers, now, now + late, cost))
    return found


@given(asks, st.integers(1, 3), st.sampled_from(["fair", "serial"]))
def test_whatever_is_asked_begins_in_order_and_takes_no_less_than_alone(
    asked_for: list[tuple[int, float, float, Cost]], workers: int, sharing: Sharing
) -> None:
    now, of_worker = 0.0, dict[tuple[int, int], list[Span]]()
    begun_in_group: dict[int, list[float]] = {}
    for (group, since, late, cost), span in zip(
        asked_for, play(asked_for, workers, sharing), strict=True
    ):
        now += since
        assert span.begun >= now
        assert span.done >= max(span.begun, now + late) + cost.fixed + cost.busy - 1e-9
        of_worker.setdefault((group, span.worker), []).append(span)
        begun_in_group.setdefault(group, []).append(span.begun)
    for begun in begun_in_group.values():
        assert begun == sorted(begun)
    for done in of_worker.values():
        assert all(a.done <= b.begun + 1e-9 for a, b in pairwise(done))


@given(asks, st.integers(1, 3), st.sampled_from(["fair", "serial"]))
def test_a_link_carries_no_more_than_it_can(
    asked_for: list[tuple[int, float, float, Cost]], workers: int, sharing: Sharing
) -> None:
    """What is over by an instant fits between the first request and that, and serial ends alone."""
    now, loads = 0.0, dict[str, list[tuple[float, float, float]]]()
    found = play(asked_for, workers, sharing)
    for (_, since, late, cost), span in zip(asked_for, found, strict=True):
        now += since
        if cost.busy:
            ready = max(span.begun, now + late) + cost.fixed
            for way in ("out", "in"):
                if " " not in cost.link or cost.link.endswith(way):
                    load = (ready, span.done, cost.busy)
                    loads.setdefault(cost.link.split()[0] + way, []).append(load)
    for of_link in loads.values():
        for _, end, _ in of_link:
            done = [each for each in of_link if each[1] <= end]
            assert sum(each[2] for each in done) <= end - min(each[0] for each in done) + 1e-9
        if sharing == "serial":
            held = sorted((end - busy, end) for _, end, busy in of_link)
            assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(held))


@given(asks, st.sampled_from(["fair", "serial"]))
def test_nothing_waits_with_the_link_idle(
    asked_for: list[tuple[int, float, float, Cost]], sharing: Sharing
) -> None:
    """With a comm worker for each, the last end is that of the busiest order: work is conserved."""
    asked = [(since, late, cost.fixed, cost.busy) for _, since, late, cost in asked_for]
    ports, now, found, ready = Ports(sharing), 0.0, [], []
    for number, (since, late, fixed, busy) in enumerate(asked):
        now += since
        found.append(ports.ask(0, number, 1, now, now + late, Cost(fixed, busy, "nic")))
        ready.append((now + late + fixed, busy))
    end = 0.0
    for at, busy in sorted(ready):
        end = max(end, at) + busy
    assert max((span.done for span in found), default=0.0) == pytest.approx(end)


flows = st.lists(
    st.tuples(
        st.integers(0, 20),  # tenths of a second after the last one
        st.integers(1, 40),  # tenths of a second of the whole port
        st.sampled_from([("nic", "", 1.0), ("nic out", "", 1.0), ("nic in", "", 1.0)])
        | st.sampled_from([("nic out", "with 1 out", 0.25), ("nic out", "with 2 out", 0.5)]),
    ),
    max_size=12,
)


@given(flows)
def test_shares_are_those_of_the_network(
    asked: list[tuple[int, int, tuple[str, str, float]]],
) -> None:
    """The rule of every other command, in whole picoseconds; a port carries 1 byte a picosecond."""
    stations = {"nic out": 1.0, "nic in": 1.0, "with 1 out": 0.25, "with 2 out": 0.5}
    traffic = FairTraffic([share * 1e12 for share in stations.values()])
    number = {name: place for place, name in enumerate(stations)}
    ports, now, found, ends = Ports("fair"), 0, [], dict[int, int]()

    def play(until: float) -> None:
        while (at := traffic.next_end()) <= until and at < LAST_INSTANT:
            while (message := traffic.pop_end(at)) >= 0:
                ends[message] = at
            traffic.settle(at)

    for message, (later, tenths, (link, own, share)) in enumerate(asked):
        now += later * 10**11
        play(now)
        cost = Cost(0.0, tenths / 10 / share, link, own=own, share=share)
        found.append(ports.ask(0, message, 1, now * 1e-12, now * 1e-12, cost))
        ways = {"nic": ("nic out", "nic in")}.get(link, (link,))
        route = traffic.route(number[way] for way in (*ways, own) if way)
        traffic.request(message, route, tenths * 1e11, now)
        traffic.settle(now)
    play(float("inf"))
    assert [span.done for span in found] == pytest.approx(
        [ends[message] * 1e-12 for message in range(len(asked))], abs=1e-9
    )


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10), st.integers(1, 8), st.sampled_from(["nic", "nic out", "nic in"])
        ),
        max_size=10,
    )
)
def test_turns_are_those_of_a_clock_that_ticks(asked: list[tuple[int, int, str]]) -> None:
    """Tick by tick: each end, in the order of asking, frees its ways for those that wait."""
    ports = Ports("serial")
    found = [
        ports.ask(0, number, 1, 0.0, float(ready), Cost(0.0, float(busy), link))
        for number, (ready, busy, link) in enumerate(asked)
    ]
    order = sorted(range(len(asked)), key=lambda number: asked[number][0])
    held, ends, waiting, now = dict[str, int](), dict[int, int](), list[int](), 0

    def start() -> None:
        for number in waiting.copy():
            _, busy, link = asked[number]
            ways = [way for way in ("out", "in") if link.endswith(way) or " " not in link]
            if held.keys().isdisjoint(ways):
                held.update(dict.fromkeys(ways, number))
                ends[number] = now + busy
                waiting.remove(number)

    while len(ends) < len(asked):
        for number in order:
            if ends.get(number) == now:
                for way in [way for way, holder in held.items() if holder == number]:
                    del held[way]
                start()
        for number in order:
            if asked[number][0] == now:
                waiting.append(number)
                start()
        now += 1
    assert [span.done for span in found] == [ends[number] for number in range(len(asked))]
