"""The network model, by hand.

Each case says which transfers are asked for; the expected times follow from the rules of the paper:
a transfer holds the send port of its source and the receive port of its target.
"""

from __future__ import annotations

import pytest

from paracosm.cluster import Link
from paracosm.engine import Simulator, Transfer, Worker
from paracosm.errors import InputError
from paracosm.network import serial


class Mute(Worker):
    async def run(self) -> None:
        pass


class Sender(Worker):
    """Asks at given times for transfers (time, target, delay)."""

    def __init__(self, plan: list[tuple[float, str, float]]) -> None:
        self.plan = plan
        self.transfers: list[Transfer] = []

    async def run(self) -> None:
        for time, target, delay in self.plan:
            await self.sleep(time - self.sim.now)
            self.transfers.append(self.send(target, None, delay=delay))


def run(**plans: list[tuple[float, str, float]]) -> dict[str, list[tuple[float, float]]]:
    """Return for each worker the times at which its transfers began and arrived."""
    sim = Simulator()
    workers = {name: sim.add_worker(name, Sender, plan) for name, plan in plans.items()}
    sim.start()
    return {
        name: [(transfer.began, transfer.arrived) for transfer in worker.transfers]
        for name, worker in workers.items()
    }


def test_transfers_to_several_targets_are_serialised_at_the_sender() -> None:
    times = run(a=[(0, "b", 1), (0, "c", 2), (0, "d", 3)], b=[], c=[], d=[])
    assert times["a"] == [(0, 1), (1, 3), (3, 6)]


def test_transfers_from_several_sources_are_serialised_at_the_receiver_in_order() -> None:
    times = run(a=[(0, "d", 1)], b=[(0, "d", 2)], c=[(0, "d", 3)], d=[])
    assert (times["a"], times["b"], times["c"]) == ([(0, 1)], [(1, 3)], [(3, 6)])


def test_sending_and_receiving_are_independent() -> None:
    times = run(a=[(0, "b", 2)], b=[(0, "a", 2), (0.5, "c", 1)], c=[(0.5, "a", 1)])
    assert times == {"a": [(0, 2)], "b": [(0, 2), (2, 3)], "c": [(2, 3)]}


def test_a_busy_destination_is_skipped() -> None:
    """b's port is held by a until 4. c asks for b at 1, then for d: d goes first, b at 4.

    c's second request for d, made before b is free, also goes first.
    """
    times = run(a=[(0, "b", 4)], b=[], c=[(1, "b", 2), (1, "d", 1), (1.5, "d", 1)], d=[])
    assert times["c"] == [(4, 6), (1, 2), (2, 3)]


def test_a_request_is_overtaken_only_while_its_destination_is_busy() -> None:
    """b is free again at 2 while c still sends to d; at 3 c looks at its queue from the beginning,
    and the request for b, which is older than the second one for d, goes first.
    """
    times = run(a=[(0, "b", 2)], b=[], c=[(1, "b", 2), (1, "d", 2), (1, "d", 2)], d=[])
    assert times["c"] == [(3, 5), (1, 3), (5, 7)]


def test_who_asked_first_goes_first_even_if_it_was_told_to_wait_twice() -> None:
    """c asks for d at 0.1, e at 0.2. When d is free at 1, c is sending to b (until 2), so e goes;
    e again asks for d at 0.3, but c's request is older: at 4, when d is free, c goes before it.
    """
    times = run(
        a=[(0, "d", 1)],
        b=[],
        c=[(0.1, "d", 1), (0.1, "b", 1.9)],
        d=[],
        e=[(0.2, "d", 3), (0.3, "d", 1)],
    )
    assert times["c"] == [(4, 5), (0.1, 2)]
    assert times["e"] == [(1, 4), (5, 6)]


def test_a_sender_with_a_long_queue_does_not_keep_its_target() -> None:
    """a asks for c twice, b in between. At 1 both a's port and c's are free; b asked before a's
    second request.
    """
    sim = Simulator()
    order: list[str] = []

    class Server(Worker):
        async def run(self) -> None:
            for _ in range(3):
                order.append((await self.recv_transfer()).source)

    class Client(Worker):
        async def run(self) -> None:
            self.send("c", None, delay=1)
            await self.sleep(0.2 if self.name == "a" else 0.1)
            if self.name == "a":
                self.send("c", None, delay=1)

    sim.add_worker("a", Client)
    sim.add_worker("b", Client)
    sim.add_worker("c", Server)
    sim.start()
    assert order == ["a", "b", "a"]


def test_split_duplex_links_as_simgrid_has_them() -> None:
    """SimGrid's split-duplex links with concurrency limit 1: each host's up link carries one flow,
    and so does its down link. A flow needs both; it starts when both are free.

    Three hosts exchange all to all, one second each, asked for at 0 in the order of the hosts:
    0->1, 0->2, 1->0, 1->2, 2->0, 2->1. At 0 start 0->1 and 1->0; 2->0 and 2->1 wait for the down
    links of 0 and 1. When 0->1 ends, 2->1 may go on (down 1 is free, up 2 is); then 0->2. When 1->0
    ends, down 0 is free but up 2 is not; 1->2 finds down 2 taken. At 2 the rest: 1->2 and 2->0.
    """
    names = ["0", "1", "2"]
    plans = {name: [(0.0, other, 1.0) for other in names if other != name] for name in names}
    times = run(**plans)
    assert times == {"0": [(0, 1), (1, 2)], "1": [(0, 1), (2, 3)], "2": [(2, 3), (1, 2)]}


