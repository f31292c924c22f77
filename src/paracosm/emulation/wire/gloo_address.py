"""The address that each rank writes to the store for the others to connect to.

Layout, little-endian (`Rank::bytes` in gloo/transport/tcp/context.cc, gloo of PyTorch 2.13): u64
length of the host name and the host name; u64 136; a sockaddr_storage of 128 bytes, of which what
is beyond the address is not cleared; i64 sequence number (-1); then for each rank of the group the
i64 number by which its connection is known. There are none of these with TORCH_GLOO_LAZY_INIT=1 or
GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER=1: then a connection is known by the rank of who made it.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

__all__ = ["AddressError", "GlooAddress", "emulated_address", "read_address"]

_STORAGE = 128
_LONGEST_NAME = 255


class AddressError(Exception):
    """A value has another layout; the message says what was expected and what came."""


@dataclass(frozen=True)
class GlooAddress:
    """Where a real rank listens.

    Attributes:
        family: AF_INET or AF_INET6.
        host: IP address.
        port: of TCP.
        connections: for each rank of the group the number that its connection begins with; empty
            where that is its rank.
    """

    family: int
    host: str
    port: int
    connections: tuple[int, ...]


def read_address(value: bytes) -> GlooAddress:
    """Return the address that a real rank has written.

    Raises:
        AddressError: this is not an address as gloo writes it.
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
    family, port = (
        struct.unpack_from("<H", value, at)[0],
        struct.unpack_from(">H", value, at + 2)[0],
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
    gloo/transport/tcp/device.cc). This is the largest there is: real ranks never connect to
    emulated ones, which therefore need not listen.

    Args:
        family: AF_INET or AF_INET6.
        connections: how many of the group's ranks need a number (up to the last real one); 0 for
            the layout without them. Nobody asks for their value.
    """
    name = b"emulated"
    storage = struct.pack("<H", family).ljust(_STORAGE, b"\xff")
    return b"".join(
        (
            struct.pack("<Q", len(name)),
            name,
            struct.pack("<Q", _STORAGE + 8),
            storage,
            struct.pack("<q", -1),
            bytes(8 * connections),
        )
    )


def _u64(value: bytes, at: int, what: str, most: int | None) -> int:
    if len(value) < at + 8:
        raise AddressError(f"a {what} expected at byte {at}, but there are {len(value)} bytes")
    number = int.from_bytes(value[at : at + 8], "little")
    if most is not None and number > most:
        raise AddressError(f"a {what} up to {most} expected, not {number:,}")
    return number
