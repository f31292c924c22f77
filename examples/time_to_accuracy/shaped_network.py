"""A network on this machine: a server and workers, each in a namespace, and a switch between them.

Two kinds of link at the servers, whose port all workers share:

- "fair": a queue for each worker, served in turns of one packet of 1,500 bytes (HTB, whose classes
  borrow nearly all of what they send, in equal quanta); packets below 128 bytes, which are
  acknowledgements, go first. Who has been idle may send two packets at once and no more.
- "fifo": one queue for all (TBF), long enough that no packet is dropped.

Packets have 1,500 bytes at most: offloading, which would hand over 64 KB at a time, is off. Nothing
depends on how many workers the network was built for. TCP has one congestion control everywhere,
and keeps its window while it is idle.

    python sharing.py     # measures how two flows share either kind of link

The program starts itself again in namespaces of its own, so that nothing is left behind, however it
ends: the kernel takes interfaces and queues away with the last process that can see them. Where the
user is not root, namespaces of users are tried.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Literal, NoReturn

from paracosm.profiling.jobs.pytorch import Node

INSIDE = "PARACOSM_OWN_NETWORK"  # set in the environment of the program that was started again

Kind = Literal["fair", "fifo"]

CONGESTION = "reno"
"""Congestion control of TCP."""

QUEUES = {"long": 4 << 20, "short": 64 << 10}
"""Bytes of a worker's queue at either end of a server's link: no packet is dropped, or many are."""

_BUFFER = 512 << 10  # bytes that a socket sends ahead, less than a long queue holds
_FIRST = 0x10  # handle of the class of node 0
_PACKET = 1514  # bytes with the Ethernet header
_BURST = 2 * _PACKET  # bytes that one who was idle, or the whole link, may send at once
_SMALL = 128  # bytes of a packet that goes first
_OWN_MBIT = 0.1  # rate of a worker's class: all beyond it is borrowed, a packet a turn


def may_shape() -> bool:
    """Whether namespaces can be made and links shaped: inside them, or as it would be there."""
    if os.environ.get(INSIDE):
        return True
    if sys.platform != "linux" or not all(map(shutil.which, ("unshare", "nsenter", "ip", "tc"))):
        return False
    trial = (
        "mount -t tmpfs none /run && mkdir /run/netns && ip netns add a"
        " && ip -n a link add name near type veth peer name far"
        " && tc -n a qdisc add dev near root handle 1: htb default 1"
    )
    done = subprocess.run([*_unshare(), "sh", "-c", trial], capture_output=True, check=False)
    return done.returncode == 0


def start_inside(arguments: Sequence[str]) -> NoReturn:
    """Become this program inside the namespaces."""
    command = [*_unshare(), sys.executable, *arguments]
    os.execvpe(command[0], command, os.environ | {INSIDE: "1"})


def prepare_namespaces() -> None:
    """Make place for namespaces with names; once, before the first `build`."""
    for command in ("mount -t tmpfs none /run", "mkdir /run/netns"):
        _do(command)


def build(
    servers: int,
    workers: int,
    rate_mbit: float,
    kind: Kind = "fair",
    congestion: str = CONGESTION,
    name: str = "",
) -> tuple[Node, ...]:
    """Make the network and return the nodes of the servers and the workers.

    Every node sends at the rate at most, and so does the switch to each server; those are the ports
    that workers share. To a worker it does so where several servers could exceed it. Several
    networks can stand side by side: their names tell them apart.
    """
    switch = f"{name}switch"
    _do(f"ip netns add {switch}")
    _do(f"ip -n {switch} link add name bridge type bridge")
    _do(f"ip -n {switch} link set bridge up")
    names = [f"server{i}" for i in range(servers)] + [f"worker{i}" for i in range(workers)]
    own = range(servers, servers + workers)
    for place, node in enumerate(names):
        space = f"{name}{node}"
        _do(f"ip netns add {space}")
        _do(f"ip -n {switch} link add name {node} type veth peer name eth0 netns {space}")
        _do(f"ip -n {switch} link set {node} {_WHOLE_PACKETS} master bridge up")
        _do(f"ip -n {space} addr add {_address(place)}/16 dev eth0")
        _do(f"ip -n {space} link set eth0 {_WHOLE_PACKETS} up")
        _do(f"ip -n {space} link set lo up")
        _set_up_tcp(space, congestion)
        if place >= servers:
            _queue(space, "eth0", rate_mbit)
            if servers > 1:
                _queue(switch, node, rate_mbit)
        elif kind == "fifo":
            _queue(space, "eth0", rate_mbit)
            _queue(switch, node, rate_mbit)
        else:
            _share(space, "eth0", rate_mbit, "dst", own)
            _share(switch, node, rate_mbit, "src", own)
    return tuple(
        Node(("nsenter", f"--net=/run/netns/{name}{each}", "--"), "eth0") for each in names
    )


def set_queues(servers: int, workers: int, length: str, name: str = "") -> None:
    """Make the workers' queues at both ends of the servers' fair links as long as `QUEUES` says."""
    for server in range(servers):
        for space, device in (
            (f"{name}server{server}", "eth0"),
            (f"{name}switch", f"server{server}"),
        ):
            for place in range(servers, servers + workers):
                _do(
                    f"tc -n {space} qdisc replace dev {device} parent 1:{_FIRST + place:x} "
                    f"bfifo limit {QUEUES[length]}"
                )


def put_first(pids: Sequence[int]) -> bool:
    """Have processes run before all others on this machine, and return whether that is allowed.

    They wait nearly all the time, and what else runs here would delay the end of every waiting.
    """
    done = [
        subprocess.run(
            ["chrt", "--all-tasks", "--rr", "--pid", "1", str(pid)],
            capture_output=True,
            check=False,
        )
        for pid in pids
        if shutil.which("chrt")
    ]
    return bool(done) and not any(each.returncode for each in done)


def _queue(space: str, device: str, rate_mbit: float) -> None:
    """Limit what a device sends, first come, first served."""
    _do(
        f"tc -n {space} qdisc add dev {device} root tbf rate {rate_mbit}mbit "
        f"burst {_BURST} limit {QUEUES['long']}"
    )


def _share(space: str, device: str, rate_mbit: float, match: str, places: Sequence[int]) -> None:
    """Limit what a device sends, in equal shares of the nodes that it comes from or goes to."""
    tc, all_of_it = f"tc -n {space}", f"{rate_mbit}mbit"
    burst = f"burst {_BURST} cburst {_BURST}"
    part = f"ceil {all_of_it} {burst} quantum {_PACKET}"
    _do(f"{tc} qdisc add dev {device} root handle 1: htb default 2")
    _do(f"{tc} class add dev {device} parent 1: classid 1:1 htb rate {all_of_it} {burst}")
    small = f"rate {rate_mbit / 4}mbit {part} prio 0"
    _do(f"{tc} class add dev {device} parent 1:1 classid 1:2 htb {small}")  # ARP as well
    _do(f"{tc} qdisc add dev {device} parent 1:2 bfifo limit {QUEUES['long']}")
    _do(
        f"{tc} filter add dev {device} parent 1: protocol ip prio 1 u32 "
        f"match u16 0 {0x10000 - _SMALL:#x} at 2 flowid 1:2"
    )
    for place in places:
        own = f"1:{_FIRST + place:x}"
        _do(
            f"{tc} class add dev {device} parent 1:1 classid {own} htb "
            f"rate {_OWN_MBIT}mbit {part} prio 1"
        )
        _do(f"{tc} qdisc add dev {device} parent {own} bfifo limit {QUEUES['long']}")
        _do(
            f"{tc} filter add dev {device} parent 1: protocol ip prio 2 u32 "
            f"match ip {match} {_address(place)} flowid {own}"
        )


_WHOLE_PACKETS = "gso_max_segs 1 gso_max_size 1500 gro_max_size 1500"


def _set_up_tcp(space: str, congestion: str) -> None:
    """Choose the congestion control, and have sockets send so far ahead only that it fits."""
    ipv4 = "/proc/sys/net/ipv4"
    settings = (
        f"echo 4096 65536 {_BUFFER} > {ipv4}/tcp_wmem",
        f"echo {congestion} > {ipv4}/tcp_congestion_control",
        f"echo 0 > {ipv4}/tcp_slow_start_after_idle",
    )
    command = ["nsenter", f"--net=/run/netns/{space}", "sh", "-ec", "; ".join(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"congestion control {congestion}: {' '.join(done.stderr.split())}")


def _address(place: int) -> str:
    return f"10.77.0.{place + 1}"


def _unshare() -> list[str]:
    own_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own_user, "--net", "--mount"]


def _do(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: {' '.join(done.stderr.split())}")
