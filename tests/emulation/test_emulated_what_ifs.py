"""What-ifs of an emulated job: what they say, what they change, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from paracosm.emulation.communication import communication_of
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.cost import Cost
from paracosm.emulation.peers import peers_of
from paracosm.errors import InputError

LINKS: dict[str, Any] = {"world_size": 8, "bandwidth": "8Mbit/s", "latency": "1ms"}


def whole(cost: Cost) -> float:
    return cost.fixed + cost.busy + cost.after


def both_of(config: EmulateConfig) -> None:
    communication_of(config)
    peers_of(config, config.rank[0], 0)


def job(**given: Any) -> EmulateConfig:
    return EmulateConfig(script="train.py", **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**LINKS, "what_if": "link 0-8: latency +1 ms"}, 'unknown worker or server "worker8"'),
        ({**LINKS, "what_if": "worker 8: compute 2x slower"}, "there are workers 0 to 7, not 8"),
        (
            {**LINKS, "what_if": "workers 4..9: compute 2x slower"},
            "there are workers 0 to 7, not 9",
        ),
        ({**LINKS, "live": True, "what_if": "compute: 2x slower"}, "rank 0 is real"),
        ({**LINKS, "what_if": "worker 0: compute none"}, "none is for all of them"),
        ({**LINKS, "rank": 3, "what_if": "workers 1..4: +1ms"}, "rank 3 is real"),
        (
            {"world_size": 8, "what_if": "link 0-1: bandwidth 4x slower"},
            "has no effect: there are no links",
        ),
        (
            {"world_size": 8, "what_if": "all_reduce: 2x slower"},
            "has no effect: there are no links",
        ),
        (
            {"world_size": 8, "what_if": "all_gather: algorithm ring"},
            "has no effect: there are no links",
        ),
        (
            {**LINKS, "communication": "none", "what_if": "links: latency 2x"},
            "has no effect: communication is none",
        ),
        (
            {**LINKS, "mode": "wire", "what_if": "all_reduce: 2x slower"},
            "in mode wire gloo itself sends",
        ),
        (
            {**LINKS, "mode": "wire", "what_if": "all_gather: algorithm ring"},
            "in mode wire gloo itself decides",
        ),
        (
            {**LINKS, "what_if": ("all_reduce: algorithm ring", "all_reduce: algorithm tree")},
            'there is one already, "all_reduce: algorithm ring"',
        ),
        (
            {**LINKS, "what_if": "all_reduce: algorithm hierarchical"},
            "needs machines of several workers",
        ),
        (
            {"world_size": 8, "latency": "1ms", "what_if": "links: bandwidth 4x slower"},
            "bandwidth is unlimited",
        ),
        (
            {"world_size": 8, "bandwidth": "1GB/s", "what_if": "link 0-1: latency 2x"},
            "there is no latency",
        ),
        (
            {
                "cluster": {"topology": "ring", "workers": 8},
                "what_if": "link 0-3: latency +1 ms",
            },
            'no link joins "worker0" and "worker3" in the ring',
        ),
    ],
)
def test_what_does_not_fit_the_job(given: dict[str, Any], message: str) -> None:
    config = job(**given)
    text = config.what_if[-1]
    with pytest.raises(InputError, match=message) as caught:
        both_of(config)
    assert str(caught.value).startswith(f'what_if "{text}"')
    assert "\n" not in str(caught.value)


def test_stragglers_are_checked_with_the_peers() -> None:
    with pytest.raises(InputError, match="rank 0 is real"):
        peers_of(job(world_size=8, live=True, what_if="worker 0: compute 2x slower"), 0, 0)


def cost(config: EmulateConfig, *members: int, kind: str = "all_reduce") -> tuple[float, float]:
    found = communication_of(config).cost(kind, members, 1_000_000, members[0], members[-1])
    return pytest.approx(found.fixed), pytest.approx(found.busy)


def test_changes_of_one_link_build_on_each_other() -> None:
    """1 MB at 1 MB/s and 1 ms, between two: two steps of half the bytes."""
    changes = ("link 0-3: bandwidth 4x slower", "link 3-0: latency +1 ms", "link 0-3: latency 3x")
    config = job(**LINKS, algorithm="ring", what_if=changes)
    assert cost(config, 0, 3) == (2 * 6e-3, 2 * 4 * 0.5)
    assert cost(config, 0, 1) == (2 * 1e-3, 2 * 0.5)
    assert whole(communication_of(config).message(3, 0, 10**6, 3)) == pytest.approx(6e-3 + 4)
    everybody = communication_of(config).cost("all_reduce", tuple(range(8)), 8 * 10**6, 0, -1)
    assert everybody.busy == pytest.approx(14 * 1.0)  # 0 and 3 are no neighbours in the ring


def test_changes_of_all_links_reach_those_of_pairs_and_between_machines() -> None:
    cluster = {
        "topology": "hierarchical",
        "workers": 8,
        "group_size": 4,
        "cards": 4,
        "links": {
            "default": {"bandwidth": "1MB/s", "latency": "1ms"},
            "between_groups": {"bandwidth": "100kB/s", "latency": "10ms"},
            "overrides": [{"between": ["worker1", "worker0"], "bandwidth": "500kB/s"}],
        },
    }
    what_if = ("links: bandwidth 2x", "links: latency +1 ms", "link 0-1: latency +1 ms")
    communication = communication_of(job(cluster=cluster, what_if=what_if))
    assert whole(communication.message(0, 2, 10**6, 0)) == pytest.approx(2e-3 + 0.5)
    assert whole(communication.message(0, 4, 10**6, 0)) == pytest.approx(11e-3 + 5)
    assert whole(communication.message(0, 1, 10**6, 0)) == pytest.approx(3e-3 + 1)


def test_another_algorithm_is_that_of_one_kind() -> None:
    config = job(**LINKS, what_if="all_reduce: algorithm tree", algorithm="ring")
    assert cost(config, *range(4)) == (4e-3, 4.0)
    assert cost(config, *range(4), kind="reduce_scatter") == (3e-3, 0.75)
    cheapest = job(**LINKS, what_if="all_reduce: algorithm auto", algorithm="tree")
    assert cost(cheapest, *range(4)) == (4e-3, 1.5)


def test_delays_and_factors_of_a_kind_add_up() -> None:
    what_if = (
        "all_reduce: +1 ms",
        "collectives: +2 ms",
        "all_reduce: 2x slower",
        "collectives: 4x faster",
    )
    communication = communication_of(job(**LINKS, algorithm="ring", what_if=what_if))
    assert communication.added("all_reduce") == pytest.approx(0.003)
    assert communication.added("send") == 0.002
    assert cost(job(**LINKS, algorithm="ring", what_if=what_if), 0, 1) == (0.001 + 0.003, 0.5)


def test_another_world_takes_the_place_of_the_size() -> None:
    config = job(**LINKS, what_if=("workers: 4", "all_reduce: +2 ms"))
    assert config.world == 4
    assert communication_of(config).cost("barrier", tuple(range(4)), 0, 0, -1).fixed == 2e-3
    assert config.world_size == 8


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {**LINKS, "what_if": ("workers: 4", "workers: 16")},
            'what_if "workers: 16": the number of workers is changed twice',
        ),
        ({**LINKS, "rank": 5, "what_if": "workers: 4"}, "a world of 4 has ranks 0 to 3, not 5"),
        (
            {"cluster": {"topology": "switch", "workers": 8}, "what_if": "workers: 16"},
            "16 workers of a cluster that has 8",
        ),
        (
            {**LINKS, "what_if": ("workers: 4", "worker 5: compute 2x slower")},
            "there are workers 0 to 3, not 5",
        ),
    ],
)
def test_another_world_has_to_fit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        both_of(job(**given))
    assert str(caught.value).startswith("what_if")
