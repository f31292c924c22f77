"""Random programs of sends against the laws of the network, and against a slow simulator of it.

The reference is written from the rules alone, without queues or parking: at every instant at which
a port becomes free, it goes through all requests that have not begun, in the order in which they
were made, and starts each whose two ports are free.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paracosm.engine import Simulator, Transfer, Worker

WORKERS = 4
Plan = list[tuple[float, int, float]]  # when, to whom, for how long

# Quarters add up without rounding, so that ties really are ties.
quarters = st.integers(0, 12).map(lambda n: n / 4)
one_plan = st.lists(
    st.tuples(quarters, st.integers(0, WORKERS - 1), st.integers(1, 8).map(lambda n: n / 4)),
    max_size=8,
)
plans = st.lists(one_plan, min_size=WORKERS, max_size=WORKERS)


class Node(Worker):
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.sent: list[Transfer] = []
        self.got: list[Transfer] = []

    async def run(self) -> None:
        self.sim.spawn(self.listen(), daemon=True)
        for pause, target, delay in self.plan:
            await self.sleep(pause)
            data = (self.name, len(self.sent), self.sim.now)
            self.sent.append(self.send(f"n{target}", data, delay=delay, size=8 * delay))

    async def listen(self) -> None:
        while True:
            transfer = await self.recv_transfer()
            assert self.sim.now == transfer.arrived
            self.got.append(transfer)


def run(programs: list[Plan]) -> list[Node]:
    sim = Simulator()
    nodes = [sim.add_worker(f"n{index}", Node, plan) for index, plan in enumerate(programs)]
    sim.start()
    return nodes


@given(plans)
def test_the_laws_of_the_network(programs: list[Plan]) -> None:
    nodes = run(programs)
    sent = [transfer for node in nodes for transfer in node.sent]
    got = [transfer for node in nodes for transfer in node.got]
    assert sorted(t.number for t in sent) == sorted(t.number for t in got), "delivered exactly once"
    assert len(sent) == sum(len(plan) for plan in programs)
    for transfer in sent:
        asked = transfer.data[2]
        assert asked <= transfer.began <= transfer.arrived, "no effect before its cause"
        assert transfer.arrived == transfer.began + transfer.occupancy
    for node in nodes:
        assert_disjoint(node.sent)
        assert_disjoint(node.got)
        assert [t.number for t in node.got if t.source == "n0"] == [
            t.number for t in nodes[0].sent if t.target == node.name
        ], "what one sends to one other arrives in order"
    for quantity in ("bytes", "transfers", "busy_time"):
        at_send_ports = sum(getattr(node.ports.send, quantity) for node in nodes)
        assert at_send_ports == sum(getattr(node.ports.receive, quantity) for node in nodes)
    assert sum(node.ports.send.bytes for node in nodes) == sum(t.size for t in sent)


def assert_disjoint(transfers: list[Transfer]) -> None:
    """Nobody sends two at once, nobody receives two at once."""
    for before, after in pairwise(sorted(transfers, key=lambda t: t.began)):
        assert before.arrived <= after.began


@given(plans)
def test_a_port_is_never_idle_while_a_request_could_start(programs: list[Plan]) -> None:
    nodes = run(programs)
    sent = [transfer for node in nodes for transfer in node.sent]
    for transfer in sent:
        blockers = [
            other
            for other in sent
            if other is not transfer
            and (other.source == transfer.source or other.target == transfer.target)
        ]
        held = sorted((other.began, other.arrived) for other in blockers)
        free_since = transfer.data[2]
        for began, ended in held:
            if began <= free_since < ended or (began == free_since < transfer.began):
                free_since = max(free_since, ended)
        assert transfer.began == free_since


def without_ties(programs: list[Plan]) -> list[Plan]:
    """Add to every time a power of two of its own, so that no two sums of them are equal."""
    powers = iter(range(1, 41))
    return [
        [
            (round(pause) + 2.0 ** -next(powers), target, round(delay) + 2.0 ** -next(powers))
            for pause, target, delay in plan[:5]
        ]
        for plan in programs
    ]


@given(plans.map(without_ties))
def test_the_times_are_those_of_the_slow_reference(programs: list[Plan]) -> None:
    sent = sorted((t for node in run(programs) for t in node.sent), key=lambda t: t.number)
    requests = [(t.data[2], t.source, t.target, t.occupancy) for t in sent]
    assert reference(requests) == [transfer.began for transfer in sent]


def reference(requests: list[tuple[float, str, str, float]]) -> list[float]:
    began: list[float | None] = [None] * len(requests)
    sending: dict[str, float] = {}
    receiving: dict[str, float] = {}
    times = {asked for asked, *_ in requests}
    while times:
        now = min(times)
        times.remove(now)
        for index, (asked, source, target, occupancy) in enumerate(requests):
            free = sending.get(source, 0) <= now and receiving.get(target, 0) <= now
            if began[index] is None and asked <= now and free:
                began[index] = now
                sending[source] = receiving[target] = now + occupancy
                times.add(now + occupancy)
    return [time for time in began if time is not None]
