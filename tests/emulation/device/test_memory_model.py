"""Memory of a recording: what is allocated, and what the allocator reserves, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import Storage, iterations, recording

from paracosm.emulation.device.memory_model import held_by_kind, memory_use, played_allocator
from paracosm.emulation.device.recording import OP, RELEASE
from paracosm.errors import InputError
from paracosm.jobs.job import MEMORY
from paracosm.simulation.caching_allocator import parse_settings

KIB, MIB = 1 << 10, 1 << 20
PARAMETERS, GRADIENTS, ACTIVATIONS = (
    MEMORY.index(kind) for kind in ("parameters", "gradients", "activations")
)
ROWS = [(OP, 0, "aten.mm")] * 3  # with the step, four requests of an iteration


CAPACITY = 80 << 30


def stored(
    size: int, first: int, last: int, kind: int = ACTIVATIONS, stream: int = 0, module: int = -1
) -> Storage:
    return size, first, last, kind, stream, module, -1, first


def reserved(*storages: tuple[int, int, int, int], settings: str = "") -> int:
    """Return the bytes reserved for storages: size, first and last request, stream."""
    held = [stored(size, first, last, stream=stream) for size, first, last, stream in storages]
    made = recording(iterations(ROWS), storages=held)
    return played_allocator(replace(made, allocator=settings)).highest


def test_kinds_are_counted_while_they_are_held() -> None:
    held = [
        stored(100, 0, 12, PARAMETERS),
        stored(50, 1, 2),
        stored(70, 2, 5, GRADIENTS),
    ]
    made = recording(iterations(ROWS), storages=held)
    by_kind = held_by_kind(made)
    assert by_kind[PARAMETERS].tolist() == [100] * 12
    assert by_kind[ACTIVATIONS].tolist() == [0, 50, 50, *[0] * 9]
    assert by_kind[GRADIENTS].tolist() == [0, 0, 70, 70, 70, 70, *[0] * 6]


def test_the_peak_is_that_of_the_last_iteration() -> None:
    # More in the first iteration, which prepares, than in the last: rows 8 to 11.
    held = [
        stored(1000, 0, 3),
        stored(100, 0, 12, PARAMETERS),
        stored(60, 9, 9, GRADIENTS),
    ]
    use = memory_use(recording(iterations(ROWS), storages=held), CAPACITY)
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
    made = recording(iterations(ROWS), storages=[stored(size, 0, 12, PARAMETERS)])
    assert memory_use(made, capacity).verdict == verdict


def test_the_allocator_gives_back_what_is_not_used_before_it_is_full() -> None:
    # 50 GiB are freed, but cannot hold the 55 that come then: it takes them after giving 50 back.
    held = [stored(50 << 30, 0, 1), stored(55 << 30, 4, 5)]
    use = memory_use(recording(iterations(ROWS), storages=held), CAPACITY)
    assert (use.reserved, use.retries, use.verdict) == (55 << 30, 1, "tight")
    both = [stored(50 << 30, 0, 5), stored(55 << 30, 4, 5)]
    assert (
        memory_use(recording(iterations(ROWS), storages=both), CAPACITY).verdict == "does not fit"
    )


def test_what_a_script_gives_back_is_taken_anew() -> None:
    rows = [(OP, 0, "aten.mm"), (RELEASE, 0), (OP, 0, "aten.mm")]
    held = [stored(30 * MIB, 0, 0), stored(40 * MIB, 2, 3)]
    assert played_allocator(recording(iterations(rows), storages=held)).highest == 40 * MIB
    assert played_allocator(recording(iterations(ROWS), storages=held)).highest == 70 * MIB


def test_expandable_segments_grow_by_pages_of_twenty_mebibytes() -> None:
    # 30 MiB are freed; 40 take them and grow by what is missing, a page.
    held = ((30 * MIB, 0, 0, 0), (40 * MIB, 1, 5, 0))
    assert reserved(*held) == 70 * MIB
    assert reserved(*held, settings="expandable_segments:True") == 40 * MIB
    # A freed block in the midst is used again, and what is left of it as well.
    split = ((30 * MIB, 0, 1, 0), (10 * MIB, 0, 9, 0), (20 * MIB, 3, 9, 0), (10 * MIB, 4, 9, 0))
    assert reserved(*split, settings="expandable_segments:True") == 40 * MIB
    small = [(600 << 10, 0, 9, 0)] * 4
    assert reserved(*small, settings="expandable_segments:True") == 4 * MIB


def test_blocks_above_the_largest_size_to_split_stay_whole() -> None:
    settings = "max_split_size_mb:32"
    held = ((40 * MIB, 0, 0, 0), (24 * MIB, 2, 9, 0))
    assert reserved(*held) == 40 * MIB
    assert reserved(*held, settings=settings) == 64 * MIB


def test_sizes_are_rounded_to_divisions_of_powers_of_two() -> None:
    # Between 64 and 128 MiB, to eighths of 64: 65 become 72.
    assert reserved((65 * MIB, 0, 9, 0), settings="roundup_power2_divisions:8") == 72 * MIB


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("expandable_segments:yes", "expected True or False"),
        ("max_split_size_mb:many", "expected a whole number"),
        ("backend:cudaMallocAsync", "is not modelled"),
    ],
)
def test_settings_that_are_not_modelled_are_refused(settings: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_settings(settings)


def test_modules_that_hold_most_are_listed_by_their_names() -> None:
    names = ("layers.0.mlp", "layers.1.mlp", "head")
    held = [
        stored(100, 0, 12, PARAMETERS, module=0),
        stored(100, 0, 12, PARAMETERS, module=1),
        stored(50, 8, 10, module=1),
        stored(60, 9, 10, module=2),
        stored(70, 9, 10),
        stored(900, 0, 3, module=2),
    ]
    made = replace(recording(iterations(ROWS), storages=held), modules=names)
    uses = [
        (use.name, use.count, use.state, use.rest) for use in memory_use(made, CAPACITY).modules
    ]
    assert uses == [
        ("layers.*.mlp", 2, 200, 50),
        ("outside of any module", 1, 0, 70),
        ("head", 1, 0, 60),
    ]


@given(
    st.lists(
        st.tuples(
            st.integers(1, 60 * MIB // 512).map(lambda blocks: 512 * blocks),
            st.integers(0, 10),
            st.integers(0, 11),
            st.integers(0, 1),
        ).map(lambda row: (row[0], row[1], max(row[1], row[2]), row[3])),
        max_size=30,
    ),
    st.sampled_from(["", "expandable_segments:True", "max_split_size_mb:30"]),
)
def test_no_less_is_reserved_than_allocated_and_no_more_than_all(
    storages: list, settings: str
) -> None:
    held = [stored(size, first, last, stream=stream) for size, first, last, stream in storages]
    made = replace(recording(iterations(ROWS), storages=held), allocator=settings)
    found = played_allocator(made).highest
    assert found >= int(held_by_kind(made).sum(axis=0).max(initial=0))
    segments = sum(max(20 * MIB, size + 2 * MIB) for size, *_ in storages)
    assert found <= segments
