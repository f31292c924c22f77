"""What is known of a process group, found by its members without looking at all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Known = TypeVar("Known")

_MOST_IDENTITIES = 4096


class GroupCache(Generic[Known]):
    """Something that is made once for each process group.

    To hash the members of a large group takes longer than all else that is done for a collective. A
    caller that passes the same tuple again is recognised by that; the tuple is kept, so that no
    other one takes its identity.
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
