"""The store of a job: a client, a server, and the meaning of keys and values.

PyTorch's own client counts one worker per connection, looks up its peer's name each time, and
prints a C++ stack when the store goes away: with a thousand emulated workers that takes minutes.
`StoreClient` speaks the same protocol (torch/csrc/distributed/c10d/TCPStore.cpp and
TCPStoreBackend.hpp, PyTorch 2.13) on one connection. Keys are the server's: those of users begin
with "/", the count of workers, `init/`, does not.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from paracosm import errors
from paracosm.addresses import host_port
from paracosm.emulation.wire.protocol import AddressError
from paracosm.errors import InputError

_Item = TypeVar("_Item")

_VALIDATE, _ADD, _MULTI_GET, _MULTI_SET, _LIST_KEYS = 0, 4, 10, 11, 17
_MAGIC = 0x3C85F7CE
_MOST_KEYS = 1 << 20
_LONGEST = 8 << 20  # bytes of one key or value, as the server itself limits them
_AT_ONCE = 4096  # keys of one query


class StoreError(Exception):
    """The server answers, but not as a TCPStore does; the message says what was expected."""


class StoreClient:
    """One connection to a TCPStore.

    Every method raises OSError when the store has gone away or does not answer in time, and
    StoreError when its answer cannot be understood.
    """

    def __init__(self, address: tuple[str, int], timeout: float) -> None:
        self._socket = socket.create_connection(address, timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._left = b""
        try:
            self._socket.sendall(struct.pack("<BI", _VALIDATE, _MAGIC))
            self.keys()
        except (OSError, StoreError):
            self._socket.close()
            raise

    def add(self, key: str, amount: int) -> int:
        self._socket.sendall(struct.pack("<B", _ADD) + _text(key) + struct.pack("<q", amount))
        return int.from_bytes(self._take(8), "little", signed=True)

    def keys(self) -> list[str]:
        self._socket.sendall(struct.pack("<B", _LIST_KEYS))
        count = self._size(_MOST_KEYS, "number of keys")
        return [self._bytes().decode("utf-8", "replace") for _ in range(count)]

    def get(self, keys: Sequence[str]) -> list[bytes]:
        values: list[bytes] = []
        for asked in _parts(keys):
            query = [struct.pack("<BQ", _MULTI_GET, len(asked)), *map(_text, asked)]
            self._socket.sendall(b"".join(query))
            values += [self._bytes() for _ in asked]
        return values

    def set(self, items: Iterable[tuple[str, bytes]]) -> None:
        for part in _parts(list(items)):
            query = [struct.pack("<BQ", _MULTI_SET, len(part))]
            for key, value in part:
                query += [_text(key), struct.pack("<Q", len(value)), value]
            self._socket.sendall(b"".join(query))

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()

    def _bytes(self) -> bytes:
        return self._take(self._size(_LONGEST, "length"))

    def _size(self, most: int, what: str) -> int:
        size = int.from_bytes(self._take(8), "little")
        if size > most:
            raise StoreError(f"a {what} up to {most:,} expected, not {size:,}")
        return size

    def _take(self, size: int) -> bytes:
        parts = [self._left]
        have = len(self._left)
        while have < size:
            part = self._socket.recv(1 << 18)
            if not part:
                raise ConnectionError("the store has gone away")
            parts.append(part)
            have += len(part)
        whole = b"".join(parts) if len(parts) > 1 else self._left
        self._left = whole[size:]
        return whole[:size]


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _parts(items: Sequence[_Item]) -> Iterable[Sequence[_Item]]:
    return (items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE))


def host_store(host: str, port: int) -> Any:
    """Return PyTorch's TCPStore server, listening on `host` alone.

    It serves on its own threads for as long as it is kept.
    """
    # Of an unrelated client PyTorch would warn with a C++ stack.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    distributed = errors.require("torch.distributed", "torch", "the store of an emulated rank 0")
    try:
        listening = bound(host, port)
    except socket.gaierror as error:
        raise InputError(f"host: {host}: {error.strerror}") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"port: {port} is in use on {host}: give another one") from None
        raise InputError(
            f"port: cannot listen on {host_port(host, port)}: {error.strerror}"
        ) from None
    return distributed.TCPStore(
        host,
        port,
        None,
        is_master=True,
        timeout=timedelta(seconds=30),
        wait_for_workers=False,
        master_listen_fd=listening.detach(),
    )


def bound(host: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
    except OSError:
        opened.close()
        raise
    return opened


_ADDRESS = re.compile(r"/(.+/\d+)/(\d{1,9})")
_DEVICE = re.compile(r"//[a-z]+//\d+$")
_DEFAULT = re.compile(r"(?:^|/)default_pg/0//[a-z]+//\d+$")


def find_address(key: str) -> tuple[str, int] | None:
    """Return the group and the rank in it whose address is under a key; None for other keys.

    The group's name is the prefix of its gloo context in the store: "default_pg/0//cpu//0", where
    the last number counts the network interfaces that the group uses (GLOO_SOCKET_IFNAME=a,b).
    """
    match = _ADDRESS.fullmatch(key)
    return None if match is None else (match[1], int(match[2]))


def address_key(group: str, rank: int) -> str:
    return f"/{group}/{rank}"


_MEMBERS = re.compile(r".*/paracosm/members/([^/]+)")


def members_key(name: str) -> str:
    """Return the key under which a real rank tells the members of a group, as JSON."""
    return f"paracosm/members/{name}"


def find_members(key: str) -> str | None:
    """Return the name of the group whose members a key tells; None for other keys."""
    match = _MEMBERS.fullmatch(key)
    return None if match is None else match[1]


def read_members(value: bytes, world: int) -> tuple[int, ...]:
    """Return the ranks of the job that a value of `members_key` lists.

    Raises:
        AddressError: it lists none; anyone who reaches the store can write there.
    """
    try:
        members = json.loads(value)
    except (ValueError, RecursionError):
        members = None
    if isinstance(members, list) and all(
        type(rank) is int and 0 <= rank < world for rank in members
    ):
        return tuple(members)
    raise AddressError(
        f"the members of a group are a list of ranks below {world}, not {value[:80]!r}"
    )


def is_default(group: str) -> bool:
    return _DEFAULT.search(group) is not None


def is_device_group(group: str) -> bool:
    """Return whether a name is certainly of a gloo group, not of somebody's own numbered keys."""
    return _DEVICE.search(group) is not None


