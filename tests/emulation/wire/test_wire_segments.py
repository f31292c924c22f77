"""How gloo cuts a vector, and how that is found out from what a member posts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.emulation.wire.segments import (
    Layout,
    Learning,
    Remembered,
    Standing,
    candidates,
    layout_of,
    layout_of_segments,
    messages_of,
    vector_size,
)

MIB = 1 << 20
ELEMENTS = st.sampled_from([1, 2, 4, 8])
SIZES = st.one_of(st.integers(1, 200), st.integers(1, 10 * MIB))


def lengths(world: int, size: int, element: int, member: int) -> tuple[list[int], list[int]]:
    """Return what a member sends and receives, by gloo's loops with offsets and lengths."""
    layout, segment = layout_of(world, size, element)
    whole = world * layout.lag * segment
    found: tuple[list[int], list[int]] = ([], [])
    for shift in (1, 0):  # add up, then pass round
        for i in range((world - 1) * layout.lag):
            for one, way in zip((0, 1), found, strict=True):
                offset = ((member + shift + one) * layout.lag + i) * segment % whole
                length = min(segment, size - offset)
                if length > 0:
                    way.append(length)
    return found


def test_layouts_by_hand() -> None:
    # 4,000 bytes of 4 among 4: 8 segments of 500 bytes.
    assert layout_of(4, 4000, 4) == (Layout(4, 2, 8), 500)
    # 5 MiB among 2: 3 MiB each in segments of at most 1 MiB, 6 segments of 873,816 bytes.
    assert layout_of(2, 5 * MIB, 4) == (Layout(2, 3, 6), 873_816)
    # 5 integers of 8 bytes among 4: one in each segment, 3 of 8 are empty.
    assert layout_of(4, 40, 8) == (Layout(4, 2, 5), 8)


@given(st.integers(2, 9), SIZES, ELEMENTS, st.data())
@settings(max_examples=150, deadline=None)
def test_messages_are_those_of_gloos_loops(
    world: int, size: int, element: int, data: st.DataObject
) -> None:
    size = -(-size // element) * element
    member = data.draw(st.integers(0, world - 1))
    layout, segment = layout_of(world, size, element)
    sends, receives = lengths(world, size, element, member)
    found = messages_of(layout, member)
    assert len(found.sends) == len(sends)
    assert len(found.receives) == len(receives)
    assert vector_size(layout, member, segment, sum(sends)) == size


@given(st.integers(2, 9), SIZES, ELEMENTS)
@settings(max_examples=150, deadline=None)
def test_the_layout_is_among_the_candidates(world: int, size: int, element: int) -> None:
    size = -(-size // element) * element
    layout, segment = layout_of(world, size, element)
    found = candidates(world, segment)
    assert any(one == layout for one, _ in zip(found, range(5000), strict=False))


@given(st.integers(2, 9), SIZES, ELEMENTS)
@settings(max_examples=150, deadline=None)
def test_a_planned_size_says_how_the_vector_was_cut(world: int, size: int, element: int) -> None:
    size = -(-size // element) * element
    layout, length = layout_of(world, size, element)
    assert layout_of_segments(world, size, length) == layout
    assert layout_of_segments(world, size, length + 8) is None


def test_most_layouts_are_certain() -> None:
    for world in (2, 4, 64):
        assert Learning(world, (0,), 64 * 1024).is_certain
    assert not Learning(2, (0,), MIB).is_certain
    assert not Learning(4, (0,), 4).is_certain


class Literal:
    """A member that plays gloo's loop: two messages of each direction at a time."""

    def __init__(self, layout: Layout, member: int) -> None:
        total = layout.world * layout.lag
        self.steps: list[tuple[bool, bool]] = []
        for shift in (1, 0):
            for i in range(layout.half):
                send = ((member + shift) * layout.lag + i) % total < layout.present
                receive = ((member + shift + 1) * layout.lag + i) % total < layout.present
                self.steps.append((receive, send))
        self.half = layout.half

    def posted(self, received: int, sent: int) -> tuple[int, int]:
        receives = sends = 0
        for at, (receive, send) in enumerate(self.steps):
            first = self.half if at >= self.half else 0
            needed = self.steps[: max(first, at - 1)]
            if sum(one for one, _ in needed) > received or sum(one for _, one in needed) > sent:
                break
            receives, sends = receives + receive, sends + send
        return receives, sends


@given(st.integers(2, 6), st.one_of(st.integers(1, 60), st.integers(4 * MIB, 40 * MIB)), st.data())
@settings(max_examples=60, deadline=None)
def test_learns_how_a_vector_was_cut(world: int, size: int, data: st.DataObject) -> None:
    element = data.draw(ELEMENTS)
    size = -(-size // element) * element
    member = data.draw(st.integers(0, world - 1))
    layout, segment = layout_of(world, size, element)
    learning = Learning(world, (member,), segment)
    literal = Literal(layout, member)
    received = sent = 0
    found = messages_of(layout, member)
    posted = literal.posted(received, sent)
    while (received, sent) != posted:
        learning.settle({member: Standing(posted, (received, sent))})
        # What is answered next is known to be added up, or to be passed round.
        likely = messages_of(learning.layout, member)
        if received < posted[0]:
            assert (received < likely.added) == (received < found.added)
        received, sent = min(received + 1, posted[0]), min(sent + 1, posted[1])
        posted = literal.posted(received, sent)
    assert posted == (len(found.receives), len(found.sends))


def test_remembers_layouts_by_what_was_before() -> None:
    remembered = Remembered()
    small, large = Layout(4, 2, 5), Layout(4, 2, 8)
    for _ in range(2):  # the first time there is nothing before
        for length, layout in ((4, small), (8, large)):
            key, _ = remembered.recall(length)
            remembered.learn(key, layout)
    assert remembered.recall(4)[1] == small
    key, _ = remembered.recall(4)
    remembered.learn(key, large)
    key, found = remembered.recall(8)
    assert found is None
    remembered.learn(key, large)
    # Two answers after the same operation: it is looked at each time from now on.
    assert remembered.recall(4)[1] is None
