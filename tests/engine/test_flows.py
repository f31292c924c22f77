"""Transfers that share their ports fairly: by hand, at 100 bytes/s, and by exact fractions."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import inf, isnan
from types import MappingProxyType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from paracosm.cluster.cluster import Cluster, hierarchical, star, switch
from paracosm.cluster.description import cluster_from_mapping
from paracosm.cluster.link import Link, Sharing
from paracosm.engine import Simulator, Transfer, Worker
from paracosm.errors import InputError

Plan = list[tuple[float, str, float]]  # when, to whom, bytes
Plans = dict[str, Plan]


class Sender(Worker):
    """Asks at given times for transfers."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.transfers: list[Transfer] = []

    async def run(self) -> None:
        for time, target, size in self.plan:
            await self.sleep(time - self.sim.now)
            self.transfers.append(self.send(target, None, size=size))


def run(cluster: Cluster, **plans: Plan) -> tuple[Simulator, dict[str, list[tuple[float, float]]]]:
    """Return for each sender when its transfers began and arrived."""
    sim = Simulator(network=cluster)
    names = (*cluster.workers, *cluster.servers)
    workers = {name: sim.add_worker(name, Sender, plans.get(name, [])) for name in names}
    sim.start()
    return sim, {
        name: [(transfer.began, transfer.arrived) for transfer in worker.transfers]
        for name, worker in workers.items()
        if worker.transfers
    }


def four(**link: object) -> Cluster:
    return switch(4, link=Link(bandwidth=100, **link))  # type: ignore[arg-type]


def test_one_message_has_the_whole_bandwidth() -> None:
    _, times = run(four(latency=0.5, overhead=0.25), worker0=[(1, "worker1", 100)])
    assert times == {"worker0": [(1, 2.75)]}


def test_two_into_one_port_share_it_until_the_shorter_one_is_there() -> None:
    """Each at 50 until both have 100 bytes, at 2; the longer one has 100 more, alone: 3."""
    plans: Plans = {"worker0": [(0.0, "worker2", 100)], "worker1": [(0.0, "worker2", 200.0)]}
    sim, times = run(four(), **plans)
    assert times == {"worker0": [(0, 2)], "worker1": [(0, 3)]}
    port = sim.workers["worker2"].ports.receive
    assert (port.transfers, port.bytes, port.busy_time) == (2, 300, 3)


def test_a_late_one_takes_its_share_from_then_on() -> None:
    """100 of 200 bytes are there at 1, then 50 a second: 3. The late one has 100 of 150 by then,
    and the last 50 alone: 3.5.
    """
    plans: Plans = {"worker0": [(0.0, "worker2", 200)], "worker1": [(1.0, "worker2", 150.0)]}
    assert run(four(), **plans)[1] == {"worker0": [(0, 3)], "worker1": [(1, 3.5)]}


def test_one_sender_to_one_receiver_is_one_connection() -> None:
    """Two messages to worker1 take turns, and share the send port with one to worker2:
    100 bytes at 50 until 2, then the second 100 beside what is left of 150: at 3 the latter is
    there, and 50 bytes of the former, which go on alone until 3.5.
    """
    plan = [(0.0, "worker1", 100.0), (0.0, "worker1", 100.0), (0.0, "worker2", 150.0)]
    assert run(four(), worker0=plan)[1] == {"worker0": [(0, 2), (2, 3.5), (0, 3)]}


def test_a_connection_without_bytes_does_not_stop_who_was_alone_at_its_port() -> None:
    plans: Plans = {
        "worker0": [(0.0, "worker1", 0), (1.0, "worker2", 100)],
        "worker3": [(1.5, "worker2", 0)],
    }
    _, times = run(four(), **plans)
    assert times == {"worker0": [(0, 0), (1, 2)], "worker3": [(1.5, 1.5)]}


