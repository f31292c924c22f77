"""Against values by hand, and against step-by-step simulations that move the bytes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cluster.cluster import hierarchical, switch
from paracosm.cluster.collectives import (
    collective_time,
    halving_doubling_all_reduce,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    tree_all_reduce,
    tree_broadcast,
)
from paracosm.cluster.link import Link
from paracosm.errors import InputError

# 1 s to start a message, 100 bytes/s
LINK = Link(bandwidth=100.0, latency=1.0)
ALL = (
    ring_all_reduce,
    ring_all_gather,
    ring_reduce_scatter,
    tree_broadcast,
    tree_all_reduce,
    halving_doubling_all_reduce,
)
link_strategy = st.builds(Link, st.floats(1, 1e12), st.floats(0, 10), st.floats(0, 1))
ranks_strategy = st.integers(1, 24)


@pytest.mark.parametrize(
    ("function", "ranks", "seconds"),
    [
        (ring_all_reduce, 4, 6 * (1 + 2)),  # 800 bytes: chunks of 200
        (ring_reduce_scatter, 4, 3 * (1 + 2)),
        (ring_all_gather, 8, 7 * (1 + 1)),
        (tree_broadcast, 8, 3 * (1 + 8)),
        (tree_broadcast, 5, 3 * (1 + 8)),
        (tree_all_reduce, 4, 4 * (1 + 8)),
        (halving_doubling_all_reduce, 4, 2 * ((1 + 4) + (1 + 2))),
        (halving_doubling_all_reduce, 8, 2 * ((1 + 4) + (1 + 2) + (1 + 1))),
        (halving_doubling_all_reduce, 5, 2 * ((1 + 4) + (1 + 2) + (1 + 8))),
    ],
)
def test_by_hand(function, ranks, seconds):
    assert function(ranks, 800.0, LINK) == pytest.approx(seconds, rel=1e-15)


def test_hierarchical_by_hand():
    # 2 groups of 4; within: 6 steps of 200 bytes; between: 2 steps of 200 / 2 bytes, 10 bytes/s.
    outer = Link(bandwidth=10.0, latency=3.0)
    expected = 6 * (1 + 2) + 2 * (3 + 10)
    cluster = hierarchical(8, 4, LINK, outer)
    found = collective_time(cluster, range(8), "all_reduce", 800.0, "hierarchical")
    assert found == pytest.approx(expected)


def simulate_ring(vectors, links, element_bytes):
    """All-reduce on a ring, one message at a time; return the sums and each rank's end time.

    Rank r sends over links[r] to rank r + 1 once it has its chunk and its port is free.
    """
    ranks = len(vectors)
    chunk_bytes = len(vectors[0]) // ranks * element_bytes
    chunks = [[vector[c::ranks] for c in range(ranks)] for vector in vectors]
    ready = [[0.0] * ranks for _ in range(ranks)]  # when rank r has what it will send of chunk c
    port = [0.0] * ranks
    for step in range(2 * (ranks - 1)):
        arrivals = []
        for source in range(ranks):
            chunk = (source - step) % ranks
            begin = max(port[source], ready[source][chunk])
            port[source] = begin + links[source].transfer_time(chunk_bytes)
            arrivals.append((source, chunk, port[source], list(chunks[source][chunk])))
        for source, chunk, time, data in arrivals:
            target = (source + 1) % ranks
            if step < ranks - 1:
                data = [a + b for a, b in zip(chunks[target][chunk], data, strict=True)]
            chunks[target][chunk] = data
            ready[target][chunk] = time
    return chunks, max(max(row) for row in ready)


@given(st.integers(2, 9), link_strategy)
def test_ring_against_a_step_by_step_simulation(ranks, link):
    elements = 3 * ranks
    vectors = [[rank * 100 + i for i in range(elements)] for rank in range(ranks)]
    chunks, seconds = simulate_ring(vectors, [link] * ranks, 8)
    sums = [sum(vector[i] for vector in vectors) for i in range(elements)]
    for rank in range(ranks):
        assert chunks[rank] == [sums[c::ranks] for c in range(ranks)]
    assert ring_all_reduce(ranks, 8 * elements, link) == pytest.approx(seconds, rel=1e-12)


@given(st.integers(3, 9), st.floats(1.5, 50))
def test_ring_with_one_slow_link_goes_at_its_pace(ranks, factor):
    slow = Link(bandwidth=LINK.bandwidth / factor, latency=LINK.latency * factor)
    links = [LINK] * (ranks - 1) + [slow]
    _, seconds = simulate_ring([[1] * ranks for _ in range(ranks)], links, 8)
    formula = ring_all_reduce(ranks, 8 * ranks, links)
    assert formula == ring_all_reduce(ranks, 8 * ranks, slow)
    assert formula == pytest.approx(seconds, rel=1e-12)


@given(st.integers(2, 64))
def test_binomial_tree_against_counting_who_knows(ranks):
    knowing, steps = 1, 0
    while knowing < ranks:
        knowing, steps = min(ranks, 2 * knowing), steps + 1
    assert tree_broadcast(ranks, 5.0, Link.constant(1.0)) == steps


@given(ranks_strategy, st.floats(0, 1e9), st.floats(0, 10))
def test_constant_twin_counts_steps(ranks, size, seconds):
    link = Link.constant(seconds)
    doublings = math.floor(math.log2(ranks))
    power = ranks == 2**doublings
    steps = {
        ring_all_reduce: 2 * (ranks - 1),
        ring_all_gather: ranks - 1,
        ring_reduce_scatter: ranks - 1,
        tree_broadcast: math.ceil(math.log2(ranks)),
        tree_all_reduce: 2 * math.ceil(math.log2(ranks)),
        halving_doubling_all_reduce: 2 * (doublings + (not power)),
    }
    for function in ALL:
        assert function(ranks, size, link) == pytest.approx(steps[function] * seconds)


@given(st.floats(0, 1e9), link_strategy)
def test_one_rank_has_nobody_to_talk_to(size, link):
    assert [function(1, size, link) for function in ALL] == [0.0] * len(ALL)


def test_ring_wins_on_large_vectors_and_halving_doubling_on_small_ones():
    assert ring_all_reduce(64, 1e9, LINK) < tree_all_reduce(64, 1e9, LINK)
    assert halving_doubling_all_reduce(64, 8, LINK) < ring_all_reduce(64, 8, LINK)


@pytest.mark.parametrize("function", ALL)
def test_impossible_collectives_are_refused(function):
    with pytest.raises(InputError, match="at least 1 rank"):
        function(0, 1.0, LINK)
    with pytest.raises(InputError, match="size"):
        function(2, -1.0, LINK)


@pytest.mark.parametrize("workers", [[0, 1.9], [True, False, True], [1, 1], [0, 4], [-1, 0], []])
def test_workers_are_different_ones_of_the_cluster(workers):
    with pytest.raises(InputError, match="workers of a collective are"):
        collective_time(switch(4, link=LINK), workers, "all_reduce", 100)


@pytest.mark.parametrize("size", [math.nan, math.inf, -1, "1MB", None])
def test_a_size_is_finite(size):
    with pytest.raises(InputError, match="finite and 0 or more bytes"):
        collective_time(switch(4, link=LINK), [0, 1], "all_reduce", size)


def test_a_collective_is_named_by_a_text():
    with pytest.raises(InputError, match="collective: give a name, not a value of type list"):
        collective_time(switch(4, link=LINK), [0, 1], ["all_reduce"], 100)
