"""What the keys mean that PyTorch writes to the store when a job starts."""

from __future__ import annotations

import re

__all__ = ["address_key", "find_address", "group_name", "is_default", "is_device_group"]

_ADDRESS = re.compile(r"/(.+/\d+)/(\d+)")
_DEVICE = re.compile(r"//[a-z]+//\d+$")
_DEFAULT = re.compile(r"(?:^|/)default_pg/0//[a-z]+//\d+$")
_PREFIX = re.compile(r"^(?:.*/)?default_pg/0//")


def find_address(key: str) -> tuple[str, int] | None:
    """Return the group and the rank in it whose address is under a key; None for other keys.

    The group's name is the prefix of its gloo context in the store: "default_pg/0//cpu//0", where
    the last number counts the network interfaces that the group uses (GLOO_SOCKET_IFNAME=a,b).
    """
    found = _ADDRESS.fullmatch(key)
    return None if found is None else (found[1], int(found[2]))


def address_key(group: str, rank: int) -> str:
    """Return the key of a member's address: `find_address` backwards."""
    return f"/{group}/{rank}"


def is_default(group: str) -> bool:
    """Return whether a group is the default one, of which every rank is a member."""
    return _DEFAULT.search(group) is not None


def is_device_group(group: str) -> bool:
    """Return whether a name is certainly of a gloo group, not of somebody's own numbered keys."""
    return _DEVICE.search(group) is not None


def group_name(group: str) -> str:
    """Return what torch.distributed calls a group: "0", "3", or the hash of its ranks."""
    inside = _DEVICE.sub("", _PREFIX.sub("", group))
    return "0" if is_default(group) else inside
