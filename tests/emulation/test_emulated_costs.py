"""Costs of collectives in an emulated job: by hand, and against the cluster's own times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.cluster.collectives import COLLECTIVES as WITH_ALGORITHMS
from paracosm.cluster.collectives import collective_time, message_link, ring_all_reduce
from paracosm.emulation.communication import communication_of
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.cost import FREE, Cost
from paracosm.emulation.records import COLLECTIVES
from paracosm.errors import InputError

# 4 ranks, 8 Mbit/s = 1 MB/s, 1 ms.
LINKS: dict[str, Any] = {"world_size": 4, "bandwidth": "8Mbit/s", "latency": "1ms"}
MACHINES = {
    "topology": "hierarchical",
    "workers": 16,
    "group_size": 4,
    "cards": 4,
    "links": {
        "default": {"bandwidth": "10MB/s", "latency": "10us"},
        "between_groups": {"bandwidth": "1MB/s", "latency": "1ms"},
    },
}
EVERYONE = (0, 1, 2, 3)


def job(**given: Any) -> EmulateConfig:
    return EmulateConfig(script="train.py", **given)


def approx(
    fixed: float, busy: float, link: str, after: float = 0.0, bandwidth: float | None = 1e6
) -> Cost:
    times = pytest.approx(fixed), pytest.approx(busy)
    return Cost(*times, link, pytest.approx(after), bandwidth=bandwidth)


def whole(cost: Cost) -> float:
    return cost.fixed + cost.busy + cost.after


@pytest.mark.parametrize(
    ("kind", "peer", "fixed", "busy"),
    [
        ("all_reduce", -1, 4e-3, 2 * (2.0 + 1.0)),  # halving and doubling
        ("all_gather", -1, 3e-3, 3 * 1.0),
        ("reduce_scatter", -1, 3e-3, 3 * 1.0),
        ("all_to_all", -1, 1e-3, 3 * 1.0),  # latencies overlap
        ("broadcast", 0, 2e-3, 2 * 4.0),
        ("barrier", -1, 2e-3, 0.0),
        ("gather", 2, 1e-3, 3 * 1.0),  # latencies of the pipelined link overlap
        ("scatter", 2, 1e-3, 3 * 1.0),
        ("reduce", 1, 4e-3, 6 * 1.0),  # ring reduce-scatter, linear gather
        ("send", 3, 1e-3, 4.0),
        ("recv", 3, 1e-3, 4.0),
        ("recv", -1, 1e-3, 4.0),  # from anybody
    ],
)
def test_four_ranks_by_hand(kind: str, peer: int, fixed: float, busy: float) -> None:
    """4 MB at 1 MB/s, the cheapest algorithm."""
    cost = communication_of(job(**LINKS)).cost(kind, EVERYONE, 4_000_000, 0, peer)
    if kind in ("send", "recv"):  # whose latency follows on the bytes
        link = {"send": "nic out", "recv": "nic in"}[kind]
        assert cost == approx(0.0, busy, link, after=fixed)
    else:
        assert cost == approx(fixed, busy, "nic")


def test_with_half_duplex_a_message_holds_both_directions() -> None:
    link = {"bandwidth": "1MB/s", "duplex": "half"}
    cluster = {"topology": "switch", "workers": 4, "links": {"default": link}}
    communication = communication_of(job(cluster=cluster))
    assert communication.cost("send", EVERYONE, 1_000_000, 0, 3) == approx(0.0, 1.0, "nic")


def test_the_cheapest_algorithm_of_a_size_is_split_and_not_the_cheapest_of_nothing() -> None:
    """For nothing halving and doubling takes 4 latencies, and the ring 6."""
    communication = communication_of(job(**LINKS, algorithm="auto"))
    small = communication.cost("all_reduce", EVERYONE, 4, 0, -1)
    assert small == approx(4e-3, 6e-6, "nic")
    ring = communication_of(job(**LINKS, algorithm="ring")).cost("all_reduce", EVERYONE, 4, 0, -1)
    assert ring == approx(6e-3, 6e-6, "nic")


def test_links_of_machines_have_names() -> None:
    communication = communication_of(job(cluster=MACHINES, algorithm="ring"))
    inner = communication.cost("all_reduce", (4, 5, 6, 7), 4_000_000, 4, -1)
    assert inner == approx(6e-5, 6 * 0.1, "inner", bandwidth=1e7)
    outer = communication.cost("all_reduce", (0, 4, 8, 12), 4_000_000, 4, -1)
    assert outer == approx(6e-3, 6 * 1.0, "outer")
    world = tuple(range(16))
    assert communication.cost("send", world, 10, 0, 3).link == "inner out"
    assert communication.cost("recv", world, 10, 0, 4).link == "outer in"
    assert communication.cost("broadcast", world, 10, 0, 0).link == "outer"


def test_the_root_counts() -> None:
    """Of 0, 1, 2 and 4, rank 4 is alone on its machine: it gathers over the slow link alone."""
    communication = communication_of(job(cluster=MACHINES, algorithm="linear"))
    group = (0, 1, 2, 4)
    near = communication.cost("gather", group, 4_000_000, 0, 0)
    far = communication.cost("gather", group, 4_000_000, 0, 4)
    assert near == approx(1e-3, 1.0 + 2 * 0.1, "outer")
    assert far == approx(1e-3, 3 * 1.0, "outer")


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(WITH_ALGORITHMS),
    group=st.lists(st.integers(0, 15), min_size=2, unique=True),
    size=st.integers(0, 10**9),
    cluster=st.sampled_from([MACHINES, {**MACHINES, "topology": "switch"}]),
)
def test_the_whole_is_the_time_of_the_cluster(
    kind: str, group: list[int], size: int, cluster: dict[str, Any]
) -> None:
    if cluster["topology"] == "switch":
        cluster = {"topology": "switch", "workers": 16, "links": {"default": {"latency": "1us"}}}
    config = job(cluster=cluster)
    found = communication_of(config).cost(kind, group, size, group[0], group[0])
    resolved = config.resolve_cluster()
    assert resolved is not None
    assert found.fixed + found.busy + found.after == pytest.approx(
        collective_time(resolved, group, kind, size)
    )
    assert found.fixed >= 0
    assert found.busy >= 0


@given(
    kind=st.sampled_from(COLLECTIVES),
    sizes=st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)),
    algorithm=st.sampled_from(["auto", "ring", "tree", "hierarchical", "halving-doubling"]),
)
def test_more_bytes_never_take_less(kind: str, sizes: tuple[int, int], algorithm: str) -> None:
    communication = communication_of(job(cluster=MACHINES, algorithm=algorithm))
    world = tuple(range(16))
    less, more = (communication.cost(kind, world, size, 0, 1) for size in sorted(sizes))
    assert whole(less) <= whole(more)


@given(
    kind=st.sampled_from(COLLECTIVES),
    size=st.integers(0, 10**9),
    delay=st.integers(0, 10**9),
    factor=st.sampled_from([1.0, 2.0, 0.25]),
)
def test_delays_add_exactly_to_what_factors_multiply(
    kind: str, size: int, delay: int, factor: float
) -> None:
    plain = communication_of(job(**LINKS)).cost(kind, EVERYONE, size, 0, 1)
    added = float(f"{delay}e-9")
    what_if = [f"{kind}: +{delay} ns"] if delay else []
    what_if += [f"{kind}: {factor}x slower"] if factor != 1 else []
    changed = communication_of(job(**LINKS, what_if=what_if))
    assert changed.added(kind) == added
    assert changed.cost(kind, EVERYONE, size, 0, 1) == replace(
        plain,
        fixed=plain.fixed * factor + added,
        busy=plain.busy * factor,
        after=plain.after * factor,
    )


@pytest.mark.parametrize("kind", COLLECTIVES)
def test_a_group_of_one_costs_nothing(kind: str) -> None:
    communication = communication_of(job(**LINKS, what_if="collectives: +1 ms"))
    assert communication.cost(kind, (2,), 1000, 2, -1) == FREE


def test_a_hop_is_a_message_on_the_link_of_two_ranks() -> None:
    config = job(cluster=MACHINES)
    communication = communication_of(config)
    resolved = config.resolve_cluster()
    assert resolved is not None
    assert whole(communication.message(0, 3, 1000, 0)) == pytest.approx(10e-6 + 100e-6)
    link = message_link(resolved, 3, 4)
    assert whole(communication.message(3, 4, 1000, 3)) == link.transfer_time(1000)


def test_models_without_links() -> None:
    backend = communication_of(job(world_size=8))
    assert backend.cost("all_reduce", EVERYONE, 10, 0, -1) == FREE
    assert not backend.is_measured
    wire = communication_of(job(world_size=8, mode="wire", what_if="all_reduce: +2 ms"))
    assert wire.is_measured
    assert whole(wire.message(1, 2, 10**6, 1)) == 0
    assert wire.added("all_reduce") == 0.002
    assert not communication_of(job(world_size=8, mode="wire", communication="none")).is_measured
    linked = communication_of(job(**LINKS, mode="wire"))
    assert not linked.is_measured
    assert whole(linked.message(1, 2, 10**6, 1)) == pytest.approx(1.001)


def test_an_algorithm_is_that_of_the_kinds_that_have_it() -> None:
    tree = communication_of(job(**LINKS, algorithm="tree"))
    assert tree.cost("all_reduce", EVERYONE, 10**6, 0, -1) == approx(4e-3, 4.0, "nic")
    assert tree.cost("gather", EVERYONE, 4 * 10**6, 0, 0) == approx(2e-3, 3.0, "nic")
    assert tree.cost("all_gather", EVERYONE, 4 * 10**6, 0, -1) == approx(3e-3, 3.0, "nic")


def test_a_large_world_asked_thousands_of_times() -> None:
    """All that is looked up is remembered: the answers are the same objects."""
    cluster = {**MACHINES, "workers": 1024}
    communication = communication_of(job(cluster=cluster))
    groups = [tuple(range(start, 1024, 64)) for start in range(64)] + [tuple(range(1024))]
    first = [communication.cost("all_reduce", group, 10**6, group[0], -1) for group in groups]
    for _ in range(50):
        for group, cost in zip(groups, first, strict=True):
            assert communication.cost("all_reduce", group, 10**6, group[0], -1) is cost
    again = communication.cost("all_reduce", list(range(1024)), 10**6, 0, -1)
    assert again is first[-1]
    links = (1e-5, 1e7), (1e-3, 1e6)
    steps = [2 * 3 * (links[0][0] + 250_000 / links[0][1])]
    steps.append(2 * 255 * (links[1][0] + 250_000 / 256 / links[1][1]))
    assert first[-1].fixed + first[-1].busy <= sum(steps) + 1e-12


def test_one_ring_all_reduce_against_the_closed_form() -> None:
    config = job(**LINKS, algorithm="ring")
    resolved = config.resolve_cluster()
    assert resolved is not None
    cost = communication_of(config).cost("all_reduce", EVERYONE, 12345, 0, -1)
    link = resolved.topology.link
    assert cost.fixed + cost.busy == pytest.approx(ring_all_reduce(4, 12345, link), rel=1e-15)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"world_size": 4, "communication": "cluster"}, "cluster needs links: --cluster FILE"),
        ({"world_size": 4, "communication": "measured"}, "which mode backend lacks"),
        ({"world_size": 4, "communication": "clusters"}, 'did you mean "cluster"'),
        ({"world_size": 4, "algorithm": "ring"}, "algorithm has no effect: there are no links"),
        (
            {**LINKS, "communication": "none", "algorithm": "ring"},
            "algorithm has no effect: communication is none",
        ),
        ({**LINKS, "algorithm": "rings"}, 'unknown algorithm "rings": did you mean "ring"'),
        ({**LINKS, "algorithm": "hierarchical"}, "needs machines of several workers"),
        (
            {"cluster": {"topology": "star", "workers": 4, "servers": 1}},
            "cluster: servers: an emulated job has ranks only",
        ),
        (
            {"cluster": {"topology": "ring", "workers": 6}, "algorithm": "tree"},
            "no link joins .* in the ring",
        ),
    ],
)
def test_refusals(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        communication_of(job(**given))
    assert "\n" not in str(caught.value)


def test_ranks_that_nothing_joins_are_named_when_they_communicate() -> None:
    communication = communication_of(job(cluster={"topology": "ring", "workers": 6}))
    assert communication.cost("all_reduce", tuple(range(6)), 10, 0, -1).busy == 0
    with pytest.raises(InputError, match='no link joins "worker0" and "worker3" in the ring'):
        communication.cost("send", tuple(range(6)), 10, 0, 3)


@pytest.mark.parametrize("kind", ["all_reduce", "send"])
def test_what_takes_forever_is_refused(kind: str) -> None:
    communication = communication_of(EmulateConfig(world_size=3, bandwidth=1e-320))
    assert communication is not None
    with pytest.raises(InputError, match="takes forever: check bandwidth and latency"):
        communication.cost(kind, (0, 1, 2), 1000, 0, -1)
