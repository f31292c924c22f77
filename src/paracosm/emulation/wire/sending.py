"""Put a message's data on its way."""

from __future__ import annotations

from paracosm.emulation.wire.connection import Connection, Outgoing
from paracosm.emulation.wire.sources import Source

__all__ = ["send"]


def send(
    connection: Connection, slot: int, length: int, source: Source, at_once: bool = False
) -> None:
    """Send data from a source; what has not come yet follows as it comes."""
    kept = source.kept
    if kept is None:
        connection.send(Outgoing(slot, length, source.data, length), at_once)
        return
    message = Outgoing(slot, length, kept.data, min(length, kept.got))
    if message.allowed < length:
        kept.readers.append((connection, message))
    connection.send(message, at_once)
