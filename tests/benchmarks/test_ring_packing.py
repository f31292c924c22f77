"""Rings on the links of a machine, counted by hand and by measured bandwidths."""

from __future__ import annotations

from itertools import combinations

import pytest
from ring_packing import rings_within

# NVLinks of each GPU of a DGX-1V to those before it, as `nvidia-smi topo -m` prints them.
CUBE_MESH = {
    (low, high): int(count)
    for high, line in enumerate(["", "1", "12", "212", "2000", "02001", "001012", "0001212"])
    for low, count in enumerate(line)
}


def test_a_pair_has_a_ring_for_each_link() -> None:
    assert rings_within({(0, 1): 3}, 2) == 3
    assert rings_within({}, 2) == 0


def test_a_triangle_has_one_each_way() -> None:
    triangle = {(0, 1): 1, (1, 2): 1, (2, 0): 1}
    assert rings_within(triangle, 3) == 2
    assert rings_within(dict.fromkeys(triangle, 2), 3) == 4
    assert rings_within(triangle | {(0, 1): 5}, 3) == 2  # the other two sides are used up
    assert rings_within({(0, 1): 1, (1, 2): 1}, 3) == 0


@pytest.mark.parametrize("ranks", [4, 5, 6, 7])
def test_a_complete_graph_is_packed_as_walecki_did(ranks: int) -> None:
    """Walecki, 1892: the complete graph of n has (n - 1) / 2 disjoint cycles, rounded down."""
    links = dict.fromkeys(combinations(range(ranks), 2), 1)
    assert rings_within(links, ranks) == 2 * ((ranks - 1) // 2)


def test_a_cube_mesh_has_as_many_as_nccl_measured() -> None:
    """Bus bandwidths of vTrain's sweeps of V100, in units of the 22.6 GB/s of one NVLink: 1.0, 2.0,
    3.8, 2.0, 3.9 and 6.0; 1.6 of five GPUs, which no ring of NVLinks joins."""
    found = [rings_within(CUBE_MESH, ranks) for ranks in range(2, 9)]
    assert found == [1, 2, 4, 0, 2, 4, 6]
