"""Groups are recognised by their tuple, and otherwise by their members."""

from __future__ import annotations

import gc

from paracosm.emulation import group_cache
from paracosm.emulation.group_cache import GroupCache


def test_made_once_for_the_same_members() -> None:
    made: list[tuple[int, ...]] = []

    def make(members: tuple[int, ...]) -> int:
        made.append(members)
        return sum(members)

    groups = GroupCache(make)
    members = (3, 1, 2)
    assert [groups.of(members), groups.of(members), groups.of([3, 1, 2])] == [6, 6, 6]
    assert made == [(3, 1, 2)]
    assert groups.of(range(4)) == 6
    assert groups.of((1, 2, 3)) == 6  # another order is another group
    assert made == [(3, 1, 2), (0, 1, 2, 3), (1, 2, 3)]


def test_a_list_may_change() -> None:
    groups = GroupCache(len)
    members = [1, 2]
    assert groups.of(members) == 2
    members.append(3)
    assert groups.of(members) == 3


def test_tuples_that_come_and_go_are_never_taken_for_each_other(monkeypatch) -> None:
    monkeypatch.setattr(group_cache, "_MOST_IDENTITIES", 8)
    groups = GroupCache(sum)
    for number in range(1000):
        members = tuple(range(number % 37 + 1))
        assert groups.of(members) == sum(members)
        if number % 500 == 0:
            gc.collect()
