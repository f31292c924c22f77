"""Memory of a recording: what is allocated, and what the allocator reserves, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import iterations, recording

from paracosm.emulation.device.memory_model import held_by_kind, memory_use, reserved_bytes
from paracosm.emulation.device.recording import MEMORY, OP

KIB, MIB = 1 << 10, 1 << 20
PARAMETERS, GRADIENTS, ACTIVATIONS = (
    MEMORY.index(kind) for kind in ("parameters", "gradients", "activations")
)
ROWS = [(OP, 0, "aten.mm")] * 3  # with the step, four requests of an iteration


def reserved(*storages: tuple[int, int, int, int]) -> int:
    """Return the bytes reserved for storages: size, first and last request, stream."""
    held = [(size, first, last, ACTIVATIONS, stream) for size, first, last, stream in storages]
    return reserved_bytes(recording(iterations(ROWS), storages=held))


def test_kinds_are_counted_while_they_are_held() -> None:
    held = [(100, 0, 12, PARAMETERS, 0), (50, 1, 2, ACTIVATIONS, 0), (70, 2, 5, GRADIENTS, 0)]
    made = recording(iterations(ROWS), storages=held)
    by_kind = held_by_kind(made)
    assert by_kind[PARAMETERS].tolist() == [100] * 12
    assert by_kind[ACTIVATIONS].tolist() == [0, 50, 50, *[0] * 9]
    assert by_kind[GRADIENTS].tolist() == [0, 0, 70, 70, 70, 70, *[0] * 6]


def test_the_peak_is_that_of_the_last_iteration() -> None:
    # More in the first iteration, which prepares, than in the last: rows 8 to 11.
    held = [(1000, 0, 3, ACTIVATIONS, 0), (100, 0, 12, PARAMETERS, 0), (60, 9, 9, GRADIENTS, 0)]
    use = memory_use(recording(iterations(ROWS), storages=held))
    assert use.allocated == 160
    assert use.by_kind == {"parameters": 100, "gradients": 60}


def test_small_blocks_share_a_segment_of_two_mebibytes() -> None:
    assert reserved((512, 0, 12, 0), (1 * MIB, 0, 12, 0)) == 2 * MIB
    assert reserved(*[(1 * MIB, 0, 12, 0)] * 3) == 4 * MIB


def test_larger_blocks_share_one_of_twenty() -> None:
    assert reserved((2 * MIB, 0, 12, 0), (9 * MIB, 0, 12, 0)) == 20 * MIB
    assert reserved((2 * MIB, 0, 12, 0), (512, 0, 12, 0)) == 22 * MIB


def test_the_largest_have_segments_of_their_own() -> None:
    assert reserved((10 * MIB, 0, 12, 0)) == 10 * MIB
    assert reserved((100 * MIB + 512, 0, 12, 0)) == 102 * MIB


def test_a_block_that_was_freed_is_used_again_by_its_stream_alone() -> None:
    assert reserved((40 * MIB, 0, 1, 0), (40 * MIB, 2, 3, 0)) == 40 * MIB
    assert reserved((40 * MIB, 0, 1, 0), (40 * MIB, 2, 3, 1)) == 80 * MIB


def test_free_neighbours_are_joined() -> None:
    # Two halves of one segment are freed, and make room for a whole one.
    halves = ((20 * MIB, 1, 3, 0), (20 * MIB, 2, 3, 0))
    assert reserved((40 * MIB, 0, 0, 0), *halves, (40 * MIB, 5, 6, 0)) == 40 * MIB


def test_the_smallest_block_that_fits_is_taken() -> None:
    # 30 of a segment of 40 would leave none for the second 40.
    free = ((40 * MIB, 0, 0, 0), (30 * MIB, 0, 0, 0))
    assert reserved(*free, (30 * MIB, 2, 9, 0), (40 * MIB, 3, 9, 0)) == 70 * MIB


@pytest.mark.parametrize(
    ("size", "capacity", "verdict"),
    [
        (10 << 30, 80 << 30, "fits"),
        (75 << 30, 80 << 30, "tight"),
        (90 << 30, 80 << 30, "does not fit"),
    ],
)
def test_verdicts(size: int, capacity: int, verdict: str) -> None:
    made = recording(iterations(ROWS), storages=[(size, 0, 12, PARAMETERS, 0)])
    assert memory_use(made).verdict(capacity) == verdict


@given(
    st.lists(
        st.tuples(
            st.integers(1, 60 * MIB // 512).map(lambda blocks: 512 * blocks),
            st.integers(0, 10),
            st.integers(0, 11),
            st.integers(0, 1),
        ).map(lambda row: (row[0], row[1], max(row[1], row[2]), row[3])),
        max_size=30,
    )
)
def test_no_less_is_reserved_than_allocated_and_no_more_than_all(storages: list) -> None:
    held = [(size, first, last, ACTIVATIONS, stream) for size, first, last, stream in storages]
    made = recording(iterations(ROWS), storages=held)
    found = reserved_bytes(made)
    assert found >= int(held_by_kind(made).sum(axis=0).max(initial=0))
    segments = sum(max(20 * MIB, size + 2 * MIB) for size, *_ in storages)
    assert found <= segments
