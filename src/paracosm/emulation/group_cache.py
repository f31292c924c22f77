"""A cache by process group that avoids hashing all members."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Known = TypeVar("Known")

_MOST_IDENTITIES = 4096


class GroupCache(Generic[Known]):
    """Makes one value per process group.

    Hashing the members of a large group takes longer than everything else a collective needs, so a
    caller that passes the same tuple again is recognised by its identity. The tuple is kept, so
    that no other object gets that identity.
    """

    def __init__(self, make: Callable[[tuple[int, ...]], Known]) -> None:
        self._make = make
        self._by_members: dict[tuple[int, ...], Known] = {}
        self._by_identity: dict[int, tuple[Sequence[int], Known]] = {}

    def of(self, members: Sequence[int]) -> Known:
        seen = self._by_identity.get(id(members))
        if seen is not None:
            return seen[1]
        key = tuple(members)
        known = self._by_members.get(key)
        if known is None:
            known = self._by_members[key] = self._make(key)
        if type(members) is tuple:  # others may change under the same identity
            if len(self._by_identity) >= _MOST_IDENTITIES:
                self._by_identity.clear()
            self._by_identity[id(members)] = (members, known)
        return known
