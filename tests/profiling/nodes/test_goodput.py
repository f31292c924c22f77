"""Goodput between two ends, and ends that do not keep to the protocol."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from paracosm.errors import InputError
from paracosm.profiling.nodes.calibration import (
    BandwidthSettings,
    Goodput,
    calibration_of_goodput,
    measure_goodput,
)
from paracosm.profiling.nodes.exchange import Exchange, connected, connected_here, listen, serve_one

BLOCK = 1 << 14
QUICK = BandwidthSettings(seconds=0.1, rounds=1)


def order(kind: int, number: float = 0.0, *, magic: bytes = b"PCLK", version: int = 4) -> bytes:
    return struct.pack(">4sBBHd", magic, version, kind, 0, number)


HELLO = order(9)  # without a token


@contextmanager
def served(timeout: float = 2.0) -> Iterator[tuple[tuple[str, int], list[object]]]:
    """Serve one client in a thread; yield where, and what came of it: rounds, or an error."""
    listener = listen("127.0.0.1", 0)
    outcome: list[object] = []

    def serve() -> None:
        try:
            outcome.append(serve_one(listener, timeout))
        except InputError as error:
            outcome.append(str(error))

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[:2], outcome
    thread.join(timeout=300)
    assert not thread.is_alive()


@contextmanager
def answering(serve: Callable[[socket.socket], None]) -> Iterator[tuple[str, int]]:
    """Do something with the first connection that comes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        connection, _ = listener.accept()
        with connection:
            serve(connection)

    thread = threading.Thread(target=run)
    thread.start()
    yield listener.getsockname()[:2]
    thread.join(timeout=300)
    listener.close()
    assert not thread.is_alive()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        return one, listener.accept()[0]


def test_both_ways_and_both_at_once_are_measured() -> None:
    done: list[int] = []
    settings = BandwidthSettings(seconds=0.1, rounds=2)
    with served() as (address, outcome), connected(*address) as peer:
        found = measure_goodput(peer, settings, done.append)
        assert peer.loopback
    assert outcome == [6]
    assert done == [1, 2, 3, 4, 5, 6]
    rates = [*found.sent, *found.received, *(rate for pair in found.both for rate in pair)]
    assert len(rates) == 8
    assert all(1e6 < rate < 1e12 for rate in rates)
    assert 0 < found.round_trip < 0.1


def test_two_processes_measure_loopback() -> None:
    with connected_here() as peer:
        found = measure_goodput(peer, QUICK)
    assert len(found.sent) == len(found.received) == len(found.both) == 1
    assert found.sent[0] > 1e6


def test_what_counts_is_what_came_after_the_beginning() -> None:
    """16 KiB every 2 ms at most. The first come at once, and are left out."""
    a, b = tcp_pair()

    def send() -> None:
        with suppress(OSError):
            a.sendall(bytes(40 * BLOCK))  # at once: slow start the other way round
            while True:
                time.sleep(2e-3)
                a.sendall(bytes(BLOCK))

    with a:
        a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        sender = threading.Thread(target=send)
        sender.start()
        with b:
            ((size,),) = Exchange(b, "a", 5).receive_over([b], 0.2, 0.15)
        sender.join()
    assert (
        0.2 * BLOCK / 2e-3 < size / 0.15 < 1.1 * BLOCK / 2e-3
    )  # sleeping takes longer, never less


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "is not paracosm calibrate: it sent b'GET / HTTP"),
        (order(1, version=1), "speaks version 1 of the protocol, this is 4"),
        (HELLO + order(99), "sent an unknown message"),
        (HELLO + order(2, -1.0), "sent an unknown message"),
        (HELLO + order(2, float("nan")), "sent an unknown message"),
        (HELLO + order(3, 1e9), "asks for 1e+09 s of data, not 0.05 to 60"),
        (HELLO + order(2, 1e-310) + order(7, 5e-324) + order(8, 1.0), "asks for 1e-310 s of data"),
        (HELLO + order(5, 1.0), "sent an unexpected message: 5"),
        (HELLO + order(1)[:7], "closed the connection early"),
        (b"", "closed the connection early"),
        (order(9, 7.0), "does not know the token"),
        (order(1), "answered 1 where 9 was expected"),
        (HELLO + order(2, 0.1) + b"\7" * 100, "is not paracosm calibrate: it sent b'\\x07"),
        (HELLO + order(2, 0.1) + order(1, 0.1), "answered 1 where 7 was expected"),
        (HELLO + order(2, 0.1) + order(7, 0.1), "closed the connection early"),
    ],
)
def test_a_bad_client_is_one_line_and_no_hang(sent: bytes, why: str) -> None:
    with served() as (address, outcome), socket.create_connection(address) as client:
        with suppress(OSError):  # it may have been given up by then
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
        while not outcome:
            time.sleep(0.005)
    (said,) = outcome
    assert isinstance(said, str)
    assert why in said
    assert "\n" not in said


