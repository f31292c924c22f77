"""How real ranks come to know, and to be connected with, the emulated ranks."""

from __future__ import annotations

import errno
import ipaddress
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paracosm.emulation.records import Note
from paracosm.emulation.wire import store_keys
from paracosm.emulation.wire.gloo_address import (
    AddressError,
    GlooAddress,
    emulated_address,
)
from paracosm.emulation.wire.handshake import connect
from paracosm.emulation.wire.host_store import host_store
from paracosm.emulation.wire.membership import Membership
from paracosm.emulation.wire.open_files import allow_open_files
from paracosm.emulation.wire.pair import Pair
from paracosm.emulation.wire.start_up import StartUp
from paracosm.emulation.wire.store_client import StoreClient, StoreError
from paracosm.emulation.wire.torchelastic import AgentError
from paracosm.emulation.wire.version import check_version

__all__ = ["Rendezvous"]

_QUICK, _IDLE, _SLOWER = 0.001, 0.1, 1.3  # seconds between looks at the store; growth
_RETRY = 0.05  # seconds between attempts to reach the store
_END = 1.0  # seconds that the thread may take to end


class Rendezvous:
    """Watches the job's store, and makes the emulated ranks members of every group of a real one.

    A real rank that makes a group writes its address to the store, and waits for those of the other
    members. This writes the addresses of the emulated members, and connects each of them to the
    real rank. Several real ranks connect to each other by themselves.

    Args:
        world: ranks of the job.
        real: the ranks that are real.
        address: host and port of the store, as the real ranks have them in MASTER_ADDR and
            MASTER_PORT: they reach it there if rank 0 is real; else it is served here.
        host: where to serve the store if rank 0 is emulated: 127.0.0.1 for this machine alone.
        put: called with every new connection, from the thread that watches the store.
        note: called with what the user should know, from there as well.
        timeout: seconds that one connection, or one answer of the store, may take.
        groups: members' global ranks by the name of the group in torch.distributed, where somebody
            knows them.
        patience: seconds for which the other real ranks may still come to a group that nobody knows
            the members of, after the first has come.

    Raises:
        InputError: the port is in use, or the world needs more open files than are allowed.
    """

    def __init__(
        self,
        world: int,
        real: Sequence[int],
        address: tuple[str, int],
        host: str,
        put: Callable[[Pair], None],
        note: Callable[[Note], None],
        timeout: float,
        groups: Mapping[str, Sequence[int]] | None = None,
        patience: float = 2.0,
    ) -> None:
        allow_open_files((world - len(real)) * len(real))
        self._world, self._real = world, tuple(sorted(real))
        self._address, self._put, self._note, self._timeout = address, put, note, timeout
        self._known, self._patience = dict(groups or {}), patience
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
        """Begin to watch."""
        warning = check_version()
        if warning is not None:
            self._note(warning)
        self._thread.start()

    def close(self) -> None:
        """Stop watching, and let the store go if it is served here."""
        self._closed.set()
        client = self._client
        if client is not None:
            client.hang_up()
        if self._thread.ident is not None:
            self._thread.join(_END)
        self._store = None

    @property
    def over(self) -> bool:
        """Whether nobody may come any more, once all connections have closed.

        The store of a real rank 0 goes with it. The one that is served here stays: there a job has
        ended when it made a group, and the agents of torchrun, if there are any, have met.
        """
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
                self._fail(
                    f"{self._address[0]}:{self._address[1]} is no store of PyTorch: {problem}"
                )
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
            if self._store is not None and self._groups and not start_up.agents_at_work:
                self._left.set()
            pause = _QUICK if added or news else min(pause * _SLOWER, _IDLE)

    def _read(self, client: StoreClient, added: Sequence[str]) -> bool:
        """Read new addresses, and those that were there before (they change if a group is made
        again in the same store); return whether there is news."""
        places = [found for key in added if (found := store_keys.find_address(key))]
        known = [(name, rank) for name, group in self._groups.items() for rank in group.watched()]
        places += [place for place in known if place not in set(places)]
        values = client.get([store_keys.address_key(*place) for place in places])
        news = False
        for (name, rank), value in zip(places, values, strict=True):
            if name not in self._groups:
                self._groups[name] = self._new_membership(name)
            news = self._groups[name].learn(rank, value) or news
        return news

    def _new_membership(self, name: str) -> Membership:
        known = self._known.get(store_keys.group_name(name), ())
        members = range(self._world) if store_keys.is_default(name) else known
        return Membership(name, tuple(members), self._real, time.monotonic() + self._patience)

    def _members_of(self, name: str) -> tuple[int, int] | None:
        for each in self._groups.values():
            if store_keys.group_name(each.name) == name and each.size is not None:
                return each.size, each.size - len(each.real_members())
        return None

    def _serve(self, client: StoreClient, group: Membership) -> bool:
        """Write the addresses of emulated members, and connect them; return whether any were."""
        awaited = group.awaits()
        if not awaited or not group.is_settled(time.monotonic()):
            return False
        size = group.size
        if size is None:
            raise AddressError(
                f"group {group.name}: with TORCH_GLOO_LAZY_INIT=1 the store does not tell how many "
                "members it has: a plan does, or leave the variable out"
            )
        real = group.real_members()
        if not group.served:
            group.served = frozenset(range(size)) - set(real)
            some = next(iter(group.addresses.values()))
            value = emulated_address(some.family, real[-1] + 1 if some.connections else 0)
            group.written = value
            client.set(
                (store_keys.address_key(group.name, rank), value) for rank in sorted(group.served)
            )
        for rank in awaited:
            self._connect(group, rank, size)
        return True

    def _connect(self, group: Membership, real: int, size: int) -> None:
        address = group.addresses[real]
        wire_group = group.wire_group(size)
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
    where = f"{address.host}:{address.port}"
    if error.errno == errno.EMFILE:
        return f"group {group}: too many open files: raise ulimit -n, or make the world smaller"
    reason = error.strerror or "it does not answer"
    hint = ""
    if ipaddress.ip_address(address.host).is_loopback:
        hint = ": if it is on another machine, set GLOO_SOCKET_IFNAME there"
    return f"cannot connect to rank {real} of group {group} at {where}: {reason}{hint}"
