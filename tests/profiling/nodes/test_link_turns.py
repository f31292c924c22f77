"""How many bytes of a stream a port serves in a turn: the estimate, and links that are known."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from paracosm.profiling.nodes.calibration import calibration_of_turns, load_calibration
from paracosm.profiling.nodes.exchange import Arrival, connected, listen, serve_one
from paracosm.profiling.nodes.turns import Turns, measure_turns, turns_of


def arrivals(*looks: dict[int, int]) -> list[Arrival]:
    """Return what came: for each look, bytes by connection."""
    return [
        Arrival(at, place, size) for at, look in enumerate(looks) for place, size in look.items()
    ]


def test_a_run_counts_if_its_begin_and_its_end_were_seen() -> None:
    """The first begins before anybody looked, the last has not ended; 8 + 8 and 16 are turns."""
    found = turns_of(arrivals({0: 4}, {1: 8}, {1: 8}, {0: 16}, {1: 2}))
    assert found == Turns((16, 16), 38)


def test_a_look_that_finds_both_tells_nothing_of_what_is_beside_it() -> None:
    found = turns_of(arrivals({0: 1}, {1: 16}, {0: 3, 1: 5}, {0: 7}, {1: 16}, {0: 2}))
    assert found.runs == (16,), "0 may have begun in the look before, 1 was seen to begin"


def test_the_quantum_is_the_median_of_enough_turns() -> None:
    turns = Turns((16,) * 15 + (8,) * 4 + (32,) * 4, 500)
    assert turns.quantum == 16
    assert turns.spread == 0
    assert Turns((16,) * 19, 304).quantum is None, "too few"
    assert Turns((16,) * 30, 961).quantum is None, "most bytes came in looks that found both"
    assert Turns((16,) * 30, 960).quantum == 16
    assert Turns((), 0).quantum is None


def test_a_calibration_knows_a_quantum_only_where_there_is_one() -> None:
    found = calibration_of_turns(Turns((16384,) * 40, 40 * 16384), "by hand")
    assert (found.quantum, found.found["quantum"].spread) == (16384, 0)
    assert calibration_of_turns(Turns((), 10**9), "by hand").quantum is None


class Port:
    """A port in this process: connections to a server take turns at sending to their clients."""

    def __init__(self, server: tuple[str, int], quantum: int, rate: float) -> None:
        self._server, self._quantum, self._rate = server, quantum, rate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()[:2]
        self._joined: list[tuple[socket.socket, socket.socket]] = []
        self._is_over = False
        self._threads = [threading.Thread(target=each) for each in (self._accept, self._serve)]
        for each in self._threads:
            each.start()

    def close(self) -> None:
        self._is_over = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in self._joined:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        for each in self._threads:
            each.join()
        for pair in self._joined:
            for end in pair:
                end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                back = threading.Thread(target=self._carry_back, args=(client, server))
                back.start()
                self._threads.append(back)
                server.setblocking(False)
                self._joined.append((client, server))

    def _carry_back(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while said := client.recv(1 << 16):
                server.sendall(said)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        free = time.monotonic()
        while not self._is_over:
            carried = 0
            for client, server in list(self._joined):
                with suppress(OSError):
                    found = server.recv(self._quantum)
                    client.sendall(found)
                    carried += len(found)
                    free = max(free, time.monotonic()) + len(found) / self._rate
                    time.sleep(max(0.0, free - time.monotonic()))
            if not carried:
                time.sleep(1e-4)


@contextmanager
def port_of(quantum: int, rate: float) -> Iterator[tuple[str, int]]:
    """Serve one client behind a port; yield where."""
    listener = listen("127.0.0.1", 0)
    server = threading.Thread(target=serve_one, args=(listener, 10.0))
    address = listener.getsockname()[:2]
    server.start()
    port = Port(address, quantum, rate)
    try:
        yield port.address
    finally:
        server.join(timeout=10)
        port.close()


@pytest.mark.real_time
@pytest.mark.parametrize("quantum", [4096, 16384])
def test_the_quantum_of_a_port_is_found(quantum: int) -> None:
    with port_of(quantum, rate=250 * quantum) as (host, port), connected(host, port) as peer:
        found = measure_turns(peer, seconds=1.0)
    assert found.quantum == pytest.approx(quantum, rel=0.02)


SHAPED = """
mount -t tmpfs none /run
mkdir /run/netns
ip netns add near
ip netns add far
ip -n near link add name eth0 type veth peer name eth0 netns far
ip -n near addr add 10.78.0.1/24 dev eth0
ip -n far addr add 10.78.0.2/24 dev eth0
ip -n far link set eth0 gso_max_size 16384
ip -n near link set eth0 up
ip -n far link set eth0 up
shape="burst 3000 cburst 3000"
tc -n far qdisc add dev eth0 root handle 1: htb default fff r2q 1
tc -n far class add dev eth0 parent 1: classid 1:1 htb rate 40mbit $shape
for bits in $(seq 0 2 126); do
  class=1:$((100 + bits))
  tc -n far class add dev eth0 parent 1:1 classid $class htb rate 100kbit ceil 40mbit $shape \
    quantum 16384
  tc -n far filter add dev eth0 parent 1: protocol ip u32 match ip dport $bits 0x7e flowid $class
done
"""
"""Two hosts; what the far one sends shares 40 Mbit/s in turns of 16 KB, by the port it goes to."""


def may_shape() -> bool:
    return os.geteuid() == 0 and all(map(shutil.which, ("unshare", "nsenter", "ip", "tc")))


@pytest.mark.slow
@pytest.mark.real_time
@pytest.mark.skipif(not may_shape(), reason="needs root, namespaces and tc")
def test_the_quantum_of_a_shaped_link_is_found(tmp_path: Path) -> None:
    script = tmp_path / "measure.sh"
    run = f"{sys.executable} -m paracosm.cli.app calibrate"
    serve = f"nsenter --net=/run/netns/far {run} serve --host 10.78.0.2 --port 5201 &"
    peer = "--peer 10.78.0.2:5201 --parsing none --rounds 1 --seconds 3s --intervals 2 --json"
    measure = f"nsenter --net=/run/netns/near {run} {peer} --out {tmp_path}/node.yaml"
    script.write_text(f"set -e\n{SHAPED}\n{serve}\nsleep 8\n{measure}\nwait\n")
    done = subprocess.run(
        ["unshare", "--net", "--mount", "sh", str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    quantum = load_calibration(tmp_path / "node.yaml").quantum
    assert quantum == pytest.approx(16384, rel=0.1), "of which a packet's headers are a part"
