"""How real ranks find the emulated ranks and are connected with them."""

from __future__ import annotations

import errno
import importlib.metadata
import ipaddress
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paracosm.addresses import host_port
from paracosm.emulation.records import Note
from paracosm.emulation.wire.connection import Pair, WireGroup, allow_open_files
from paracosm.emulation.wire.protocol import (
    AddressError,
    GlooAddress,
    connect,
    emulated_address,
    read_address,
)
from paracosm.emulation.wire.store import (
    AgentError,
    StoreClient,
    StoreError,
    address_key,
    answer_agents,
    find_address,
    find_members,
    group_name,
    host_store,
    is_default,
    is_device_group,
    is_role_key,
    read_members,
)

_QUICK, _IDLE, _SLOWER = 0.001, 0.1, 1.3  # seconds between looks at the store; growth
_RETRY = 0.05  # seconds between attempts to reach the store
_END = 1.0  # seconds that the thread may take to end


class Rendezvous:
    """Watches the job's store, and adds the emulated ranks to every group of a real one.

    A real rank that makes a group writes its address to the store, and waits for those of the other
    members. This writes the emulated members' addresses, and connects each of them to the real
    rank. Real ranks connect to each other by themselves.
    """

    def __init__(
        self,
        world: int,  # ranks of the job
        real: Sequence[int],  # the ranks that are real
        address: tuple[str, int],  # of the store: MASTER_ADDR and MASTER_PORT of the real ranks
        host: str,  # where to serve the store if rank 0 is emulated: 127.0.0.1 for here alone
        put: Callable[[Pair], None],  # called with connections, from the thread that watches
        note: Callable[[Note], None],  # called with what the user should know, from there as well
        timeout: float,  # seconds that one connection, or one answer of the store, may take
    ) -> None:
        allow_open_files((world - len(real)) * len(real))
        self._world, self._real = world, tuple(sorted(real))
        self._address, self._put, self._note, self._timeout = address, put, note, timeout
        self._told: dict[str, tuple[int, ...]] = {}  # by name, global ranks of a group's members
        self._groups: dict[str, Membership] = {}
        self._store: Any = None
        if 0 not in self._real:
            self._store = host_store(host, address[1])
            self._address = (host, address[1])
        self._client: StoreClient | None = None
        self._closed = threading.Event()
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rendezvous", daemon=True)

    def start(self) -> None:
        warning = check_version()
        if warning is not None:
            self._note(warning)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        client = self._client
        if client is not None:
            client.hang_up()
        if self._thread.ident is not None:
            self._thread.join(_END)
        self._store = None

    @property
    def over(self) -> bool:
        """Whether no connection will follow once all are closed."""
        return self._left.is_set()

    def _run(self) -> None:
        while not self._closed.is_set():
            client = self._client = self._reach()
            if client is None:
                return
            try:
                self._watch(client)
            except OSError:
                if self._groups and not self._closed.is_set():
                    self._left.set()
                self._groups.clear()
            except StoreError as problem:
                self._fail(f"the store of PyTorch: {problem}")
                return
            except (AddressError, AgentError) as problem:
                self._fail(str(problem))
                return
            finally:
                client.close()

    def _reach(self) -> StoreClient | None:
        while not self._closed.is_set():
            try:
                return StoreClient(self._address, self._timeout)
            except StoreError as problem:
                host, port = self._address
                self._fail(f"{host_port(host, port)} is not a store of PyTorch: {problem}")
                return None
            except OSError:
                self._closed.wait(_RETRY)
        return None

    def _watch(self, client: StoreClient) -> None:
        start_up = StartUp(client, self._world, self._real, self._members_of)
        seen: set[str] = set()
        pause = _QUICK
        while not self._closed.wait(pause):
            keys = client.keys()
            added = [key for key in keys if key not in seen]
            seen.update(added)
            news = self._read(client, added)
            start_up.look(added)
            for membership in self._groups.values():
                news = self._serve(client, membership) or news
            # The store of a real rank 0 goes with it. The one that is served here stays: a job has
            # ended when it made a group, and the agents of torchrun, if there are any, have met.
            if self._store is not None and self._groups and not start_up.at_work:
                self._left.set()
            pause = _QUICK if added or news else min(pause * _SLOWER, _IDLE)

    def _read(self, client: StoreClient, added: Sequence[str]) -> bool:
        """Read addresses, which change if a group is made again; return whether any did."""
        told = {name: key for key in added if (name := find_members(key))}
        for name, value in zip(told, client.get(list(told.values())), strict=True):
            self._told[name] = read_members(value, self._world)
        places = [found for key in added if (found := find_address(key))]
        seen = [(name, rank) for name, group in self._groups.items() for rank in group.values]
        places += [place for place in seen if place not in set(places)]
        values = client.get([address_key(*place) for place in places])
        news = False
        for (name, rank), value in zip(places, values, strict=True):
            if name not in self._groups:
                told_members = self._told.get(group_name(name), ())
                members = tuple(range(self._world)) if is_default(name) else told_members
                self._groups[name] = Membership(name, members, self._real)
            news = self._groups[name].learn(rank, value) or news
        return news

    def _members_of(self, name: str) -> tuple[int, int] | None:
        for group in self._groups.values():
            if group_name(group.name) == name and group.size is not None:
                return group.size, group.size - len(group.real_members())
        return None

    def _serve(self, client: StoreClient, group: Membership) -> bool:
        # Real ranks for whose present address there are no connections yet.
        awaited = [rank for rank, at in group.values.items() if group.connected.get(rank) != at]
        if not awaited:
            return False
        if not group.members and len(self._real) > 1:
            raise AddressError(
                f"group {group.name}: no rank has reported its members: start the real ranks with "
                "PARACOSM_SERVED, as paracosm emulate serve prints it"
            )
        size = group.size
        if size is None:
            raise AddressError(
                f"group {group.name}: with TORCH_GLOO_LAZY_INIT=1 the store does not tell how many "
                "members it has: start the rank with PARACOSM_SERVED, or leave the variable out"
            )
        real = group.real_members()
        if not group.served:
            group.served = frozenset(range(size)) - set(real)
            some = next(iter(group.addresses.values()))
            value = emulated_address(some.family, real[-1] + 1 if some.connections else 0)
            client.set((address_key(group.name, rank), value) for rank in sorted(group.served))
        for rank in awaited:
            self._connect(group, rank, size)
        return True

    def _connect(self, group: Membership, real: int, size: int) -> None:
        address = group.addresses[real]
        wire_group = WireGroup(group.name, size, group.real_members(), group.members)
        group.connected[real] = group.values[real]
        for emulated in sorted(group.served):
            if self._closed.is_set():
                return
            try:
                opened = connect(address, emulated, self._timeout)
            except OSError as error:
                self._fail(_why(error, group.name, real, address))
                return
            self._put(Pair(opened, wire_group, real, emulated))

    def _fail(self, text: str) -> None:
        self._note(Note(-1, True, text))


