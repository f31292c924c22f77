"""gloo's bytes: a rank's address, the handshake, and messages.

A message is a header of six numbers, sometimes followed by data. gloo announces every message with
its length before data moves: the sender with SEND_READY, the receiver with RECV_READY, and the data
goes once both are there (gloo, transport/tcp/pair.cc).
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Final

HEADER: Final = struct.Struct("<QQQQQQ")
"""Bytes of the whole message, opcode, slot, offset, length, offset at the receiver."""

DATA: Final = 1
SEND_READY: Final = 2
RECV_READY: Final = 3

KINDS: Final = (
    "send",  # and recv: the slot is the user's tag
    *("gather", "all_gather", "reduce", "all_reduce", "scatter", "broadcast", "barrier"),
    "all_to_all",
)
"""gloo's operations by the prefix of their slots (gloo, types.h)."""

_LONGEST = 1 << 40  # bytes of one message: no tensor has more
_NAMES = ("SEND_BUFFER", "SEND_UNBOUND_BUFFER", "NOTIFY_SEND_READY", "NOTIFY_RECV_READY")


class BrokenError(Exception):
    """Bytes on a connection that gloo would not send; the text says what was expected."""


def read_header(buffer: bytes | bytearray | memoryview, offset: int) -> tuple[int, int, int]:
    """Return opcode, slot of the operation, and the bytes of data that follow or are announced."""
    size, opcode, slot, _, length, _ = HEADER.unpack_from(buffer, offset)
    if opcode not in (DATA, SEND_READY, RECV_READY):
        name = _NAMES[opcode] if opcode < len(_NAMES) else "none of gloo's"
        raise BrokenError(f"expected opcode 1, 2 or 3 of a gloo message, not {opcode} ({name})")
    if length > _LONGEST:
        signed = length - (1 << 64) if length >> 63 else length
        raise BrokenError(f"expected a length of 0 to {_LONGEST:,} bytes, not {signed:,}")
    whole = HEADER.size + (length if opcode == DATA else 0)
    if size != whole:
        raise BrokenError(f"expected a {_NAMES[opcode]} of {whole:,} bytes in all, not {size:,}")
    if slot >> 56 >= len(KINDS):
        raise BrokenError(f"expected an operation of kind 0 to {len(KINDS) - 1}, not {slot >> 56}")
    return opcode, slot, length


def kind_of(slot: int) -> str:
    return KINDS[slot >> 56]


def tag_of(slot: int) -> int:
    """Return the number of a collective in its group, or the user's tag of a message."""
    return slot if slot >> 56 == 0 else slot >> 24 & 0xFFFFFFFF


def notice(opcode: int, slot: int, length: int) -> bytes:
    return HEADER.pack(HEADER.size, opcode, slot, 0, length, 0)


def data_header(slot: int, length: int) -> bytes:
    return HEADER.pack(HEADER.size + length, DATA, slot, 0, length, 0)


_STORAGE = 128
_LONGEST_NAME = 255


class AddressError(Exception):
    """A value of another layout; the message says what was expected and what was found."""


@dataclass(frozen=True)
class GlooAddress:
    family: int  # AF_INET or AF_INET6
    host: str  # IP address
    port: int
    # What each rank's connection begins with; empty where that is its rank
    connections: tuple[int, ...]


def read_address(value: bytes) -> GlooAddress:
    """Read the address that a real rank writes to the store for the others to connect to.

    Layout, little-endian (`Rank::bytes` in gloo/transport/tcp/context.cc, gloo of PyTorch 2.13):
    u64 length of the host name and the host name; u64 136; a sockaddr_storage of 128 bytes, not
    cleared beyond the address; i64 sequence number (-1); then for each rank of the group the i64
    number of its connection. With TORCH_GLOO_LAZY_INIT=1 or GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER=1
    the numbers are absent: a connection is known by the rank that made it.
    """
    name = _u64(value, 0, "length of the host name", _LONGEST_NAME)
    at = 8 + name
    size = _u64(value, at, "length of the address", None)
    if size != _STORAGE + 8:
        raise AddressError(f"{_STORAGE + 8} bytes of address expected, not {size:,}")
    at += 8
    rest = len(value) - at - size
    if rest < 0 or rest % 8:
        raise AddressError(f"numbers of 8 bytes expected after the address, not {rest} bytes")
    (family,), (port,) = (
        struct.unpack_from("<H", value, at),
        struct.unpack_from(">H", value, at + 2),
    )
    if family == socket.AF_INET:
        host = socket.inet_ntop(socket.AF_INET, value[at + 4 : at + 8])
    elif family == socket.AF_INET6:
        host = socket.inet_ntop(socket.AF_INET6, value[at + 8 : at + 24])
    else:
        raise AddressError(f"an IPv4 or IPv6 address expected, not family {family}")
    return GlooAddress(family, host, port, struct.unpack_from(f"<{rest // 8}q", value, at + size))


def emulated_address(family: int, connections: int) -> bytes:
    """Return the address of an emulated rank, for real ranks of an address family.

    Of two ranks the one with the larger address connects to the other (`Device::isInitiator` in
    gloo/transport/tcp/device.cc). This address is the largest: real ranks never connect to emulated
    ones, which therefore need not listen. The `connections` have numbers that nobody reads.
    """
    name = b"emulated"
    storage = struct.pack("<H", family).ljust(_STORAGE, b"\xff")
    sizes = struct.pack("<Q", len(name)) + name + struct.pack("<Q", _STORAGE + 8)
    return sizes + storage + struct.pack("<q", -1) + bytes(8 * connections)


def _u64(value: bytes, at: int, what: str, most: int | None) -> int:
    if len(value) < at + 8:
        raise AddressError(f"a {what} expected at byte {at}, but there are {len(value)} bytes")
    number = int.from_bytes(value[at : at + 8], "little")
    if most is not None and number > most:
        raise AddressError(f"a {what} up to {most} expected, not {number:,}")
    return number


def connect(address: GlooAddress, emulated: int, timeout: float) -> socket.socket:
    """Return an open, non-blocking connection from an emulated rank to a real rank.

    It begins with 8 bytes that identify it: the number that the real rank has written for the
    emulated one, or the latter's rank if it has written none.
    """
    number = address.connections[emulated] if address.connections else emulated
    opened = socket.create_connection((address.host, address.port), timeout)
    try:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.sendall(struct.pack("<q", number))
        opened.setblocking(False)
    except OSError:
        opened.close()
        raise
    return opened
