"""Rates of transfers by hand, and the paper's rules against max-min fairness."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps_reference import (
    Flow,
    Ports,
    equal_rates,
    max_min,
    two_server_rates,
)

from paracosm.errors import InputError

PAIRS = st.tuples(st.integers(0, 5), st.integers(0, 1))


@given(st.sets(PAIRS), st.sampled_from([1.0, 3.0, 7.5]))
def test_the_rule_of_section_5_is_max_min_fair_on_equal_ports(
    flows: set[Flow], bandwidth: float
) -> None:
    ports = Ports((bandwidth,) * 2, (bandwidth,) * 6)
    assert two_server_rates(alike(flows), ports) == pytest.approx(max_min(alike(flows), ports))


@given(st.sets(st.integers(0, 5)), st.integers(0, 3), st.sampled_from([1.0, 3.0, 7.5]))
def test_the_rule_of_one_server_is_max_min_fair_if_workers_are_no_limit(
    workers: set[int], background: int, bandwidth: float
) -> None:
    flows = alike({(w, 0) for w in workers})
    for wide in (bandwidth, inf):
        ports = Ports((bandwidth,), (wide,) * 6, background)
        assert equal_rates(flows, ports) == max_min(flows, ports)


def test_shares_of_two_servers() -> None:
    """Worker 0 is alone with server 0 and one of three with server 1."""
    ports = Ports((12.0, 12.0), (12.0,) * 3)
    flows = alike({(0, 0), (0, 1), (1, 1), (2, 1)})
    assert two_server_rates(flows, ports) == {
        (0, 0): pytest.approx(8),
        **{(w, 1): 4 for w in range(3)},
    }
    assert two_server_rates(alike({(0, 0), (0, 1)}), ports) == {(0, 0): 6, (0, 1): 6}
    assert two_server_rates(alike({(0, 0), (1, 1)}), ports) == {(0, 0): 12, (1, 1): 12}


def test_three_servers_and_ports_of_many_widths() -> None:
    """Servers 12, 6 and 8; workers 9 and 20. Worker 0's port is the narrowest: 3 to each of its.

    Then server 1 has 3 left for worker 1, server 2 has 5 and server 0 has 9: 17 of worker 1's 20.
    """
    flows = alike({(w, server) for w in range(2) for server in range(3)})
    assert max_min(flows, Ports((12.0, 6.0, 8.0), (9.0, 20.0))) == {
        **{(0, server): 3 for server in range(3)},
        (1, 0): 9,
        (1, 1): 3,
        (1, 2): 5,
    }


def test_background_flows_count_at_their_server() -> None:
    """Two flows beside: a third of 12 each; worker 1's port has 1 only, and the others 11/3."""
    ports = Ports((12.0,), (12.0, 1.0), background=2)
    assert max_min(alike({(0, 0)}), ports) == {(0, 0): 4}
    assert max_min(alike({(0, 0), (1, 0)}), ports) == {(0, 0): pytest.approx(11 / 3), (1, 0): 1}


def test_ports_without_limit() -> None:
    ports = Ports((inf, 4.0), (inf, inf))
    flows = alike({(0, 0), (0, 1), (1, 1)})
    assert max_min(flows, ports) == {(0, 0): inf, (0, 1): 2, (1, 1): 2}
    assert max_min({}, ports) == {}


def test_weights() -> None:
    """Server 12, weights 1, 2 and 3: 2, 4 and 6; where worker 2 has 3 only, 9 are left: 3 and 6.

    With two flows beside, of weight 1: 12 / 8 for each unit.
    """
    flows = {(0, 0): 1.0, (1, 0): 2.0, (2, 0): 3.0}
    assert max_min(flows, Ports((12.0,), (12.0,) * 3)) == {(0, 0): 2, (1, 0): 4, (2, 0): 6}
    narrow = Ports((12.0,), (12.0, 12.0, 3.0))
    assert max_min(flows, narrow) == {(0, 0): 3, (1, 0): 6, (2, 0): 3}
    beside = Ports((12.0,), (12.0,) * 3, background=2)
    assert max_min(flows, beside) == {(0, 0): 1.5, (1, 0): 3, (2, 0): 4.5}


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 3), st.integers(0, 2)), st.sampled_from([0.5, 1.0, 3.0])
    ),
    st.lists(st.integers(1, 9), min_size=7, max_size=7),
    st.integers(0, 2),
)
def test_every_flow_has_a_bottleneck(
    flows: dict[Flow, float], bandwidth: list[int], background: int
) -> None:
    """Rates are max-min fair if and only if each flow has a full port where none is faster.

    Bertsekas and Gallager, "Data Networks", 1992, section 6.5.2; faster for its weight.
    """
    ports = Ports(tuple(map(float, bandwidth[:3])), tuple(map(float, bandwidth[3:])), background)
    rates = max_min(flows, ports)
    level = {flow: rates[flow] / flows[flow] for flow in flows}
    for worker, server in flows:
        own = [flow for flow in flows if flow[0] == worker]
        theirs = [flow for flow in flows if flow[1] == server]
        fastest_own = max(level[flow] for flow in own)
        fastest = max(level[flow] for flow in theirs)
        # Nothing else limits those beside: where the port is full, they are as fast as any.
        beside = background * fastest
        bottleneck = (
            sum(rates[flow] for flow in own) == pytest.approx(ports.workers[worker])
            and level[worker, server] == pytest.approx(fastest_own)
        ) or (
            sum(rates[flow] for flow in theirs) + beside == pytest.approx(ports.servers[server])
            and level[worker, server] == pytest.approx(fastest)
        )
        assert bottleneck
    for server in range(3):
        assert sum(rates[flow] for flow in flows if flow[1] == server) <= bandwidth[server] + 1e-9


def test_rules_refuse_what_they_do_not_know() -> None:
    with pytest.raises(InputError, match="one server's port"):
        equal_rates(alike({(0, 0)}), Ports((1.0, 1.0), (1.0,)))
    for ports in (
        Ports((1.0,), (1.0,)),
        Ports((1.0, 2.0), (1.0,)),
        Ports((1.0, 1.0), (1.0,), background=1),
    ):
        with pytest.raises(InputError, match="section 5 is for two servers"):
            two_server_rates(alike({(0, 0)}), ports)


def alike(flows: set[Flow]) -> dict[Flow, float]:
    """Return the flows, all of weight 1."""
    return dict.fromkeys(sorted(flows), 1.0)
