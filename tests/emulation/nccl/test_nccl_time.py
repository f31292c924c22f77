"""When collectives through the shim begin and end, in the fake device's time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shim_world import ShimWorld, data_of, size_of, type_of

from paracosm.emulation.communication import communication_of
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.ports import Ports
from paracosm.emulation.records import Wait

Worlds = Callable[..., ShimWorld]
LINK: dict[str, Any] = {"bandwidth": "8Gbit/s", "latency": "10us", "algorithm": "ring"}  # 1 GB/s
PRECISE = 1e-9


def zeros(size: int) -> Any:
    return np.zeros(size // 4, np.float32)


def durations(world: ShimWorld) -> list[tuple[float, float]]:
    return [(collective.begun, collective.done) for collective in world.collectives()]


def test_an_all_reduce_takes_what_a_ring_does(world: Worlds) -> None:
    made = world(4, **LINK)
    comm, stream = made.communicator("0", 4), made.stream(busy=0.5)
    made.check(made.all_reduce(comm, stream, zeros(4_000_000)))
    over = made.mark(stream)
    made.run()
    (found,) = made.collectives()
    assert (found.kind, found.size, found.group, found.number) == ("all_reduce", 4_000_000, "0", 0)
    assert (found.rank, found.peer, found.site) == (0, -1, "")
    assert found.begun == pytest.approx(1000.5, abs=PRECISE)
    # 2 * 3 steps, each of a quarter of the bytes and a latency
    assert found.done == pytest.approx(1000.5 + 6 * (1e-3 + 10e-6), abs=PRECISE)
    assert over() == pytest.approx(found.done, abs=PRECISE)


def test_collectives_of_a_stream_follow_each_other(world: Worlds) -> None:
    made = world(2, bandwidth="8Gbit/s")
    comm, stream = made.communicator("0", 2), made.stream()
    for _ in range(3):
        made.check(made.all_reduce(comm, stream, zeros(1_000_000)))
        made.compute(stream, 0.25e-3)
    made.run()
    begun, done = np.array(durations(made)).T
    assert begun == pytest.approx(1000 + np.array([0, 1.25e-3, 2.5e-3]), abs=PRECISE)
    assert done - begun == pytest.approx(1e-3, abs=PRECISE)


@pytest.mark.parametrize(
    ("sharing", "ends"),
    [("fair", [3e-3, 4e-3]), ("serial", [1e-3, 4e-3])],  # of 1 ms and 3 ms with nobody beside
)
def test_streams_share_the_link_of_the_rank(world: Worlds, sharing: str, ends: list[float]) -> None:
    """Fair: half each; the one of 1 ms is over after 2 ms, and has begun 1 ms later."""
    made = world(2, bandwidth="8Gbit/s", sharing=sharing)
    comm = made.communicator("0", 2)
    late = 1e-3 if sharing == "fair" else 0.0
    made.check(made.all_reduce(comm, made.stream(busy=late), zeros(1_000_000)))
    made.check(made.all_reduce(comm, made.stream(), zeros(3_000_000)))
    made.run()
    done = sorted(collective.done for collective in made.collectives())
    assert done == pytest.approx(1000 + np.array(ends), abs=PRECISE)


def test_what_is_grouped_begins_together_when_the_outermost_group_ends(world: Worlds) -> None:
    made = world(2, bandwidth="8Gbit/s")
    comm, stream = made.communicator("0", 2), made.stream()
    made.shim.ncclGroupStart()
    made.check(made.all_reduce(comm, stream, zeros(1_000_000)))
    made.shim.ncclGroupStart()
    made.check(made.all_reduce(comm, stream, zeros(1_000_000)))
    made.shim.ncclGroupEnd()
    made.run()
    assert made.collectives() == []
    made.check(made.shim.ncclGroupEnd())
    made.run()
    assert durations(made) == [pytest.approx((1000, 1000 + 2e-3), abs=PRECISE)] * 2


def test_a_message_each_way_takes_its_own_direction(world: Worlds) -> None:
    made = world(4, **LINK)
    comm, stream, data = made.communicator("0", 4), made.stream(), zeros(1_000_000)
    made.shim.ncclGroupStart()
    for call, peer in ((made.shim.ncclSend, 1), (made.shim.ncclRecv, 3)):
        made.check(call(data_of(data), size_of(data), type_of(data), peer, comm, stream))
    made.check(made.shim.ncclGroupEnd())
    made.run()
    sent, received = made.collectives()
    assert (sent.kind, sent.peer, received.kind, received.peer) == ("send", 1, "recv", 3)
    for each in (sent, received):
        assert each.done - each.begun == pytest.approx(1e-3 + 10e-6, abs=PRECISE)


def test_parts_for_everybody_are_one_all_to_all(world: Worlds) -> None:
    """PyTorch's all-to-all with splits is a group of messages to all ranks, itself included."""
    made = world(4, **LINK)
    comm, stream = made.communicator("0", 4), made.stream()
    source = np.arange(1_000_000, dtype=np.float32)
    target = np.zeros_like(source)
    made.shim.ncclGroupStart()
    for peer in range(4):
        for call, array in ((made.shim.ncclSend, source), (made.shim.ncclRecv, target)):
            part = array[peer * 250_000 :][:250_000]
            made.check(call(data_of(part), size_of(part), type_of(part), peer, comm, stream))
    made.check(made.shim.ncclGroupEnd())
    made.run()
    (found,) = made.collectives()
    assert (found.kind, found.size) == ("all_to_all", 4_000_000)
    config = EmulateConfig(script=Path("train.py"), world_size=4, **LINK)
    cost = communication_of(config).cost("all_to_all", (0, 1, 2, 3), 4_000_000, 0, -1)
    assert found.done - found.begun == pytest.approx(cost.fixed + cost.busy, abs=PRECISE)
    assert (target == source).all()


