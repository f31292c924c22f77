from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cluster import Link, Packets
from paracosm.errors import InputError

numbers = st.floats(0, 1e9)


def test_latency_that_is_not_pipelined_holds_the_ports():
    link = Link(bandwidth=1000.0, latency=0.5, overhead=0.25, pipelined=False)
    assert link.occupancy(2000) == 2.75
    assert link.propagation(2000) == 0.0
    assert link.transfer_time(2000) == 2.75


def test_pipelined_latency_comes_after_the_ports_are_free():
    link = Link(bandwidth=1000.0, latency=0.5, overhead=0.25)
    assert link.occupancy(2000) == 2.25
    assert link.propagation(2000) == 0.5
    assert link.transfer_time(2000) == 2.75


def test_default_link_costs_nothing():
    assert Link().transfer_time(1e12) == 0.0


def test_a_link_is_a_real_network_s_by_default():
    assert (Link().duplex, Link().pipelined, Link().sharing) == ("full", True, "fair")


@given(numbers, numbers)
def test_constant_twin_costs_the_same_whatever_the_size(seconds, size):
    assert Link.constant(seconds).transfer_time(size) == seconds


@given(numbers, numbers, st.floats(1e-3, 1e12), numbers, st.booleans())
def test_transfer_time_is_occupancy_and_propagation(size, latency, bandwidth, overhead, pipelined):
    link = Link(bandwidth, latency, overhead, pipelined=pipelined)
    parts = link.occupancy(size) + link.propagation(size)
    assert link.transfer_time(size) == pytest.approx(parts, rel=1e-15)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"bandwidth": 0}, "bandwidth must be above 0, not 0"),
        ({"bandwidth": nan}, "bandwidth"),
        ({"latency": -1e-3}, "latency must be finite and 0 or more, not -0.001"),
        ({"latency": inf}, "latency"),
        ({"overhead": -1}, "overhead"),
        ({"duplex": "simplex"}, 'full or half, not "simplex"'),
        ({"sharing": "fifo"}, 'packets\\(SIZE\\), not "fifo"'),
    ],
)
def test_impossible_links_are_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        Link(**arguments)


def test_numbers_of_small_types_neither_overflow_nor_round():
    link = Link(latency=np.int8(100), overhead=np.int8(100), bandwidth=np.float16(1e4))
    assert link.transfer_time(1e9) == 100_200.0
    assert str(Packets(np.float32(16384))) == "packets(16KiB)"


@pytest.mark.parametrize("value", [True, "1ms", None, 1j, [1.0]])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(InputError, match="latency must be finite"):
        Link(latency=value)
    with pytest.raises(InputError, match="a quantum is finite"):
        Packets(value if value is not True else None)


def test_a_text_is_no_truth_value():
    with pytest.raises(InputError, match="pipelined must be True or False, not 'no'"):
        Link(pipelined="no")
