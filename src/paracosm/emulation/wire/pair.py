"""A connection between a real rank and an emulated one, as gloo makes one for every pair."""

from __future__ import annotations

import socket
from dataclasses import dataclass

__all__ = ["Pair", "WireGroup"]


@dataclass(frozen=True)
class WireGroup:
    """A process group of which a real rank is a member.

    Attributes:
        name: its prefix in the store, "default_pg/0//cpu//0".
        size: how many members.
        real: the members that are real, by their rank in the group.
        members: global ranks by rank in the group; empty where nobody knows them.
    """

    name: str
    size: int
    real: tuple[int, ...]
    members: tuple[int, ...] = ()


@dataclass(frozen=True)
class Pair:
    """An open connection after gloo's handshake; its socket does not block.

    Attributes:
        socket: to the real rank.
        group: of both.
        real: rank in the group of the real end.
        emulated: rank in the group of our end.
    """

    socket: socket.socket
    group: WireGroup
    real: int
    emulated: int