def _why(error: OSError, group: str, real: int, address: GlooAddress) -> str:
    where = host_port(address.host, address.port)
    if error.errno == errno.EMFILE:
        return f"group {group}: too many open files: raise ulimit -n, or make the world smaller"
    reason = error.strerror or "it does not answer"
    hint = ""
    if ipaddress.ip_address(address.host).is_loopback:
        hint = ": if it is on another machine, set GLOO_SOCKET_IFNAME there"
    return f"cannot connect to rank {real} of group {group} at {where}: {reason}{hint}"


@dataclass
class Membership:
    """What is known of a group.

    Gloo writes only the size of a group to the store, not its members' global ranks. A real rank
    that is not observed does not publish them: then it is the one whose address arrives.
    """

    name: str  # prefix of the group in the store
    members: tuple[int, ...]  # global ranks, in the order of the group; empty if unknown
    real: tuple[int, ...]  # global ranks that are real
    values: dict[int, bytes] = field(default_factory=dict)  # what each real rank has written
    addresses: dict[int, GlooAddress] = field(default_factory=dict)  # the same, read
    served: frozenset[int] = frozenset()  # emulated members, once their addresses are written
    connected: dict[int, bytes] = field(default_factory=dict)  # for which values they are connected

    @property
    def size(self) -> int | None:
        if self.members:
            return len(self.members)
        return (
            max((len(address.connections) for address in self.addresses.values()), default=0)
            or None
        )

    def real_members(self) -> tuple[int, ...]:
        if self.members:
            real = set(self.real)
            return tuple(i for i, member in enumerate(self.members) if member in real)
        return tuple(sorted(self.addresses))

    def learn(self, rank: int, value: bytes) -> bool:
        if rank in self.served:
            return False
        if self.values.get(rank) == value:
            return False
        try:
            address = read_address(value)
        except AddressError as problem:
            if not is_device_group(self.name):
                return False  # another program's numbered keys
            raise AddressError(
                f"the address of rank {rank} of group {self.name} is not as gloo of PyTorch 2.13 "
                f"writes it: {problem}"
            ) from None
        self.values[rank], self.addresses[rank] = value, address
        return True


_WORKERS = "init/"
_BARRIER = re.compile(r".*/store_based_barrier_key:([^:]+)")


class StartUp:
    """Adds the emulated ranks wherever PyTorch counts ranks.

    These are the workers that a rank 0 waits for as it serves the store, the barrier after a group
    is made, if TORCH_DIST_INIT_BARRIER=1, and the agents of torchrun.
    """

    def __init__(
        self,
        client: StoreClient,
        world: int,
        real: Sequence[int],
        members_of: Callable[[str], tuple[int, int] | None],  # how many, and emulated ones of them
    ) -> None:
        self._client, self._world, self._real = client, world, real
        self._members_of = members_of
        self._answered: set[str] = set()
        self.at_work: set[str] = set()  # agents of torchrun that have come and not yet ended
        if 0 in real:
            client.add(_WORKERS, world - len(real))

    def look(self, added: Sequence[str]) -> None:
        roles = [key for key in added if is_role_key(key)]
        if roles:
            self._answer_agents(roles[0])
        for key in added:
            self.at_work.discard(key)
            match = _BARRIER.fullmatch(key)
            if match is not None:
                self._enter_barrier(key, match[1])

    def _answer_agents(self, key: str) -> None:
        answer = answer_agents(self._world, self._real, key, self._client.get([key])[0])
        if answer.barrier in self._answered:
            return
        self._answered.add(answer.barrier)
        self.at_work.add(answer.barrier.replace("num_members", "last_member"))
        self._client.set(answer.items)
        if answer.agents:
            self._client.add(answer.barrier, answer.agents)

    def _enter_barrier(self, key: str, name: str) -> None:
        members, emulated = self._world, self._world - len(self._real)
        if f"/{name}//" in key and name != "0":  # the store of the group itself: only its members
            known = self._members_of(name)
            if known is None:
                return
            members, emulated = known
        if self._client.add(key, emulated) == members:
            self._client.set([(f"{key}:last_worker", b"1")])


_TESTED = "2.13"  # the version of PyTorch that speaks the protocol that we do


def check_version() -> Note | None:
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        text = f"no PyTorch here to compare with: mode wire is tested with {_TESTED}"
    else:
        if f"{version}.".startswith(f"{_TESTED}."):
            return None
        text = f"PyTorch {version}: mode wire is tested with {_TESTED}, and may not work with it"
    return Note(-1, False, text)
