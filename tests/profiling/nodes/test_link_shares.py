"""How unevenly connections share: the estimate, and two ends that measure it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.profiling.nodes.calibration import (
    Shares,
    ShareSettings,
    calibration_of_shares,
    correlation,
    counted,
    measure_shares,
    unevenness,
)
from paracosm.profiling.nodes.exchange import connected, connected_here, listen, serve_one

QUICK = ShareSettings(connections=3, interval=0.05, intervals=4)
MB = 1_000_000
PING, SEND, INTERVAL, JOIN, TOKEN = 1, 2, 7, 8, 9


def order(kind: int, number: float) -> bytes:
    return struct.pack(">4sBBHd", b"PCLK", 4, kind, 0, number)


def drawn(sigma: float, follows: float, shape: tuple[int, int]) -> list[list[int]]:
    """Return bytes by log-normal weights that correlate between consecutive intervals."""
    rng = np.random.default_rng(7)
    z = np.zeros(shape)
    z[0] = rng.normal(size=shape[1])
    for row in range(1, shape[0]):
        z[row] = follows * z[row - 1] + np.sqrt(1 - follows**2) * rng.normal(size=shape[1])
    weight = np.exp(sigma * z)
    table: list[list[int]] = (
        np.rint(25 * MB * weight / weight.sum(axis=1, keepdims=True)).astype(int).tolist()
    )
    return table


@pytest.mark.parametrize("connections", [2, 4, 16])
def test_the_weights_that_a_simulation_would_draw_are_found_again(connections: int) -> None:
    carried = drawn(0.5, 0.0, (2000, connections))
    assert unevenness(carried) == pytest.approx(0.5, rel=0.03)
    assert correlation(carried) == pytest.approx(0.0, abs=0.04)
    assert correlation(drawn(0.5, 0.8, (2000, connections))) == pytest.approx(0.8, abs=0.03)


def test_by_hand() -> None:
    # ln 4 apart: +-ln 2, whose sample variance is 2 ln(2)^2; an even interval adds nothing.
    assert unevenness([[4 * MB, MB]]) == pytest.approx(log(2) * 2**0.5)
    assert unevenness([[4 * MB, MB], [MB, MB]]) == pytest.approx(log(2))
    assert correlation([[4 * MB, MB], [4 * MB, MB]]) == pytest.approx(1)
    assert correlation([[4 * MB, MB], [MB, 4 * MB]]) == pytest.approx(-1)
    assert correlation([[4 * MB, MB]]) is None
    assert correlation([[MB, MB], [MB, MB]]) is None


def test_who_gets_nothing_counts_as_if_it_had_got_a_segment() -> None:
    assert unevenness([[MB, 0, MB]]) == unevenness([[MB, 1448, MB]])
    assert unevenness([[MB, 0, MB]]) > 3


def test_intervals_in_which_the_link_stood_still_do_not_count() -> None:
    carried = [[4 * MB, MB], [MB, 0], [MB, 4 * MB], [MB, 4 * MB], [0, 0]]
    assert counted(carried).tolist() == [True, False, True, True, False]
    assert unevenness(carried) == unevenness([[4 * MB, MB]])
    assert correlation(carried) == pytest.approx(1)  # only the third and the fourth are in a row
    with pytest.raises(InputError, match="several connections received nothing most of the time"):
        unevenness([[0, 0], [0, 0], [MB, MB]])


@given(
    st.lists(st.lists(st.integers(10**5, 10**8), min_size=3, max_size=3), min_size=2, max_size=6),
    st.floats(1.0, 100.0),
)
def test_only_ratios_within_an_interval_count(carried: list[list[int]], faster: float) -> None:
    scaled = [[round(size * faster) for size in carried[0]], *carried[1:]]
    counts = counted(carried)
    if (counts == counted(scaled)).all():
        assert unevenness(scaled) == pytest.approx(unevenness(carried), abs=1e-4)
    turned = [row[1:] + row[:1] for row in carried]
    assert unevenness(turned) == pytest.approx(unevenness(carried))
    follows = correlation(carried)
    assert follows is None or -1 - 1e-9 <= follows <= 1 + 1e-9


def test_a_calibration_has_the_root_mean_square_of_both_ways() -> None:
    even, uneven = ((MB, MB),), ((round(exp(0.4) * MB), MB),)
    found = calibration_of_shares(Shares(1.0, uneven, even), "by hand", loopback=True)
    assert found.uneven == pytest.approx(0.4 / 2**0.5 / 2**0.5)
    assert found.found["uneven"].spread == pytest.approx(2**0.5)
    assert found.over_loopback("uneven")
    fair = calibration_of_shares(Shares(1.0, even, even), "by hand")
    assert (fair.uneven, fair.found["uneven"].spread) == (0, None)


def test_two_processes_share_loopback() -> None:
    done: list[int] = []
    with connected_here() as peer:
        shares = measure_shares(peer, QUICK, done.append)
        again = measure_shares(peer, ShareSettings(2, 0.05, 2))
        assert peer.loopback
    assert done == [1, 2]
    for carried in (shares.sent, shares.received):
        assert np.array(carried).shape == (4, 3)
        assert np.array(carried).sum() > 10 * MB
    assert np.array(again.received).shape == (2, 2)
    assert 0 <= shares.uneven < 5


@contextmanager
def served(timeout: float) -> Iterator[tuple[tuple[str, int], list[str]]]:
    """Serve one client in a thread; yield where, and what is said when it ends in an error."""
    listener, said = listen("127.0.0.1", 0), []

    def serve() -> None:
        try:
            serve_one(listener, timeout)
        except InputError as error:
            said.append(str(error))

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[:2], said
    thread.join(timeout=300)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("numbers", "why"),
    [
        ((1.0, 1e-6, 4), "asks for intervals of 1e-06 s over 4 connections"),
        ((1.0, 0.1, 1e9), "asks for intervals of 0.1 s over 1e+09 connections"),
        ((1.0, 0.1, 0), "over 0 connections"),
        ((1.0, 0.1, 1.5), "over 1.5 connections"),
        ((1e9, 0.1, 4), "asks for 1e+09 s of data, not 0.05 to 60"),
        ((1.0, 0.1, 2), "opened 0 of 2 connections in 0.3 s"),
    ],
)
def test_a_client_that_asks_for_too_much_or_does_not_come_is_given_up(
    numbers: tuple[float, float, float], why: str
) -> None:
    kinds = (SEND, INTERVAL, JOIN)
    with (
        served(0.3) as (address, said),
        socket.create_connection(address) as client,
        suppress(OSError),
    ):
        client.sendall(order(TOKEN, 0) + b"".join(map(order, kinds, numbers)))
        while client.recv(1 << 10):
            pass
    assert why in said[0]
    assert "\n" not in said[0]


@pytest.mark.parametrize("guess", [order(JOIN, 1.0), b"GET / HTTP/1.1\r\n"])
def test_who_does_not_know_the_number_does_not_come_in(guess: bytes) -> None:
    with served(2) as (address, said), ExitStack() as kept:
        client = kept.enter_context(socket.create_connection(address))
        asked = ((TOKEN, 0), (SEND, 1.0), (INTERVAL, 0.1), (JOIN, 1))
        client.sendall(b"".join(order(*each) for each in asked))
        assert client.recv(16) == order(TOKEN, 1)
        _, _, kind, _, _ = struct.unpack(">4sBBHd", client.recv(16))
        assert kind == JOIN
        stranger = kept.enter_context(socket.create_connection(address))
        stranger.sendall(guess)
        assert client.recv(16) == b""
    assert "another client than 127.0.0.1" in said[0] or "is not paracosm calibrate" in said[0]


def test_the_port_is_closed_while_nobody_is_to_join() -> None:
    with served(2) as (address, said), connected(*address) as peer:
        peer.exchange.say(PING)
        peer.exchange.expect(PING)  # it has closed its port since it answers
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        measure_shares(peer, QUICK)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
    assert said == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"connections": 1}, "2 to 64 connections share a link, not 1"),
        ({"connections": 65}, "2 to 64 connections share a link, not 65"),
        ({"intervals": 0}, "at least one interval, not 0"),
        ({"interval": 0.01}, "lasts 50 ms at least"),
        ({"interval": 6.0}, "60 s at most, not 10 of 6 s"),
        ({"interval": float("nan")}, "lasts 50 ms at least"),
    ],
)
def test_shares_that_cannot_be_measured_are_refused(settings: dict[str, float], why: str) -> None:
    with pytest.raises(InputError, match=why):
        ShareSettings(**settings)  # type: ignore[arg-type]