def test_rates_are_max_min_fair() -> None:
    """Three into worker2 have a third of its port each, also the one of worker0, whose other
    message has what that leaves of its own port, two thirds: 100 and 200 bytes take 3 s.
    """
    plans: Plans = {
        "worker0": [(0.0, "worker2", 100.0), (0.0, "worker3", 200.0)],
        "worker1": [(0.0, "worker2", 100.0)],
        "worker3": [(0.0, "worker2", 100.0)],
    }
    times = run(four(), **plans)[1]
    assert times == {
        "worker0": [(0, 3), (0, 3)],
        "worker1": [(0, 3)],
        "worker3": [(0, 3)],
    }


def test_what_holds_a_port_is_shared_like_bytes() -> None:
    """0.5 s of latency count as 50 bytes: both have 150, at 50 a second."""
    plans: Plans = {"worker0": [(0.0, "worker2", 100.0)], "worker1": [(0.0, "worker2", 100.0)]}
    cluster = four(latency=0.5, pipelined=False)
    assert run(cluster, **plans)[1] == {"worker0": [(0, 3)], "worker1": [(0, 3)]}


def test_without_limit_of_bandwidth_nothing_is_shared() -> None:
    cluster = switch(3, link=Link(latency=0.5, overhead=0.25))
    plans: Plans = {
        "worker0": [(0.0, "worker2", 9.0), (0.0, "worker2", 9.0)],
        "worker1": [(0, "worker2", 1)],
    }
    assert run(cluster, **plans)[1] == {"worker0": [(0, 0.75), (0.25, 1)], "worker1": [(0, 0.75)]}


@pytest.mark.parametrize(
    ("sharing", "pipelined", "first", "second"),
    [
        ("fair", True, 0.21, 0.21),
        ("serial", True, 0.11, 0.21),
        ("fair", False, 0.22, 0.22),
        ("serial", False, 0.11, 0.22),
    ],
)
def test_the_example_of_the_cluster_file_s_page(
    sharing: Sharing, pipelined: bool, first: float, second: float
) -> None:
    link = Link(bandwidth=1e6, latency=0.01, pipelined=pipelined, sharing=sharing)
    plans: Plans = {"worker0": [(0.0, "server0", 1e5)], "worker1": [(0.0, "server0", 1e5)]}
    times = run(star(2, 1, link), **plans)[1]
    assert [times[name][0][1] for name in plans] == pytest.approx([first, second], rel=1e-12)


def test_half_duplex_ports_are_shared_by_both_directions() -> None:
    plans: Plans = {"worker0": [(0.0, "worker1", 100.0)], "worker1": [(0.0, "worker0", 100.0)]}
    assert run(four(), **plans)[1] == {"worker0": [(0, 1)], "worker1": [(0, 1)]}
    assert run(four(duplex="half"), **plans)[1] == {"worker0": [(0, 2)], "worker1": [(0, 2)]}


def test_a_slower_link_is_a_station_of_its_own() -> None:
    """worker1's link carries 25: worker0 has 75 of the server's 100 and ends at 1; 100 bytes of the
    slow one take 4 s. So does its answer, beside which 75 are free.
    """
    text = {
        "topology": "star",
        "workers": 2,
        "servers": 1,
        "links": {
            "default": {"bandwidth": 100},
            "overrides": [{"between": ["worker1", "server0"], "bandwidth": 25}],
        },
    }
    plans: Plans = {
        "worker0": [(0.0, "server0", 75.0)],
        "worker1": [(0.0, "server0", 100.0)],
        "server0": [(0.0, "worker1", 100.0), (0.0, "worker0", 75.0)],
    }
    assert run(cluster_from_mapping(text), **plans)[1] == {
        "worker0": [(0, 1)],
        "worker1": [(0, 4)],
        "server0": [(0, 4), (0, 1)],
    }


@pytest.mark.parametrize("sharing", ["fair", "serial"])
def test_messages_that_leave_a_group_have_ports_of_their_own(sharing: Sharing) -> None:
    """worker0 sends 100 bytes within its group, at 100, and 100 to another one, at 50: 1 s, 2 s."""
    inner, outer = (Link(bandwidth=b, sharing=sharing) for b in (100, 50))
    cluster = hierarchical(4, 2, inner, outer)
    plan = [(0.0, "worker1", 100.0), (0.0, "worker2", 100.0)]
    sim, times = run(cluster, worker0=plan)
    assert times == {"worker0": [(0, 1), (0, 2)]}
    ports = sim.workers["worker0"].ports
    assert (ports.send.busy_time, ports.outer.send.busy_time) == (1, 2)


