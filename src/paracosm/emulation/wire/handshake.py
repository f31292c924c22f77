"""Connects an emulated rank to a real one, as gloo expects it."""

from __future__ import annotations

import socket
import struct

from paracosm.emulation.wire.gloo_address import GlooAddress

__all__ = ["connect"]


def connect(address: GlooAddress, emulated: int, timeout: float) -> socket.socket:
    """Return an open connection of an emulated rank to a real rank; it does not block.

    Who connects says in 8 bytes which connection that is: the number that the real rank has written
    for the emulated one, or the latter's rank where it has written none.

    Args:
        address: of the real rank.
        emulated: rank in the group of the emulated one.
        timeout: seconds.

    Raises:
        OSError: nobody answers there, or no file is left to open.
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
