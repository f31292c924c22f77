"""How two flows share a server's port: bytes of each, over time, down and up.

    python sharing.py [--rate 80] [--congestion bbr]

The second flow begins half a second after the first and sends for a second beside it: what each has
by then, and how soon the second has its half.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np
from shaped_network import CONGESTION, INSIDE, build, may_shape, prepare_namespaces, start_inside

WINDOW = 0.02  # seconds in which bytes are counted

_RECEIVER = """
import json, socket, sys, time
listening = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
connection, _ = listening.accept()
found, size = [], 0
connection.settimeout(5)
while more := connection.recv(1 << 16):
    found.append((time.monotonic(), len(more)))
print(json.dumps(found))
"""
_SENDER = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
begin, end = map(float, sys.argv[3:])
time.sleep(max(0, begin - time.monotonic()))
while time.monotonic() < end:
    connection.sendall(bytes(4096))
"""


def main() -> int:
    """Print how flows share each kind of link, in each direction."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=80.0, help="Mbit/s (80)")
    parser.add_argument("--congestion", default=CONGESTION, help=f"of TCP ({CONGESTION})")
    options = parser.parse_args()
    if not may_shape():
        print("sharing.py: no namespaces can be made here", file=sys.stderr)
        return 2
    if not os.environ.get(INSIDE):
        start_inside(sys.argv)
    prepare_namespaces()
    print(f"{options.rate:g} Mbit/s, {options.congestion}")
    for kind in ("fair", "fifo"):
        nodes = build(1, 2, options.rate, kind, options.congestion, kind)
        for way in ("down", "up"):
            print(_said(kind, way, _measure(nodes, way, options.rate)), flush=True)
    return 0


def _measure(nodes: Any, way: str, rate_mbit: float) -> Any:
    """Return bytes of both flows in windows from the second one's begin, (2, windows)."""
    server, *workers = nodes
    receivers, senders = [], []
    port = 5000 if way == "down" else 6000
    pairs = [(server, worker) if way == "down" else (worker, server) for worker in workers]
    addresses = ["10.77.0.2", "10.77.0.3"] if way == "down" else ["10.77.0.1"] * 2
    for number, ((_, target), address) in enumerate(zip(pairs, addresses, strict=True)):
        receivers.append(_start(target, _RECEIVER, address, port + number))
        receivers[-1].stdout.readline()
    begin = time.monotonic() + 1.0
    for number, ((source, _), address) in enumerate(zip(pairs, addresses, strict=True)):
        when = (begin + 0.5 * number, begin + 1.5)
        senders.append(_start(source, _SENDER, address, port + number, *when))
    counts = []
    for receiver in receivers:
        arrived = np.array(json.loads(receiver.communicate()[0]))
        edges = np.arange(begin + 0.5, begin + 1.5 + WINDOW / 2, WINDOW)
        counts.append(np.histogram(arrived[:, 0], edges, weights=arrived[:, 1])[0])
    for sender in senders:
        sender.wait()
    return np.array(counts)


def _start(node: Any, program: str, *arguments: object) -> Any:
    command = [*node.prefix, sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _said(kind: str, way: str, counts: Any) -> str:
    total = counts.sum(axis=1)
    mbit = 8e-6 * total / (counts.shape[1] * WINDOW)
    share = counts[1] / np.maximum(1, counts.sum(axis=0))
    early = ", ".join(f"{each:.0%}" for each in share[:5])
    return (
        f"{kind:4} {way:4}: {mbit[0]:.1f} and {mbit[1]:.1f} Mbit/s; the second has "
        f"{total[1] / total.sum():.1%}; in its first windows of {1e3 * WINDOW:.0f} ms {early}"
    )


if __name__ == "__main__":
    sys.exit(main())
