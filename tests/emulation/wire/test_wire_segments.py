"""How gloo cuts a vector."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.emulation.wire.segments import (
    Layout,
    layout_of,
    messages_of,
)

MIB = 1 << 20
ELEMENTS = st.sampled_from([1, 2, 4, 8])
SIZES = st.one_of(st.integers(1, 200), st.integers(1, 10 * MIB))


def lengths(world: int, size: int, element: int, member: int) -> tuple[list[int], list[int]]:
    """Return what a member sends and receives, by gloo's loops with offsets and lengths."""
    layout, segment = layout_of("all_reduce", world, size, element)
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
    assert layout_of("all_reduce", 4, 4000, 4) == (Layout(4, 2, 8, 12), 500)
    # 5 MiB among 2: 3 MiB each in segments of at most 1 MiB, 6 segments of 873,816 bytes.
    assert layout_of("all_reduce", 2, 5 * MIB, 4) == (Layout(2, 3, 6, 6), 873_816)
    # 5 integers of 8 bytes among 4: one in each segment, 3 of 8 are empty.
    assert layout_of("all_reduce", 4, 40, 8) == (Layout(4, 2, 5, 12), 8)
    # A reduce of 5 MiB among 2: five segments of 1 MiB, and a sixth that is empty.
    assert layout_of("reduce", 2, 5 * MIB, 4) == (Layout(2, 3, 5, 4), MIB)


@given(st.integers(2, 9), SIZES, ELEMENTS, st.data())
@settings(max_examples=150, deadline=None)
def test_messages_are_those_of_gloos_loops(
    world: int, size: int, element: int, data: st.DataObject
) -> None:
    size = -(-size // element) * element
    member = data.draw(st.integers(0, world - 1))
    layout, _ = layout_of("all_reduce", world, size, element)
    sends, receives = lengths(world, size, element, member)
    found = messages_of(layout, member)
    assert len(found.sends) == len(sends)
    assert len(found.receives) == len(receives)
