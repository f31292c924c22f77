"""How an address is written, and who reaches it."""

from __future__ import annotations

import ipaddress
import socket


def host_port(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_local(host: str) -> bool:
    """Return whether only this machine reaches a name or an address."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a name that cannot be encoded
        return False
    return all(ipaddress.ip_address(address[4][0]).is_loopback for address in addresses)
