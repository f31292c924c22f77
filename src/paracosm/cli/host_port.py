"""A flag that names a host and a port of it."""

from __future__ import annotations

from paracosm.errors import InputError

__all__ = ["host_and_port"]


def host_and_port(flag: str, text: str, example: str) -> tuple[str, int]:
    """Read "10.0.0.2:5201", or "[::1]:5201".

    Args:
        flag: that it was given to, for the message.
        text: as it was given.
        example: of a right one.

    Raises:
        InputError: there is no host, or no port from 1 to 65535.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InputError(f'{flag}: write HOST:PORT, such as {example}, not "{text}"')
    return host.strip("[]"), int(port)