def test_serving_goes_on_until_a_client_knows_the_token_and_says_goodbye() -> None:
    listener = listen("127.0.0.1", 0)
    address, failed, rounds = listener.getsockname()[:2], list[str](), list[int]()

    def serve() -> None:
        rounds.append(serve_one(listener, 2.0, token=7, failed=failed.append))

    thread = threading.Thread(target=serve)
    thread.start()
    known = order(9, 7.0)
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"", order(9, 6.0), HELLO, known + order(99)):
        count = len(failed)
        while len(failed) == count:
            # It listens again a moment after a client that failed.
            with suppress(OSError), socket.create_connection(address) as client:
                client.sendall(garbage)
                client.shutdown(socket.SHUT_WR)
                while client.recv(16):
                    pass
            time.sleep(0.01)
    while not rounds:
        with suppress(InputError), connected(*address, token=7) as peer:
            measure_goodput(peer, QUICK)
    thread.join(timeout=300)
    assert rounds == [3]
    why = ["is not paracosm", "closed the connection", "the token", "the token", "an unknown"]
    assert all(reason in said for reason, said in zip(why, failed, strict=False))


def test_a_silent_client_is_given_up() -> None:
    with served(timeout=0.1) as (address, outcome), socket.create_connection(address):
        while not outcome:
            time.sleep(0.005)
    assert "did nothing for 0.1 s" in str(outcome[0])


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "is not paracosm calibrate: it sent b'SSH-2.0"),
        (order(1, version=9), "speaks version 9"),
        (order(6), "answered 6 where 9 was expected"),
        (order(9, 1.0) + order(6), "answered 6 where 1 was expected"),
        (order(9, 0.0), "does not take this token: give the --token it printed"),
        (b"", "closed the connection early"),
    ],
)
def test_a_bad_server_is_one_line_and_no_hang(answer: bytes, why: str) -> None:
    def serve(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass

    with (
        answering(serve) as address,
        pytest.raises(InputError) as caught,
        connected(*address, 2) as peer,
    ):
        measure_goodput(peer, QUICK)
    assert why in str(caught.value)
    assert f"127.0.0.1:{address[1]}" in str(caught.value)


def test_a_server_that_reports_more_than_it_was_sent_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as connection:
                connection.recv(3 * 16, socket.MSG_WAITALL)
                connection.sendall(order(8, 64.0) + order(2))  # JOIN, and that data may come
                with listener.accept()[0] as carrier:
                    carrier.recv(1 << 16)
                connection.sendall(order(5, 1e30) * 2)
                connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        with socket.create_connection(listener.getsockname()) as connection:
            exchange = Exchange(connection, "the peer", 2.0)
            with pytest.raises(InputError, match=r"the peer reports more bytes than the [\d,]+"):
                exchange.ask(2, 0.1, 0.0375)
        thread.join(timeout=10)


def test_a_server_that_says_nothing_is_given_up() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    with (
        silent,
        pytest.raises(InputError, match=r"did nothing for 0\.1 s"),
        connected(*silent.getsockname()[:2], 0.1) as peer,
    ):
        measure_goodput(peer, QUICK)


def test_nobody_there_is_answered_with_what_to_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with (
        pytest.raises(InputError, match=f"does paracosm calibrate serve --port {port} run there"),
        connected("127.0.0.1", port),
    ):
        raise AssertionError


def test_an_address_of_ipv6_is_named_in_brackets() -> None:
    with (
        pytest.raises(InputError, match=r"^\[::1\]:9: .* calibrate serve --port 9 run there"),
        connected("::1", 9, timeout=5),
    ):
        pass


def test_the_calibration_has_medians_and_spreads() -> None:
    found = calibration_of_goodput(
        Goodput((90.0, 100.0, 120.0), (200.0,) * 3, ((50.0, 100.0),) * 3, 1e-3), "by hand"
    )
    assert (found.bandwidth_out, found.bandwidth_in, found.bandwidth) == (100, 200, 100)
    assert found.duplex == 0.5  # 150 at once, 300 alone
    assert found.round_trip == 1e-3
    assert found.found["bandwidth_out"].spread == pytest.approx(0.3)
    assert found.found["bandwidth_in"].spread == 0
    assert found.found["round_trip"].spread is None


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"seconds": 0.01}, "a round lasts 50 ms to 60 s"),
        ({"seconds": 1e4}, "a round lasts 50 ms to 60 s"),
        ({"rounds": 0}, "at least one round"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], why: str) -> None:
    with pytest.raises(InputError, match=why):
        BandwidthSettings(**settings)  # type: ignore[arg-type]


def test_a_timeout_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="a timeout must be above 0"), connected("here", 1, 0):
        raise AssertionError


def test_a_port_that_is_taken_is_refused() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(InputError, match=r"cannot listen on 127\.0\.0\.1"),
    ):
        listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(InputError, match=r"cannot listen on no\.such\.host\.invalid:0"):
        listen("no.such.host.invalid", 0)