def test_late_peers_come_later(world: Worlds) -> None:
    made = world(2, bandwidth="8Gbit/s", skew="50us")
    comm, stream = made.communicator("0", 2), made.stream()
    for _ in range(2):
        made.check(made.all_reduce(comm, stream, zeros(1_000_000)))
    made.run()
    for collective in made.collectives():
        assert collective.entered - collective.asked == pytest.approx(50e-6, abs=PRECISE)
        assert collective.done - collective.asked == pytest.approx(1.05e-3, abs=PRECISE)


def test_waits_of_the_script_are_recorded(world: Worlds) -> None:
    made = world(2, bandwidth="8Gbit/s")
    comm, stream, script = made.communicator("0", 2), made.stream(), made.stream(busy=0.25e-3)
    made.check(made.all_reduce(comm, stream, zeros(1_000_000)))
    over = ctypes.c_void_p(made.device.fake_mark(stream))
    wait = ctypes.c_void_p(made.shim.paracosm_wait_begins(script))
    made.device.fake_wait(script, over)
    made.shim.paracosm_wait_ends(wait, script)
    made.run()
    (found,) = [record for record in made.records() if isinstance(record, Wait)]
    assert (found.begin, found.end) == pytest.approx((1000.00025, 1000.001), abs=PRECISE)


def test_a_simulated_group_takes_no_time(world: Worlds) -> None:
    class Simulation(ctypes.Structure):
        _fields_ = [
            ("size", ctypes.c_size_t),
            ("magic", ctypes.c_uint),
            ("version", ctypes.c_uint),
            ("time", ctypes.c_float),
        ]

    made, simulation = world(4, **LINK), Simulation()
    comm, stream = made.communicator("0", 4), made.stream()
    made.shim.ncclGroupStart()
    made.check(made.all_reduce(comm, stream, zeros(4_000_000)))
    made.check(made.shim.ncclGroupSimulateEnd(ctypes.byref(simulation)))
    made.run()
    assert simulation.time == pytest.approx(6060, rel=1e-6)  # microseconds
    assert made.collectives() == []


def test_without_a_device_of_its_own_time_the_host_keeps_it(world: Worlds) -> None:
    made = world(2, bandwidth="8Gbit/s", flags=("-DREAL_TIME",))
    comm, stream = made.communicator("0", 2), made.stream()
    for _ in range(2):
        made.check(made.all_reduce(comm, stream, zeros(1_000_000)))
    made.run()
    found = durations(made)
    while len(found) < 2:  # the thread that records sees it a little later
        found += durations(made)
    first, second = found
    assert second[0] >= first[1]
    for begun, done in found:
        assert 1e-3 <= done - begun < 0.5


KINDS = ("all_reduce", "send", "recv")
asked = st.tuples(
    st.sampled_from(KINDS), st.integers(0, 40), st.integers(1, 40), st.sampled_from([0, 1, 2])
)


@pytest.mark.parametrize("sharing", ["fair", "serial"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(traffic=st.lists(asked, min_size=1, max_size=8))
def test_links_are_those_of_backend_mode(
    world: Worlds, sharing: str, traffic: list[tuple[str, int, int, int]]
) -> None:
    """Each on a stream of its own, when it has computed so long; sizes in 100 kB.

    Instants that differ by a rounding only are a tie that either way may win, so no two requests
    are a whole number of steps of latency and size apart.
    """
    given_ = {"bandwidth": "8Gbit/s", "latency": "100us", "sharing": sharing}
    made = world(4, {"1": (0, 2)}, **given_)
    comms = {name: made.communicator(name, size) for name, size in (("0", 4), ("1", 2))}
    model = communication_of(EmulateConfig(script=Path("train.py"), world_size=4, **given_))
    ports, spans = Ports(sharing), []  # type: ignore[arg-type]
    data = zeros(4_000_000)
    traffic = sorted(traffic, key=lambda each: each[1])
    for number, (kind, tenths, size, which) in enumerate(traffic):
        busy = tenths * 1e-4 + number * 1e-6
        count, name = ctypes.c_size_t(size * 25_000), "1" if which == 2 else "0"
        stream = made.stream(busy=busy)
        if kind == "all_reduce":
            arguments = (data_of(data), data_of(data), count, 7, 4, comms[name], stream)
            made.check(made.shim.ncclAllReduce(*arguments))
        else:
            call = made.shim.ncclSend if kind == "send" else made.shim.ncclRecv
            made.check(call(data_of(data), count, 7, 1, comms[name], stream))
        members = (0, 2) if name == "1" else (0, 1, 2, 3)
        peer = -1 if kind == "all_reduce" else members[1]
        cost = model.cost(kind, members, size * 100_000, 0, peer)
        at = 1000 + busy
        spans.append(ports.ask(number, number, 1, at, at, cost))
    made.run()
    found = sorted(collective.done for collective in made.collectives())
    assert found == pytest.approx(sorted(span.done for span in spans), abs=1e-8)