def test_ends_of_one_instant_are_delivered_in_the_order_of_requests() -> None:
    order: list[str] = []

    class Listener(Worker):
        async def run(self) -> None:
            while True:
                order.append((await self.recv_transfer()).source)

    cluster = star(5, 1, Link(bandwidth=100))
    sim = Simulator(network=cluster)
    sim.add_worker("server0", Listener, daemon=True)
    names = ("worker3", "worker0", "worker4", "worker1", "worker2")
    for name in names:
        sim.add_worker(name, Sender, [(0.0, "server0", 10.0)])
    sim.start()
    assert tuple(order) == names
    assert sim.now == 0.5


def test_the_clock_stops_at_the_last_event() -> None:
    """The end of the first flow is put forward when the second one is done: no event is left over
    from the time before.
    """
    plans: Plans = {"worker0": [(0.0, "worker2", 100.0)], "worker1": [(0.0, "worker2", 10.0)]}
    sim, times = run(four(), **plans)
    assert times["worker0"] == [(0, 1.1)]
    assert sim.now == 1.1


def test_a_run_until_a_time_ends_with_the_last_flow() -> None:
    sim = Simulator(network=four())
    sim.add_worker("worker0", Sender, [(0.0, "worker2", 100.0)])
    sim.add_worker("worker1", Sender, [(0.0, "worker2", 10.0)])
    sim.add_worker("worker2", Sender, [])
    sim.run(until=0.15)
    assert sim.workers["worker0"].ports.send.busy_time == 0.15
    sim.run(until=50)
    assert sim.now == 1.1


def test_a_run_until_a_condition_ends_right_after_the_event_that_makes_it_true() -> None:
    sim = Simulator(network=four())
    first = sim.add_worker("worker0", Sender, [(0.0, "worker2", 100.0)])
    sim.add_worker("worker1", Sender, [(0.0, "worker2", 10.0)])
    sim.add_worker("worker2", Sender, [])
    sim.run(until=lambda: sim.now > 0)
    assert sim.now == 0.2
    sim.run(until=lambda: first.ports.send.transfers == 1)
    assert sim.now == 1.1
    sim.run()
    assert sim.now == 1.1


def test_a_delay_that_is_given_is_not_shared() -> None:
    class Two(Worker):
        async def run(self) -> None:
            first = self.send("worker1", delay=2.0)
            second = self.send("worker2", size=100)
            assert (await first).arrived == 2
            assert (await second).arrived == 1

    sim = Simulator(network=four())
    sim.add_worker("worker0", Two)
    for name in ("worker1", "worker2"):
        sim.add_worker(name, Sender, [])
    sim.start()


def test_a_flow_of_more_than_a_hundred_days_is_refused() -> None:
    sim = Simulator(network=four())
    sim.add_worker("worker0", Sender, [(0.0, "worker1", 1e12)])
    sim.add_worker("worker1", Sender, [])
    with pytest.raises(InputError, match="up to 106 days"):
        sim.start()


Asked = tuple[int, int, int, int]  # when, from whom, to whom, bytes


