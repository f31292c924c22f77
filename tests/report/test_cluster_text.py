"""What reports say of a cluster: every link in the same words, no representation of Python's."""

from __future__ import annotations

from paracosm.cluster import Link, star
from paracosm.cluster.changes import apply_changes, parse_change
from paracosm.cluster.description import cluster_text, describe_cluster
from paracosm.report.writing import _flattened


def test_links_of_their_own_are_described_as_the_others_are() -> None:
    cluster = star(workers=2, servers=1, link=Link(bandwidth=1.25e9))
    changed = apply_changes(cluster, [parse_change("link worker1-server0: bandwidth 4x slower")])
    same = "latency 0 s, overhead 0 s a message, full duplex, pipelined, fair sharing"
    assert cluster_text(describe_cluster(changed)) == (
        f"topology star; workers 2; servers 1; links of 10 Gbit/s, {same}; placement own; "
        f"links of their own worker1 - server0 (2.5 Gbit/s, {same})"
    )


def test_switches_of_a_study_are_yes_or_no() -> None:
    assert _flattened({"pipelined": True, "link": {"paced": False}, "lr": 1}) == {
        "pipelined": "yes",
        "link.paced": "no",
        "lr": "1",
    }
