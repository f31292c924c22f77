"""A network on this machine: a server and workers, each in a namespace, and a switch between them.

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
from typing import NoReturn

from paracosm.profiling.jobs.pytorch import Node

INSIDE = "PARACOSM_OWN_NETWORK"  # set in the environment of the program that was started again

QUEUES = {"long": 4 << 20, "short": 64 << 10}
"""Bytes of a worker's queue at either end of a server's link: no packet is dropped, or many are."""

_BUFFER = 512 << 10  # bytes that a socket sends ahead, less than a long queue holds
_FIRST = 0x10  # handle of the class of node 0
_SEGMENT = 16 << 10  # bytes of a packet at most: a large one would keep the link from the others


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


def build(servers: int, workers: int, rate_mbit: float) -> tuple[Node, ...]:
    """Make the network and return the nodes of the servers and the workers.

    Every node sends at the rate at most, and so does the switch to each server. Each worker has a
    queue of its own, a long one, at both ends of a server's link; those that are not empty get
    equal shares.
    """
    for command in ("mount -t tmpfs none /run", "mkdir /run/netns", "ip netns add switch"):
        _do(command)
    _do("ip -n switch link add name bridge type bridge")
    _do("ip -n switch link set bridge up")
    names = [f"server{i}" for i in range(servers)] + [f"worker{i}" for i in range(workers)]
    for place, name in enumerate(names):
        _do(f"ip netns add {name}")
        _do(f"ip -n switch link add name {name} type veth peer name eth0 netns {name}")
        _do(f"ip -n switch link set {name} gso_max_size {_SEGMENT} master bridge up")
        _do(f"ip -n {name} addr add {_address(place)}/16 dev eth0")
        _do(f"ip -n {name} link set eth0 gso_max_size {_SEGMENT} up")
        _do(f"ip -n {name} link set lo up")
        _limit_buffers(name)
        if place < servers:
            _share(name, "eth0", rate_mbit, "dst", range(servers, servers + workers))
            _share("switch", name, rate_mbit, "src", range(servers, servers + workers))
        else:
            _share(name, "eth0", rate_mbit, "dst", ())
    set_queues(servers, workers, "long")
    return tuple(Node(("nsenter", f"--net=/run/netns/{name}", "--"), "eth0") for name in names)


def set_queues(servers: int, workers: int, length: str) -> None:
    """Make the workers' queues at both ends of the servers' links as long as `QUEUES` says."""
    for server in range(servers):
        for namespace, device in ((f"server{server}", "eth0"), ("switch", f"server{server}")):
            for place in range(servers, servers + workers):
                _do(
                    f"tc -n {namespace} qdisc replace dev {device} parent 1:{_FIRST + place:x} "
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


def _share(
    namespace: str, device: str, rate_mbit: float, match: str, places: Sequence[int]
) -> None:
    """Limit what a device sends, in equal shares of the nodes that it comes from or goes to."""
    tc, all_of_it = f"tc -n {namespace}", f"{rate_mbit}mbit"
    burst = f"burst {2 * _SEGMENT} cburst {2 * _SEGMENT}"
    _do(f"{tc} qdisc add dev {device} root handle 1: htb default ff")
    _do(f"{tc} class add dev {device} parent 1: classid 1:1 htb rate {all_of_it} {burst}")
    part = f"rate {rate_mbit / (len(places) + 1)}mbit ceil {all_of_it} {burst} quantum {_SEGMENT}"
    _do(f"{tc} class add dev {device} parent 1:1 classid 1:ff htb {part}")  # what is left
    _do(f"{tc} qdisc add dev {device} parent 1:ff bfifo limit {QUEUES['long']}")
    for place in places:
        own = f"1:{_FIRST + place:x}"
        _do(f"{tc} class add dev {device} parent 1:1 classid {own} htb {part}")
        _do(
            f"{tc} filter add dev {device} parent 1: protocol ip u32 "
            f"match ip {match} {_address(place)} flowid {own}"
        )


def _limit_buffers(namespace: str) -> None:
    """Have sockets send so far ahead only: what is under way then fits into a long queue."""
    setting = f"echo 4096 65536 {_BUFFER} > /proc/sys/net/ipv4/tcp_wmem"
    subprocess.run(["nsenter", f"--net=/run/netns/{namespace}", "sh", "-c", setting], check=True)


def _address(place: int) -> str:
    return f"10.77.0.{place + 1}"


def _unshare() -> list[str]:
    own_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *own_user, "--net", "--mount"]


def _do(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: {' '.join(done.stderr.split())}")