def exact_ends(
    asked: list[Asked], taken_back: Mapping[int, Fraction] = MappingProxyType({})
) -> list[Fraction]:
    """Return when each message is there: fluid flows at ports of 1 byte/s, in exact fractions.

    At every instant rates are raised alike until a port is full, whose flows keep theirs. Messages
    that are taken back before they are there, by their numbers, never are: -1.
    """
    left = [Fraction(size) for _, _, _, size in asked]
    ends: list[Fraction | None] = [None] * len(asked)
    now = Fraction(0)
    while None in ends:
        for number, time in taken_back.items():
            if ends[number] is None and time <= now:
                ends[number] = Fraction(-1)
        heads: dict[tuple[int, int], int] = {}  # the oldest of each connection
        for number, (time, source, target, _) in enumerate(asked):
            if ends[number] is None and time <= now:
                heads.setdefault((source, target), number)
        flowing = sorted(heads.values())
        rates: dict[int, Fraction] = {}
        while len(rates) < len(flowing):
            level, port = min(
                (
                    (1 - sum(rates.get(n, Fraction(0)) for n in through)) / len(open_ones),
                    (side, end),
                )
                for side in (1, 2)
                for end in range(4)
                if (through := [n for n in flowing if asked[n][side] == end])
                and (open_ones := [n for n in through if n not in rates])
            )
            side, end = port
            rates |= {n: level for n in flowing if asked[n][side] == end and n not in rates}
        later = [Fraction(time) for time, *_ in asked if time > now]
        later += [time for time in taken_back.values() if time > now]
        finished = [now + left[n] / rate for n, rate in rates.items()]
        instant = min(later + finished, default=now)
        for n, rate in rates.items():
            left[n] -= rate * (instant - now)
            if left[n] == 0:
                ends[n] = instant
        now = instant
    return [end for end in ends if end is not None]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 6), st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)
        ).filter(lambda each: each[1] != each[2]),
        max_size=14,
    )
)
def test_flows_end_when_exact_fractions_say(asked: list[Asked]) -> None:
    asked.sort(key=lambda each: each[:2])  # workers ask in the order in which they are
    plans: Plans = {f"worker{number}": [] for number in range(4)}
    for time, source, target, size in asked:
        plans[f"worker{source}"].append((float(time), f"worker{target}", float(size)))
    found = run(switch(4, link=Link(bandwidth=1.0)), **plans)[1]
    numbers = {name: iter(times) for name, times in found.items()}
    ends = [next(numbers[f"worker{source}"])[1] for _, source, _, _ in asked]
    assert ends == pytest.approx([float(end) for end in exact_ends(asked)], abs=1e-10)


class Taker(Worker):
    """Sends what a plan says, and takes some of it back: (when, to whom, bytes, until when)."""

    def __init__(self, plan: list[tuple[float, str, float, float]]) -> None:
        super().__init__()
        self.plan = plan
        self.sent: list[Transfer] = []

    async def run(self) -> None:
        for when, to, size, until in self.plan:
            await self.sleep(when - self.sim.now)
            transfer = self.send(to, size=size)
            self.sent.append(transfer)
            if until < inf:
                self.sim.call_later(until - self.sim.now, lambda _, t=transfer: t.cancel())


PRIMES = (97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151)


@example([(0, 1, 2, 1, 1), (0, 1, 0, 1, 0)])  # with one prime for both an end was such an instant
@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 6),
            st.integers(0, 3),
            st.integers(0, 3),
            st.integers(1, 9),
            st.none() | st.integers(0, 5),
        ).filter(lambda each: each[1] != each[2]),
        max_size=12,
    )
)
def test_what_is_taken_back_leaves_its_share_to_others(
    planned: list[tuple[int, int, int, int, int | None]],
) -> None:
    planned.sort(key=lambda each: each[:2])
    asked = [each[:4] for each in planned]
    # At instants at which nothing else happens: no sum of the others has that prime below it
    taken_back = {
        number: Fraction(each[0] + each[4]) + Fraction(1, PRIMES[number])
        for number, each in enumerate(planned)
        if each[4] is not None
    }
    sim = Simulator(network=switch(4, link=Link(bandwidth=1.0)))
    workers: list[Taker] = [sim.add_worker(f"worker{n}", Taker, []) for n in range(4)]
    order = []
    for number, (time, source, target, size) in enumerate(asked):
        until = float(taken_back[number]) if number in taken_back else inf
        order.append((source, len(workers[source].plan)))
        workers[source].plan.append((float(time), f"worker{target}", float(size), until))
    sim.run()
    found = [workers[source].sent[place].arrived for source, place in order]
    expected = [float(end) for end in exact_ends(asked, taken_back)]
    assert [-1.0 if isnan(end) else end for end in found] == pytest.approx(expected, abs=1e-10)
