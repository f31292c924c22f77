"""What-ifs of an emulated job: what they say, what they change, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.emulation.communication import communication_of
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.peers import peers_of
from paracosm.emulation.records import COLLECTIVES
from paracosm.emulation.what_if import (
    AddedDelay,
    AnotherAlgorithm,
    AnotherWorld,
    LinkChange,
    Straggler,
    TimesAsLong,
    WhatIf,
    parse_what_if,
    what_ifs_of,
    with_world,
)
from paracosm.errors import InputError
from paracosm.timing import Constant, Lognormal

LINKS: dict[str, Any] = {"world_size": 8, "bandwidth": "8Mbit/s", "latency": "1ms"}


def job(**given: Any) -> EmulateConfig:
    return EmulateConfig(script="train.py", **given)


@pytest.mark.parametrize(
    "expected",
    [
        AddedDelay("all_reduce +2ms", ("all_reduce",), 0.002),
        AddedDelay("all_reduce +5e-05s", ("all_reduce",), 5e-5),
        AddedDelay("barrier +0s", ("barrier",), 0.0),
        AddedDelay("collectives +1ms", COLLECTIVES, 0.001),
        TimesAsLong("all_reduce x2", ("all_reduce",), 2.0),
        TimesAsLong("collectives /4", COLLECTIVES, 0.25),
        AnotherAlgorithm("all_gather algorithm ring", "all_gather", "ring"),
        LinkChange("link 0-3 bandwidth /4", (0, 3), "bandwidth", factor=0.25),
        LinkChange("link 0-3 latency +1ms", (0, 3), "latency", added=0.001),
        LinkChange("link 3-0 latency x3", (3, 0), "latency", factor=3.0),
        LinkChange("links bandwidth x2", None, "bandwidth", factor=2.0),
        Straggler("rank 5 x1.5", range(5, 6), factor=1.5),
        Straggler("rank 5 +10ms", range(5, 6), late=Constant(0.01)),
        Straggler("rank 5 +lognormal(10ms, 0.5)", range(5, 6), late=Lognormal(0.01, 0.5)),
        Straggler("ranks 4..7 x1.2", range(4, 8), factor=1.2),
        AnotherWorld("world 128", 128),
        AddedDelay("  all_reduce  + 2 ms ", ("all_reduce",), 0.002),
    ],
)
def test_every_form_is_read(expected: WhatIf) -> None:
    assert parse_what_if(expected.text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("allreduce +2ms", 'unknown subject "allreduce": did you mean "all_reduce"'),
        ("", "unknown subject"),
        ("all_reduce", r"write all_reduce \+2ms, all_reduce x2"),
        ("all_reduce -2ms", 'cannot read "-2ms": write all_reduce'),
        ("all_reduce 2ms", 'cannot read "2ms"'),
        ("all_reduce +2", "2 of what\\? write a delay with its unit, such as 2ms"),
        ("all_reduce +2mss", 'unknown duration unit "mss"'),
        ("all_reduce +-2ms", "must be 0 or more"),
        ("all_reduce +inf", "a delay is finite"),
        ("all_reduce x0", "above 0"),
        ("all_reduce /inf", "finite"),
        ("all_reduce x-2", "0 or more"),
        ("all_reduce x2ms", "has a unit"),
        ("all_gather algorithm tree", 'unknown algorithm for all_gather "tree"'),
        ("all_gather algorithm", "write all_gather algorithm NAME, with one of auto, ring"),
        ("send algorithm ring", "one algorithm cannot be said of send"),
        ("collectives algorithm ring", "one algorithm cannot be said of collectives"),
        ("link 0-0 latency +1ms", "a link joins two different ranks"),
        ("link 0 latency +1ms", "which link"),
        ("link 0-1 speed x2", 'unknown value of a link "speed"'),
        ("link 0-1 bandwith x2", 'did you mean "bandwidth"'),
        ("link 0-1 bandwidth +1Gbit/s", "a bandwidth is multiplied or divided"),
        ("links 0-1 bandwidth x2", "unknown value of a link"),
        ("links", "what of it\\? write links bandwidth /4"),
        ("rank x1.5", "which rank"),
        ("rank 5..6 x1.5", "which rank"),
        ("ranks 5 x1.5", "which rank"),
        ("ranks 6..5 x1.5", "6..5 are no ranks"),
        ("rank 5 +normal(10ms)", "sd is missing"),
        ("rank 5 +10", "10 of what"),
        ("rank 5 +recorded(1ms, 2ms)", "is replayed in order, not drawn from: use empirical"),
        ("rank 5 -10ms", "cannot read"),
        ("world", "write world 128"),
        ("world 0", 'cannot read "0": write world 128'),
        ("world many", 'cannot read "many"'),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        parse_what_if(text)
    assert str(caught.value).startswith(f'what_if "{text}": ')
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30) | st.from_regex(r"(link|rank|world|all_reduce)[ 0-9x+/.-]*"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert parse_what_if(text).text == text
    except InputError as error:
        assert error.args[0].startswith("what_if")  # noqa: PT017


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**LINKS, "what_if": "link 0-8 latency +1ms"}, "a world of 8 has ranks 0 to 7, not 8"),
        ({**LINKS, "what_if": "rank 8 x2"}, "a world of 8 has ranks 0 to 7, not 8"),
        ({**LINKS, "what_if": "ranks 4..9 x2"}, "ranks 0 to 7, not 9"),
        ({**LINKS, "what_if": "rank 0 x2"}, "rank 0 is real"),
        ({**LINKS, "rank": 3, "what_if": "ranks 1..4 +1ms"}, "rank 3 is real"),
        ({"world_size": 8, "what_if": "link 0-1 bandwidth /4"}, "has no effect: no links"),
        ({"world_size": 8, "what_if": "all_reduce x2"}, "has no effect: no links are given"),
        ({"world_size": 8, "what_if": "all_gather algorithm ring"}, "has no effect: no links"),
        (
            {**LINKS, "communication": "none", "what_if": "links latency x2"},
            "has no effect: communication is none",
        ),
        ({**LINKS, "mode": "wire", "what_if": "all_reduce x2"}, "in mode wire gloo itself sends"),
        (
            {**LINKS, "mode": "wire", "what_if": "all_gather algorithm ring"},
            "in mode wire gloo itself decides",
        ),
        (
            {**LINKS, "what_if": ("all_reduce algorithm ring", "all_reduce algorithm tree")},
            'there is one already, "all_reduce algorithm ring"',
        ),
        (
            {**LINKS, "what_if": "all_reduce algorithm hierarchical"},
            "needs machines of several workers",
        ),
        (
            {"world_size": 8, "latency": "1ms", "what_if": "links bandwidth /4"},
            "every link has unlimited bandwidth",
        ),
        (
            {"world_size": 8, "bandwidth": "1GB/s", "what_if": "link 0-1 latency x2"},
            "the link of 0 and 1 has no latency",
        ),
        (
            {
                "cluster": {"topology": "ring", "workers": 8},
                "what_if": "link 0-3 latency +1ms",
            },
            'no link joins "worker0" and "worker3" in the ring',
        ),
    ],
)
def test_what_does_not_fit_the_job(given: dict[str, Any], message: str) -> None:
    config = job(**given)
    text = config.what_if[-1]
    with pytest.raises(InputError, match=message) as caught:
        communication_of(config)
    assert str(caught.value).startswith(f'what_if "{text}"')
    assert "\n" not in str(caught.value)


def test_stragglers_are_checked_with_the_peers() -> None:
    with pytest.raises(InputError, match="rank 0 is real"):
        peers_of(job(world_size=8, what_if="rank 0 x2"), 0, 0)


def cost(config: EmulateConfig, *members: int, kind: str = "all_reduce") -> tuple[float, float]:
    found = communication_of(config).cost(kind, members, 1_000_000, members[0], members[-1])
    return pytest.approx(found.fixed), pytest.approx(found.busy)


def test_changes_of_one_link_build_on_each_other() -> None:
    """1 MB at 1 MB/s and 1 ms, between two: two steps of half the bytes."""
    changes = ("link 0-3 bandwidth /4", "link 3-0 latency +1ms", "link 0-3 latency x3")
    config = job(**LINKS, algorithm="ring", what_if=changes)
    assert cost(config, 0, 3) == (2 * 6e-3, 2 * 4 * 0.5)
    assert cost(config, 0, 1) == (2 * 1e-3, 2 * 0.5)
    assert communication_of(config).hop(3, 0, 10**6) == pytest.approx(6e-3 + 4)
    everybody = communication_of(config).cost("all_reduce", tuple(range(8)), 8 * 10**6, 0, -1)
    assert everybody.busy == pytest.approx(14 * 1.0)  # 0 and 3 are no neighbours in the ring


def test_changes_of_all_links_reach_those_of_pairs_and_between_machines() -> None:
    cluster = {
        "topology": "hierarchical",
        "workers": 8,
        "group_size": 4,
        "links": {
            "default": {"bandwidth": "1MB/s", "latency": "1ms"},
            "between_groups": {"bandwidth": "100kB/s", "latency": "10ms"},
            "overrides": [{"between": ["worker1", "worker0"], "bandwidth": "500kB/s"}],
        },
    }
    what_if = ("links bandwidth x2", "links latency +1ms", "link 0-1 latency +1ms")
    communication = communication_of(job(cluster=cluster, what_if=what_if))
    assert communication.hop(0, 2, 10**6) == pytest.approx(2e-3 + 0.5)
    assert communication.hop(0, 4, 10**6) == pytest.approx(11e-3 + 5)
    assert communication.hop(0, 1, 10**6) == pytest.approx(3e-3 + 1)


def test_another_algorithm_is_that_of_one_kind() -> None:
    config = job(**LINKS, what_if="all_reduce algorithm tree", algorithm="ring")
    assert cost(config, *range(4)) == (4e-3, 4.0)
    assert cost(config, *range(4), kind="reduce_scatter") == (3e-3, 0.75)
    cheapest = job(**LINKS, what_if="all_reduce algorithm auto", algorithm="tree")
    assert cost(cheapest, *range(4)) == (4e-3, 1.5)


def test_delays_and_factors_of_a_kind_add_up() -> None:
    what_if = ("all_reduce +1ms", "collectives +2ms", "all_reduce x2", "collectives /4")
    communication = communication_of(job(**LINKS, algorithm="ring", what_if=what_if))
    assert communication.added("all_reduce") == pytest.approx(0.003)
    assert communication.added("send") == 0.002
    assert cost(job(**LINKS, algorithm="ring", what_if=what_if), 0, 1) == (0.001 + 0.003, 0.5)


def test_another_world_takes_the_place_of_the_size() -> None:
    config = job(**LINKS, what_if=("world 4", "all_reduce +2ms"))
    changed = with_world(config)
    assert changed.world == 4
    assert changed.what_if == ("all_reduce +2ms",)
    assert with_world(changed) is changed
    assert communication_of(config).cost("barrier", tuple(range(4)), 0, 0, -1).fixed == 2e-3
    assert what_ifs_of(changed)[0].text == "all_reduce +2ms"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({**LINKS, "what_if": ("world 4", "world 16")}, 'what_if "world 16": another world'),
        ({**LINKS, "rank": 5, "what_if": "world 4"}, "a world of 4 has ranks 0 to 3, not 5"),
        (
            {"cluster": {"topology": "switch", "workers": 8}, "what_if": "world 16"},
            "16 workers of a cluster that has 8",
        ),
        ({**LINKS, "what_if": "world 1000000"}, "65,536 at most"),
        ({**LINKS, "what_if": ("world 4", "rank 5 x2")}, "a world of 4 has ranks 0 to 3, not 5"),
    ],
)
def test_another_world_has_to_fit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        communication_of(job(**given))
    assert str(caught.value).startswith("what_if")
