"""A network on this machine: four ranks and an emulator, each in a namespace, and a switch.

Each rank has a link of its own with the same speed both ways. The emulator is as many machines
as it plays ranks: each of its connections has that speed. Where namespaces cannot be made, all of
them are on the loopback.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "time_to_accuracy"))

from shaped_network import INSIDE, may_shape, start_inside

__all__ = ["FIRST", "INSIDE", "NO_RIGHTS", "Network", "Node", "build", "loopback", "may_shape"]
__all__ += ["start_inside"]

RANKS = 4
EMULATOR = "emulator"

_QUEUE = 4 << 20  # bytes: more than all sockets send ahead, so that none should be dropped
_BUFFER = 512 << 10  # bytes that a socket sends ahead
_AHEAD = 64 << 10  # of those in the queue: acknowledgements do not wait behind more
_BURST = 16 << 10
_SEGMENT = 16 << 10  # bytes of a packet at most: a large one would keep the link from the others
_FIRST = 0x10  # handle of the class of the first connection


@dataclass(frozen=True)
class Node:
    """Where a process runs.

    Attributes:
        prefix: a command that becomes the process whose command line follows it.
        address: of the node.
        interface: of the network.
    """

    prefix: tuple[str, ...]
    address: str
    interface: str


@dataclass(frozen=True)
class Network:
    """Nodes of the ranks and of the emulator.

    Attributes:
        ranks: by rank.
        emulator: a node with as many times a rank's link as it has connections.
        rate_mbit: of each rank's link, both ways; None where nothing is shaped.
        about: a sentence on how it was made.
    """

    ranks: tuple[Node, ...]
    emulator: Node
    rate_mbit: float | None
    about: str

    def part_connections(self, target: int) -> None:
        """Give each connection from the emulator to a rank a link of its own.

        Without this, a short message from one emulated rank would wait behind the data that
        another one sends. To be called when the connections have been made.
        """
        if self.rate_mbit is None:
            return
        address = self.ranks[target].address
        seen = _output(f"ip netns exec {EMULATOR} ss -tnH state established dst {address}")
        for place, line in enumerate(seen.splitlines()):
            own, other = (end.rsplit(":", 1)[1] for end in line.split()[-2:])
            _add_class(EMULATOR, "eth0", _FIRST + place, self.rate_mbit)
            _do(
                f"tc -n {EMULATOR} filter add dev eth0 parent 1: protocol ip prio 1 u32 "
                f"match ip sport {own} 0xffff match ip dport {other} 0xffff "
                f"flowid 1:{_FIRST + place:x}"
            )

    def join_connections(self) -> None:
        """Undo `part_connections`."""
        if self.rate_mbit is not None:
            _do(f"tc -n {EMULATOR} qdisc del dev eth0 root")
            _shape(EMULATOR, "eth0", self.rate_mbit)


def _first() -> tuple[str, ...]:
    """Return a command that runs another one before all others; nothing where that is forbidden."""
    command = ("chrt", "--rr", "1")
    if shutil.which("chrt") is None:
        return ()
    done = subprocess.run([*command, "true"], capture_output=True, check=False)
    return () if done.returncode else command


FIRST = _first()
"""Prefix of the command line of a process that mostly waits; what else runs would delay it."""

NO_RIGHTS = "Namespaces cannot be made here, so all ran on the loopback"


def loopback(why: str) -> Network:
    """Return the network that needs no rights."""
    node = Node((), "127.0.0.1", "lo")
    about = f"{why}, which is as fast as memory: nothing here says how it is on a link"
    return Network((node,) * RANKS, node, None, about)


def build(rate_mbit: float) -> Network:
    """Make the network; this process must have started itself inside namespaces."""
    for command in ("mount -t tmpfs none /run", "mkdir /run/netns", "ip netns add switch"):
        _do(command)
    _name_nodes()
    _do("ip -n switch link add name bridge type bridge")
    _do("ip -n switch link set bridge up")
    nodes = [_node(place, f"rank{place}") for place in range(RANKS)]
    emulator = _node(RANKS, EMULATOR)
    for rank in range(RANKS):
        _shape(f"rank{rank}", "eth0", rate_mbit)
        _shape("switch", f"rank{rank}", rate_mbit)
    _shape(EMULATOR, "eth0", rate_mbit)
    about = (
        f"Network namespaces on a bridge, each rank's link shaped to {rate_mbit:g} Mbit/s both "
        f"ways (htb, bursts of {_BURST >> 10} KiB), the emulator's to as much for each connection; "
        f"TCP {_CONTROL}, send buffers of {_BUFFER >> 10} KiB, {_AHEAD >> 10} KiB of a connection "
        f"in a queue, queues of {_QUEUE >> 20} MiB"
    )
    return Network(tuple(nodes), emulator, rate_mbit, about)


def _name_nodes() -> None:
    """Give addresses names: PyTorch asks for them, and no name server can be reached in here."""
    names = [*(f"rank{place}" for place in range(RANKS)), EMULATOR]
    lines = [f"10.78.0.{place + 1} {name}" for place, name in enumerate(names)]
    lines.append("127.0.0.1 localhost")
    Path("/run/hosts").write_text("\n".join(lines) + "\n")
    _do("mount --bind /run/hosts /etc/hosts")


_CONTROL = "reno"  # the only loss-based one that every namespace may choose


def _node(place: int, name: str) -> Node:
    address = f"10.78.0.{place + 1}"
    _do(f"ip netns add {name}")
    _do(f"ip -n switch link add name {name} type veth peer name eth0 netns {name}")
    _do(f"ip -n switch link set {name} gso_max_size {_SEGMENT} master bridge up")
    _do(f"ip -n {name} addr add {address}/16 dev eth0")
    _do(f"ip -n {name} link set eth0 gso_max_size {_SEGMENT} up")
    _do(f"ip -n {name} link set lo up")
    settings = {
        "tcp_wmem": f"4096 65536 {_BUFFER}",
        "tcp_congestion_control": _CONTROL,
        "tcp_slow_start_after_idle": "0",
        "tcp_no_metrics_save": "1",
        "tcp_limit_output_bytes": str(_AHEAD),
    }
    for setting, value in settings.items():
        where = f"/proc/sys/net/ipv4/{setting}"
        enter = ["nsenter", f"--net=/run/netns/{name}", "sh", "-c"]
        subprocess.run([*enter, f"echo {value} > {where}"], check=True)
    return Node(("nsenter", f"--net=/run/netns/{name}", "--"), address, "eth0")


def _shape(namespace: str, device: str, rate_mbit: float) -> None:
    """Limit what a device sends; what comes first goes first."""
    _do(f"tc -n {namespace} qdisc add dev {device} root handle 1: htb default 1")
    _add_class(namespace, device, 1, rate_mbit)


def _add_class(namespace: str, device: str, handle: int, rate_mbit: float) -> None:
    _do(
        f"tc -n {namespace} class add dev {device} parent 1: classid 1:{handle:x} htb "
        f"rate {rate_mbit}mbit burst {_BURST} cburst {_BURST} quantum {_SEGMENT}"
    )
    _do(f"tc -n {namespace} qdisc add dev {device} parent 1:{handle:x} bfifo limit {_QUEUE}")


def _do(command: str) -> None:
    _output(command)


def _output(command: str) -> str:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command}: {' '.join(done.stderr.split())}")
    return done.stdout
