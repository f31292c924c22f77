"""gloo's messages on a TCP connection: a header of six numbers, and data after some of them.

gloo announces every message with its length before data moves: the sender with SEND_READY, the
receiver with RECV_READY, and the data goes once both are there (gloo, transport/tcp/pair.cc).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

__all__ = [
    "DATA",
    "HEADER",
    "KINDS",
    "RECV_READY",
    "SEND_READY",
    "BrokenError",
    "Header",
    "data_header",
    "kind_of",
    "notice",
    "read_header",
    "tag_of",
]

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
_NAMES = {0: "SEND_BUFFER", DATA: "SEND_UNBOUND_BUFFER"} | {
    SEND_READY: "NOTIFY_SEND_READY",
    RECV_READY: "NOTIFY_RECV_READY",
}


class BrokenError(Exception):
    """What came on a connection is not what gloo sends; the text says what was expected."""


class Header(NamedTuple):
    """A message's header.

    Attributes:
        opcode: DATA, SEND_READY or RECV_READY.
        slot: which operation it belongs to.
        length: bytes of data, in this message or in the one announced.
    """

    opcode: int
    slot: int
    length: int


def read_header(buffer: bytes | bytearray | memoryview, offset: int) -> Header:
    """Read a header.

    Raises:
        BrokenError: gloo sends no such header.
    """
    size, opcode, slot, _, length, _ = HEADER.unpack_from(buffer, offset)
    if opcode not in (DATA, SEND_READY, RECV_READY):
        name = _NAMES.get(opcode, "none of gloo's")
        raise BrokenError(f"expected opcode 1, 2 or 3 of a gloo message, not {opcode} ({name})")
    if length > _LONGEST:
        signed = length - (1 << 64) if length >> 63 else length
        raise BrokenError(f"expected a length of 0 to {_LONGEST:,} bytes, not {signed:,}")
    whole = HEADER.size + (length if opcode == DATA else 0)
    if size != whole:
        raise BrokenError(f"expected a {_NAMES[opcode]} of {whole:,} bytes in all, not {size:,}")
    if slot >> 56 >= len(KINDS):
        raise BrokenError(f"expected an operation of kind 0 to {len(KINDS) - 1}, not {slot >> 56}")
    return Header(opcode, slot, length)


def kind_of(slot: int) -> str:
    """Return which of `KINDS` a slot belongs to."""
    return KINDS[slot >> 56]


def tag_of(slot: int) -> int:
    """Return the number of a collective in its group, or the user's tag of a message."""
    return slot if slot >> 56 == 0 else slot >> 24 & 0xFFFFFFFF


def notice(opcode: int, slot: int, length: int) -> bytes:
    """Return the message that announces data of a length: SEND_READY or RECV_READY."""
    return HEADER.pack(HEADER.size, opcode, slot, 0, length, 0)


def data_header(slot: int, length: int) -> bytes:
    """Return the header of data."""
    return HEADER.pack(HEADER.size + length, DATA, slot, 0, length, 0)
