from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_profiles import Bandwidth, read_network

from paracosm.errors import InputError

SAILOR = Path(__file__).parents[2] / "data" / "sailor"
GH200 = Bandwidth((-0.16570216, 2.79431173, 11.74409677))


def test_a_polynomial_in_the_logarithm_of_megabytes() -> None:
    assert GH200.time(1e6) == pytest.approx(1e-3 / 11.74409677)
    # 4 MB: x = 2
    bandwidth = -0.16570216 * 4 + 2.79431173 * 2 + 11.74409677
    assert GH200.time(4e6) == pytest.approx(4e-3 / bandwidth)
    assert GH200.time(0) == 0.0


def test_beyond_its_top_the_largest_bandwidth_holds() -> None:
    top = 2.79431173 / (2 * 0.16570216)
    largest = 11.74409677 + 2.79431173**2 / (4 * 0.16570216)
    assert GH200.time(2**top * 1e6) == pytest.approx(2**top * 1e-3 / largest)
    assert GH200.time(1e12) == pytest.approx(1e3 / largest)


@given(st.floats(1, 1e12), st.floats(1, 1e4))
def test_no_smaller_message_takes_longer(size: float, factor: float) -> None:
    assert 0 < GH200.time(size) <= GH200.time(size * factor) * (1 + 1e-9)


def test_ring_all_reduce_is_two_rounds_of_shares() -> None:
    constant = Bandwidth((2.0,))  # 2 GB/s
    assert constant.all_reduce(4, 8e9) == pytest.approx(2 * 3 * 1.0)
    assert constant.all_reduce(1, 8e9) == 0.0


@given(st.floats(1e6, 1e8))
def test_link_touches_the_curve(size: float) -> None:
    link = GH200.link_near(size)
    assert link.transfer_time(size) == pytest.approx(GH200.time(size), rel=1e-6)
    for near in (0.99 * size, 1.01 * size):
        assert link.transfer_time(near) == pytest.approx(GH200.time(near), rel=1e-4)


def test_link_where_the_size_does_not_matter() -> None:
    link = GH200.link_near(10.0)
    assert link.latency == GH200.time(10.0)
    assert math.isinf(link.bandwidth)
    with pytest.raises(InputError, match="above 0"):
        GH200.link_near(0)


def test_entries_of_a_file() -> None:
    network = read_network(SAILOR / "providers" / "multizone_bandwidths_het.json")
    here = ("us-central1-a", "GH-96")
    assert network.between(here, here) == GH200
    assert network.between(here, here, 4).time(64e6) < GH200.time(64e6)
    with pytest.raises(InputError, match='unknown GPU "GH-69": did you mean "GH-96"'):
        network.between(here, ("us-central1-a", "GH-69"))
    with pytest.raises(InputError, match='unknown zone "moon"'):
        network.between(("moon", "GH-96"), here)
    with pytest.raises(InputError, match='unknown number of GPUs "2"'):
        network.between(here, here, 2)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ([["fast"], 1], "holds no list of coefficients"),
        ({}, "holds no list of coefficients"),
        ([[], 1], "not above 0"),
        ([[0.1, -3.0], 1], "not above 0"),
    ],
)
def test_damaged_entries(tmp_path: Path, entry: object, said: str) -> None:
    path = tmp_path / "network.json"
    path.write_text(json.dumps({"z": {"G": {"1": {"z": {"G": {"1": entry}}}}}}))
    with pytest.raises(InputError, match=said):
        read_network(path).between(("z", "G"), ("z", "G"))
