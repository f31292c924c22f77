"""A client of PyTorch's TCPStore that can do what PyTorch's own cannot.

PyTorch's client counts one worker with each connection, asks the name server for the name of its
peer each time, and prints a C++ stack when the store goes away: with a thousand emulated workers
that takes minutes. This one speaks the same protocol (torch/csrc/distributed/c10d/TCPStore.cpp and
TCPStoreBackend.hpp, PyTorch 2.13) on one connection. Keys are as the server has them: those of
users begin with "/", the count of workers, `init/`, does not.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterable, Sequence
from typing import TypeVar

__all__ = ["StoreClient", "StoreError"]

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

    Every method raises OSError when the store has gone away, or does not answer in time, and
    StoreError when its answer makes no sense.
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
        """Add to the number behind a key (0 at first), and return it."""
        self._socket.sendall(struct.pack("<B", _ADD) + _text(key) + struct.pack("<q", amount))
        return int.from_bytes(self._take(8), "little", signed=True)

    def keys(self) -> list[str]:
        """Return all keys of the store."""
        self._socket.sendall(struct.pack("<B", _LIST_KEYS))
        count = self._size(_MOST_KEYS, "number of keys")
        return [self._bytes().decode("utf-8", "replace") for _ in range(count)]

    def get(self, keys: Sequence[str]) -> list[bytes]:
        """Return the values of keys that are there."""
        values: list[bytes] = []
        for asked in _parts(keys):
            query = [struct.pack("<BQ", _MULTI_GET, len(asked)), *map(_text, asked)]
            self._socket.sendall(b"".join(query))
            values += [self._bytes() for _ in asked]
        return values

    def set(self, items: Iterable[tuple[str, bytes]]) -> None:
        """Set many keys."""
        for part in _parts(list(items)):
            query = [struct.pack("<BQ", _MULTI_SET, len(part))]
            for key, value in part:
                query += [_text(key), struct.pack("<Q", len(value)), value]
            self._socket.sendall(b"".join(query))

    def hang_up(self) -> None:
        """End the connection, and with it what another thread waits for."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the connection back."""
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