def group_name(group: str) -> str:
    """Return what torch.distributed calls a group: "0", "3", or the hash of its ranks."""
    return re.split(r"//?", _DEVICE.sub("", group))[-1]


_ROLE = re.compile(r"(.*torchelastic/role_info/)(\d+)")


class AgentError(Exception):
    """An agent's role contradicts this world; the message says why."""


@dataclass(frozen=True)
class Answer:
    items: tuple[tuple[str, bytes], ...]
    barrier: str  # key of the count of agents that have ended
    agents: int  # how many emulated ones there are, which end when they are asked


def is_role_key(key: str) -> bool:
    return _ROLE.fullmatch(key) is not None


def answer_agents(world: int, real: Sequence[int], key: str, value: bytes) -> Answer:
    """Return what torchrun's emulated agents write once the first real one has written its role.

    `torchrun --nnodes=4 --node-rank=0` asks the store for the role of each machine's agent, agent 0
    gives every agent its ranks, and at the end all agents wait for each other
    (torch/distributed/elastic/agent/server/api.py, PyTorch 2.13). Every machine is taken to have as
    many ranks as the real one.
    """
    match = _ROLE.fullmatch(key)
    assert match is not None
    try:
        told = json.loads(value)
        role, each = str(told["role"]), int(told["local_world_size"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise AgentError(f"a role and a local_world_size expected, not {value[:80]!r}") from None
    if each < 1 or world % each:
        text = f"torchrun has {each} ranks on each machine, which do not make {world} ranks"
        raise AgentError(text)
    agents = range(world // each)
    ranks = {agent: range(agent * each, (agent + 1) * each) for agent in agents}
    are_real = {agent for agent in agents if not set(real).isdisjoint(ranks[agent])}
    for agent in are_real:
        if not set(ranks[agent]) <= set(real):
            raise AgentError(
                f"torchrun starts ranks {ranks[agent][0]} to {ranks[agent][-1]} on one machine, "
                f"but real are {', '.join(map(str, real))}"
            )
    prefix = match[1].removesuffix("role_info/")
    told_by: dict[str, Any] = {
        f"{match[1]}{agent}": {"role": role, "rank": agent, "local_world_size": each}
        for agent in agents
        if agent not in are_real
    }
    if 0 not in are_real:  # agent 0 is who gives the others their ranks
        for agent in agents:
            first = agent * each
            told_by[f"{prefix}assigned_ranks/{agent}"] = [first, world, first, world]
    items = tuple((key, json.dumps(value).encode()) for key, value in told_by.items())
    barrier = f"{prefix}agent/terminal_state/num_members"
    return Answer(items, barrier, len(agents) - len(are_real))
