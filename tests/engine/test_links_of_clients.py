"""Links that change with who uses them, and messages that are taken back, by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf

import pytest

from paracosm.cluster import Cluster, Link, star
from paracosm.engine import Simulator, Worker
from paracosm.errors import InputError
from paracosm.timeline.analysis import check
from paracosm.timeline.timeline import Timeline

SERIAL = Link(bandwidth=10.0, sharing="serial")
FAIR = Link(bandwidth=10.0)


class Place(Worker):
    """Does what a test says."""

    def __init__(self, body: Callable[[Place], object] | None = None) -> None:
        super().__init__()
        self.body = body
        self.got: list[tuple[float, str]] = []

    async def run(self) -> None:
        if self.body is not None:
            await self.body(self)  # type: ignore[misc]
        else:
            while True:
                what = await self.recv()
                self.got.append((self.sim.now, what))


def simulate(
    cluster: Cluster, *bodies: Callable[[Place], object], timeline: Timeline | None = None
) -> Place:
    """Let workers do what `bodies` say; return the server, which notes what arrives."""
    sim = Simulator(network=cluster, timeline=timeline)
    server = sim.add_worker("server0", Place, daemon=True)
    for number, body in enumerate(bodies):
        sim.add_worker(f"worker{number}", Place, body)
    sim.run()
    return server


def send(what: str, size: float, bandwidth: float | None = None, wait: float = 0.0):
    async def body(me: Place) -> None:
        await me.sleep(wait)
        if bandwidth is not None:
            me.use_link("server0", Link(bandwidth=bandwidth))
        me.send("server0", what, size=size)

    return body


@pytest.mark.parametrize("link", [SERIAL, FAIR, Link(bandwidth=inf)])
def test_a_message_takes_the_time_of_its_sender_s_own_link(link: Link) -> None:
    server = simulate(star(1, 1, link), send("a", 8.0, bandwidth=2.0))
    assert server.got == [(pytest.approx(4.0), "a")]


def test_the_server_s_port_is_shared_by_slow_and_fast_lines() -> None:
    # 10 B/s into the server: lines of 2 and 100 B/s get 2 and 8. 16 B end at 2 s; 8 B at 4 s.
    bodies = send("slow", 8.0, bandwidth=2.0), send("fast", 16.0, bandwidth=100.0)
    assert simulate(star(2, 1, FAIR), *bodies).got == [
        (pytest.approx(2.0), "fast"),
        (pytest.approx(4.0), "slow"),
    ]


def test_a_serial_port_is_held_for_as_long_as_the_line_takes() -> None:
    bodies = send("slow", 8.0, bandwidth=2.0), send("fast", 20.0, bandwidth=10.0)
    assert simulate(star(2, 1, SERIAL), *bodies).got == [(4.0, "slow"), (6.0, "fast")]


@pytest.mark.parametrize("link", [SERIAL, FAIR])
def test_one_place_has_one_line_after_the_other(link: Link) -> None:
    async def body(me: Place) -> None:
        for bandwidth, latency in ((2.0, 0.0), (5.0, 1.0), (4.0, 0.0)):
            me.use_link("server0", Link(bandwidth=bandwidth, latency=latency))
            await me.send("server0", "part", size=20.0)

    ends = [time for time, _ in simulate(star(1, 1, link), body).got]
    assert ends == pytest.approx([10.0, 15.0, 20.0])


def test_each_direction_has_a_line_of_its_own() -> None:
    sim = Simulator(network=star(1, 1, FAIR))

    async def ask(me: Place) -> None:
        me.use_link("server0", Link(bandwidth=1.0))
        me.send("server0", "question", size=3.0)
        await me.recv()
        me.got.append((me.sim.now, "answer"))

    async def answer(me: Place) -> None:
        me.use_link("worker0", Link(bandwidth=4.0))
        await me.recv()
        me.send("worker0", "answer", size=8.0)

    worker = sim.add_worker("worker0", Place, ask)
    sim.add_worker("server0", Place, answer)
    sim.run()
    assert worker.got == [(pytest.approx(5.0), "answer")]


@pytest.mark.parametrize("link", [SERIAL, FAIR, replace(FAIR, latency=0.25)])
def test_a_message_that_is_taken_back_leaves_the_port_to_others(link: Link) -> None:
    async def give_up(me: Place) -> None:
        transfer = me.send("server0", "never", size=100.0)
        await me.sleep(1.0)
        assert transfer.cancel()

    # Serial: from 1 s on alone, 10 B at 10 B/s. Fair: 5 B until then, 5 B in half a second.
    end = 2.0 if link.sharing == "serial" else 1.5
    timeline = Timeline()
    server = simulate(star(2, 1, link), give_up, send("other", 10.0), timeline=timeline)
    assert server.got == [(pytest.approx(end + link.latency), "other")]
    exclusive = ("send", "receive") if link.sharing == "serial" else ("send",)
    assert check(timeline, exclusive=exclusive) == []
    sent = [span[3:5] for span in timeline.spans if span[:2] == ("worker0", "send")]
    assert sent == [(0.0, 1.0)]


@pytest.mark.parametrize("link", [SERIAL, FAIR])
def test_a_message_that_waits_is_taken_back_and_never_begins(link: Link) -> None:
    async def body(me: Place) -> None:
        first, second, third = (me.send("server0", name, size=10.0) for name in "abc")
        assert second.cancel()
        await third
        assert not first.cancel()
        assert not third.cancel()

    assert simulate(star(1, 1, link), body).got == [
        (pytest.approx(1.0), "a"),
        (pytest.approx(2.0), "c"),
    ]


@pytest.mark.parametrize("sharing", ["serial", "fair"])
def test_a_message_is_taken_back_on_the_last_stretch(sharing: str) -> None:
    link = Link(bandwidth=10.0, latency=5.0, sharing="serial" if sharing == "serial" else "fair")

    async def body(me: Place) -> None:
        transfer = me.send("server0", "never", size=10.0)
        await me.sleep(3.0)
        assert transfer.cancel()
        me.send("server0", "other", size=10.0)

    assert simulate(star(1, 1, link), body).got == [(pytest.approx(9.0), "other")]


def test_who_awaits_a_message_that_is_taken_back_hears_of_it() -> None:
    heard = []

    async def body(me: Place) -> None:
        transfer = me.send("server0", "never", size=10.0)
        me.sim.call_later(0.5, lambda _: transfer.cancel())
        try:
            await transfer
        except RuntimeError as error:
            heard.append((me.sim.now, str(error)))

    assert simulate(star(1, 1, FAIR), body).got == []
    assert heard == [(0.5, "the arrival at server0 was cancelled")]


@pytest.mark.parametrize(
    ("cluster", "link"),
    [
        (star(1, 1, FAIR), Link()),
        (star(1, 1, FAIR), Link(bandwidth=1.0, duplex="half")),
        (star(1, 1, replace(FAIR, duplex="half")), Link(bandwidth=1.0)),
        (star(1, 1, FAIR, placement="workers"), Link(bandwidth=1.0)),
    ],
)
def test_a_line_joins_two_nodes_in_one_direction(cluster: Cluster, link: Link) -> None:
    async def body(me: Place) -> None:
        me.use_link("server0", link)

    with pytest.raises(InputError, match="cannot have a link of its own"):
        simulate(cluster, body)


def test_a_line_in_use_cannot_be_changed() -> None:
    async def body(me: Place) -> None:
        me.use_link("server0", Link(bandwidth=1.0))
        me.send("server0", "a", size=10.0)
        me.use_link("server0", Link(bandwidth=2.0))

    with pytest.raises(RuntimeError, match="is on its way"):
        simulate(star(1, 1, FAIR), body)