class Plain:
    """A network of one kind of link, and nodes if there are any."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def link(self, source: str, target: str) -> Link:
        return self._link


def pair(link: Link, sizes: list[float]) -> tuple[Simulator, list[Transfer]]:
    sim = Simulator(network=Plain(link))
    sent: list[Transfer] = []

    class Source(Worker):
        async def run(self) -> None:
            sent.extend(self.send("target", None, size=size) for size in sizes)

    sim.add_worker("source", Source)
    sim.add_worker("target", Mute)
    sim.start()
    return sim, sent


def test_the_latency_holds_the_ports() -> None:
    _, sent = pair(Link(bandwidth=100, latency=0.5, overhead=0.25, pipelined=False), [100, 25])
    assert [(t.began, t.arrived) for t in sent] == [(0, 1.75), (1.75, 2.75)]


def test_on_a_pipelined_link_the_latency_follows() -> None:
    _, sent = pair(Link(bandwidth=100, latency=0.5, overhead=0.25, pipelined=True), [100, 25])
    assert [(t.began, t.arrived) for t in sent] == [(0, 1.75), (1.25, 2.25)]


def half_duplex(link: Link) -> list[tuple[float, float]]:
    """a sends to b, b to c, c to a, all at once, one second each."""
    sim = Simulator(network=Plain(link))
    sent: list[Transfer] = []

    class Node(Worker):
        def __init__(self, target: str) -> None:
            self.target = target

        async def run(self) -> None:
            sent.append(self.send(self.target, None, size=0))

    for name, target in ("ab", "bc", "ca"):
        sim.add_worker(name, Node, target)
    sim.start()
    return [(transfer.began, transfer.arrived) for transfer in sent]


def test_a_half_duplex_node_either_sends_or_receives() -> None:
    full = Link(latency=1.0, pipelined=False)
    assert half_duplex(full) == [(0, 1), (0, 1), (0, 1)]
    half = Link(latency=1.0, duplex="half", pipelined=False)
    assert half_duplex(half) == [(0, 1), (1, 2), (2, 3)]


def test_ports_keep_statistics() -> None:
    sim, _ = pair(Link(bandwidth=10), [10, 30])
    source, target = sim.workers["source"].ports, sim.workers["target"].ports
    for port in (source.send, target.receive):
        assert (port.transfers, port.bytes, port.busy_time) == (2, 40, 4)
    assert (source.receive.transfers, target.send.busy_time) == (0, 0)


def test_busy_time_counts_a_transfer_in_progress() -> None:
    sim = Simulator()
    sender = sim.add_worker("a", Sender, [(0.0, "b", 10.0)])
    sim.add_worker("b", Mute)
    sim.run(until=4)
    assert sender.ports.send.busy_time == 4


class Node:
    def __init__(self, name: str, speed: float = 1.0) -> None:
        self.name = name
        self.speed = speed


class TwoNodes(Plain):
    """Workers whose names start alike live on one node."""

    def node(self, name: str) -> Node:
        return Node(name[0])


def test_workers_on_one_node_share_its_ports_and_talk_for_nothing() -> None:
    sim = Simulator(network=TwoNodes(Link(latency=1.0, pipelined=False)))
    sent: list[Transfer] = []

    class Node(Worker):
        async def run(self) -> None:
            sent.append(self.send("b1", None, size=0))
            sent.append(self.send("a1", None, size=0))

    sim.add_worker("a1", Node)
    sim.add_worker("a2", Node)
    sim.add_worker("b1", Mute)
    sim.start()
    times = [(transfer.source, transfer.target, transfer.arrived) for transfer in sent]
    assert times == [("a1", "b1", 1), ("a1", "a1", 0), ("a2", "b1", 2), ("a2", "a1", 0)]


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "soon"])
def test_a_delay_must_be_seconds(value: float) -> None:
    sim = Simulator()
    sim.add_worker("a", Sender, [(0.0, "a", value)])
    with pytest.raises(InputError, match="send: the delay must be a finite number of seconds"):
        sim.start()


def test_thousands_at_one_port_are_not_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times as many requests must take about ten times as many looks, not a hundred."""
    original, count = serial.request, 0

    def counted(claim: serial.Claim) -> None:
        nonlocal count
        count += 1
        original(claim)

    monkeypatch.setattr(serial, "request", counted)

    def looks(senders: int) -> int:
        nonlocal count
        count = 0
        plans = {f"s{i}": [(0.0, "server", 1.0)] for i in range(senders)}
        fan_out = [(0.0, f"s{i}", 1.0) for i in range(senders)]
        run(server=fan_out, **plans)
        return count

    assert looks(1000) < 11 * looks(100)
