"""What a change alters, by hand; what is refused, in one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cluster.changes import apply_changes, changes_cluster, parse_change, refuse_changes
from paracosm.cluster.cluster import Cluster, hierarchical, star, switch
from paracosm.cluster.link import Link
from paracosm.cluster.worker_counts import MOST_NODES
from paracosm.errors import InputError

LINK = Link(bandwidth=1e9, latency=1e-3, overhead=1e-5)


def changed(cluster: Cluster, *texts: str) -> Cluster:
    return apply_changes(cluster, map(parse_change, texts))


def speeds(cluster: Cluster) -> list[float]:
    return [node.speed for node in cluster.nodes]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("worker 1: compute 2x slower", [1, 0.5, 1, 1]),
        ("rank 1: compute 2x slower", [1, 0.5, 1, 1]),
        ("processor 1: compute 2x slower", [1, 0.5, 1, 1]),
        ("worker 1: compute 4x faster", [1, 4, 1, 1]),
        ("workers 1..2: compute 2x faster", [1, 2, 2, 1]),
        ("workers: compute 2x faster", [2, 2, 2, 1]),
        ("compute: 2x faster", [2, 2, 2, 1]),
        ("server 0: compute 2x slower", [1, 1, 1, 0.5]),
        ("servers: compute 2x slower", [1, 1, 1, 0.5]),
        ("  Worker   0 :compute 2x   slower ", [0.5, 1, 1, 1]),
    ],
)
def test_slower_and_faster_are_about_time(text: str, expected: list[float]) -> None:
    assert speeds(changed(star(3, 1, LINK), text)) == expected


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("links: bandwidth 2x", "bandwidth", 2e9),
        ("links: bandwidth 2x faster", "bandwidth", 2e9),
        ("links: bandwidth 2x slower", "bandwidth", 5e8),
        ("bandwidth: 25 Gbit/s", "bandwidth", 25e9 / 8),
        ("bandwidth: inf", "bandwidth", float("inf")),
        ("latency: 50 us", "latency", 5e-5),
        ("latency: 0", "latency", 0.0),
        ("links: latency 3x", "latency", 3e-3),
        ("links: latency 2x slower", "latency", 2e-3),
        ("links: latency 2x faster", "latency", 5e-4),
        ("latency: +1 ms", "latency", 2e-3),
        ("latency: -250us", "latency", 7.5e-4),
        ("overhead: +10us", "overhead", 2e-5),
    ],
)
def test_values_of_links(text: str, key: str, value: float) -> None:
    link = changed(switch(3, 0, LINK), text).link("worker0", "worker2")
    assert getattr(link, key) == pytest.approx(value, rel=1e-15)
    others = {"bandwidth", "latency", "overhead"} - {key}
    assert all(getattr(link, other) == getattr(LINK, other) for other in others)


def test_one_link_is_changed_both_ways_and_no_other() -> None:
    cluster = changed(star(3, 1, LINK), "link worker1-server0: bandwidth 4x slower")
    assert cluster.link("worker1", "server0").bandwidth == 2.5e8
    assert cluster.link("server0", "worker1").bandwidth == 2.5e8
    assert cluster.link("worker0", "server0") == LINK


def test_a_later_change_starts_from_the_one_before() -> None:
    cluster = changed(
        switch(3, 0, LINK), "link 0-2: latency +1 ms", "links: latency 2x", "link 2-0: latency 10x"
    )
    assert cluster.link("worker0", "worker2").latency == pytest.approx(40e-3)
    assert cluster.link("worker0", "worker1").latency == 2e-3
    assert len(cluster.overrides) == 1


def test_links_between_groups_are_links_too() -> None:
    cluster = changed(hierarchical(4, 2, LINK, Link(bandwidth=1e6)), "links: bandwidth 2x")
    assert cluster.link("worker0", "worker1").bandwidth == 2e9
    assert cluster.link("worker0", "worker2").bandwidth == 2e6


@given(st.floats(0.1, 0.9), st.floats(1.1, 10))
def test_two_factors_are_their_product(first: float, second: float) -> None:
    texts = (f"worker 0: compute {x!r}x slower" for x in (first, second))
    assert speeds(changed(switch(2, 0, LINK), *texts))[0] == pytest.approx(1 / (first * second))


def test_what_is_no_matter_of_a_cluster_is_left_to_others() -> None:
    texts = ("workers: 8", "worker 5: +10 ms", "all_reduce: +2 ms", "data loading: none")
    assert not any(changes_cluster(parse_change(text)) for text in texts)
    late = parse_change("worker 5: +normal(10ms, 1ms)")
    assert (late.what, late.added, late.first) == ("late", "normal(10ms, 1ms)", 5)
    assert parse_change("workers: 128").value == 128
    assert parse_change("all_gather: algorithm ring").value == "ring"
    assert parse_change("kernel *gemm*: 2x faster").pattern == "*gemm*"
    assert parse_change("collectives: 2x slower").factor == 2
    with pytest.raises(InputError, match="train cannot change that; it can change speeds"):
        refuse_changes([parse_change("workers: 8")], "train", "speeds")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "write SUBJECT: CHANGE"),
        ("worker 1:", "write SUBJECT: CHANGE"),
        ("wroker 1: compute 2x slower", 'unknown subject "wroker 1"'),
        ("worker: compute 2x slower", "which worker? write worker 3"),
        ("worker 1: compute 2x", "write compute is 2x slower or 2x faster"),
        ("worker 1: x1.5", 'unknown part "x1.5": choose from compute'),
        ("worker 1: compute 0x slower", "a factor is 1e-09 to 1e+09, not 0"),
        ("worker 1: compute 1e99x slower", "a factor is 1e-09 to 1e+09"),
        ("worker 1: compute 1x slower", "changes nothing"),
        ("workers 3..2: compute 2x slower", "is not a range"),
        ("workers: 0", f"1 to {MOST_NODES:,} workers"),
        ("workers: 1000000000", f"1 to {MOST_NODES:,} workers"),
        ("workers: 99999999999999999999", f"1 to {MOST_NODES:,} workers"),
        ("links: bandwith 2x", 'unknown value of a link "bandwith": did you mean "bandwidth"?'),
        ("links: bandwidth 25", '"25" has no unit'),
        ("latency: 5", '"5" has no unit'),
        ("latency: inf", "a latency is finite"),
        ("bandwidth: 0 bit/s", "above 0"),
        ("link 2-2: latency 2x", "two different ends"),
        ("all_reduce: 2x", "2x slower or 2x faster"),
        ("collectives: algorithm ring", "of which kind?"),
        ("worker 1: +5", '"5" has no unit'),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_change(text)
    line = str(caught.value)
    assert line.startswith(f'what_if "{text}": ')
    assert message in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("worker 3: compute 2x slower", "there are workers 0 to 2, not 3"),
        ("workers 1..3: compute 2x slower", "there are workers 0 to 2, not 3"),
        ("server 1: compute 2x slower", "there is only server 0, not 1"),
        ("link 0-1: latency 2x", 'no link joins "worker0" and "worker1" in the star'),
        ("link 0-server7: latency 2x", "server7"),
        ("overhead: 2x", "has no effect: there is no overhead"),
        ("bandwidth: 2x", "has no effect: bandwidth is unlimited"),
        ("latency: -1 s", "makes latency negative"),
        ("workers: 8", "is not a change of the cluster"),
    ],
)
def test_what_the_cluster_does_not_have_is_named(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        changed(star(3, 1, Link(latency=1e-3)), text)
    line = str(caught.value)
    assert text in line
    assert message in line
    assert "\n" not in line


def test_servers_without_nodes_have_no_speed() -> None:
    with pytest.raises(InputError, match="no servers on nodes of their own"):
        changed(star(2, 1, LINK, placement="workers"), "server 0: compute 2x slower")
    with pytest.raises(InputError, match="live on one node"):
        changed(star(2, 1, LINK, placement="workers"), "link worker0-server0: latency 2x")
