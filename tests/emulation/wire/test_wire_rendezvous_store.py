"""The client of PyTorch's store against PyTorch's own server, and against what is none."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import pytest

from paracosm.emulation.wire.store import StoreClient, StoreError

TIMEOUT = 20.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, int]]:
    """A store in a process of its own, where PyTorch's own client has set a key."""
    port = free_port()
    code = f"""
        import sys
        from datetime import timedelta
        from torch.distributed import TCPStore

        from paracosm.emulation.wire.store import host_store

        store = host_store("127.0.0.1", {port})
        store.set("theirs", "of PyTorch")
        print("up", flush=True)
        sys.stdin.readline()
        print(store.get("many/4999").decode(), store.add("number", 0), flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "up\n"
        yield "127.0.0.1", port
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "value 4999 7\n"
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def client(served: tuple[str, int]) -> Iterator[StoreClient]:
    opened = StoreClient(served, TIMEOUT)
    yield opened
    opened.close()


def test_what_pytorch_set_is_read(client: StoreClient) -> None:
    assert "/theirs" in client.keys()  # noqa: SIM118
    assert client.get(["/theirs"]) == [b"of PyTorch"]


def test_workers_are_counted_at_once(client: StoreClient) -> None:
    before = client.add("init/", 0)
    assert client.add("init/", 1023) == before + 1023


def test_thousands_of_keys_are_set_and_read(client: StoreClient) -> None:
    items = [(f"/many/{i}", f"value {i}".encode()) for i in range(5000)]
    client.set(items)
    assert client.get([key for key, _ in items]) == [value for _, value in items]
    assert {key for key, _ in items} <= set(client.keys())
    client.add("/number", 7)


def test_garbage_and_silence_leave_the_store_to_those_who_need_it(
    served: tuple[str, int], client: StoreClient
) -> None:
    # An HTTP request, noise, half a greeting, a key and a list that claim to be endless, silence.
    greeting = b"\x00\xce\xf7\x85<"
    endless = b"\xff" * 8
    strays = []
    for stray in [
        *(b"GET / HTTP/1.0\r\n\r\n", endless * 4096, greeting[:3], greeting + b"\x01" + endless),
        *(greeting + b"\x0b" + endless, greeting + b"\x63", *[b""] * 300),
    ]:
        opened = socket.create_connection(served, TIMEOUT)
        strays.append(opened)
        with contextlib.suppress(ConnectionError):  # it has hung up already
            opened.sendall(stray)
    try:
        assert client.get(["/theirs"]) == [b"of PyTorch"]
        assert StoreClient(served, TIMEOUT).get(["/theirs"]) == [b"of PyTorch"]
        for refused in strays[3:5]:
            refused.settimeout(TIMEOUT)
            assert refused.recv(1) == b""
    finally:
        for opened in strays:
            opened.close()


def test_it_listens_where_it_was_told(served: tuple[str, int]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.2", served[1]))  # free, since only 127.0.0.1 is taken
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(served)


def answer(listening: socket.socket, reply: bytes) -> None:
    def serve() -> None:
        came, _ = listening.accept()
        with came:
            came.recv(64)
            came.sendall(reply)
            came.recv(64)

    threading.Thread(target=serve, daemon=True).start()


@pytest.mark.parametrize("reply", [b"HTTP/1.0 400 Bad Request\r\n\r\n", b"\xff" * 64])
def test_another_server_is_no_store(reply: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        answer(listening, reply)
        with pytest.raises(StoreError, match="a number of keys up to 1,048,576 expected"):
            StoreClient(listening.getsockname(), TIMEOUT)


def test_a_silent_server_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(TimeoutError):
        StoreClient(listening.getsockname(), 0.05)


def test_a_store_that_goes_away_is_noticed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        answer(listening, b"\x00" * 8)
        client = StoreClient(listening.getsockname(), TIMEOUT)
        with pytest.raises(ConnectionError):
            client.keys()
        client.close()
