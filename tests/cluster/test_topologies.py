import pickle

import numpy as np
import pytest

from paracosm.cluster.cluster import Cluster, Node, hierarchical, ring, star, switch
from paracosm.cluster.link import Link
from paracosm.errors import InputError

FAST, SLOW = Link(latency=1.0), Link(latency=2.0)


def joined(cluster):
    """Return the pairs of nodes that have a link."""
    pairs = set()
    for source in cluster.workers + cluster.servers:
        for target in cluster.workers + cluster.servers:
            try:
                link = cluster.link(source, target)
            except InputError:
                continue
            if link.latency:
                pairs.add((source, target))
    return pairs


def test_star_joins_workers_with_servers():
    cluster = star(workers=2, servers=1, link=FAST, speeds=[1.0, 0.5])
    assert cluster.workers == ("worker0", "worker1")
    assert cluster.servers == ("server0",)
    assert cluster.nodes == (Node("worker0"), Node("worker1", 0.5), Node("server0"))
    assert cluster.node("worker1").speed == 0.5
    assert joined(cluster) == {
        ("worker0", "server0"),
        ("server0", "worker0"),
        ("worker1", "server0"),
        ("server0", "worker1"),
    }
    with pytest.raises(InputError, match=r'"worker0" and "worker1" in the star; topology switch'):
        cluster.link("worker0", "worker1")


def test_server_on_a_worker_is_reached_at_no_cost():
    cluster = star(workers=3, servers=1, link=FAST, placement="workers")
    assert cluster.node("server0") == Node("worker0")
    assert cluster.link("worker0", "server0").transfer_time(1e9) == 0.0
    assert cluster.link("worker1", "server0") == FAST
    assert len(cluster.nodes) == 3


def test_several_servers_on_workers_all_reach_each_other():
    cluster = star(workers=2, servers=3, link=FAST, placement="workers")
    assert cluster.node("server2").name == "worker0"
    assert cluster.link("worker0", "server1") == FAST
    assert cluster.link("worker1", "server2") == FAST


def test_switch_joins_every_pair():
    assert len(joined(switch(workers=4, servers=1, link=FAST))) == 5 * 4


def test_ring_joins_neighbours():
    assert joined(ring(workers=4, link=FAST)) == {
        (f"worker{a}", f"worker{b}")
        for a, b in [(0, 1), (1, 2), (2, 3), (3, 0), (1, 0), (2, 1), (3, 2), (0, 3)]
    }


def test_ring_of_two():
    assert len(joined(ring(workers=2, link=FAST))) == 2


def test_groups():
    cluster = hierarchical(workers=5, group_size=2, link=FAST, outer=SLOW, servers=4)
    assert cluster.link("worker0", "worker1") == FAST
    assert cluster.link("worker1", "worker2") == SLOW
    assert cluster.link("worker4", "server2") == FAST
    assert cluster.link("worker0", "server3") == FAST
    assert cluster.link("server0", "server3") == FAST
    assert cluster.link("worker0", "server1") == SLOW


def test_override_holds_both_ways():
    plain = star(2, 1, FAST)
    cluster = Cluster(
        plain.nodes,
        plain.workers,
        plain.servers,
        plain.topology,
        overrides=(("worker1", "server0", SLOW),),
    )
    assert cluster.link("server0", "worker1") == SLOW
    assert cluster.link("worker1", "server0") == SLOW
    assert cluster.link("worker0", "server0") == FAST


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: star(0), "at least 1 worker"),
        (lambda: star(2, servers=0), "at least 1 server"),
        (lambda: star(2, speeds=[1.0]), "1 speeds for 2 workers"),
        (lambda: star(2, speeds=[1.0, 0.0]), "node worker1: speed must be finite and above 0"),
        (lambda: hierarchical(2, 0, FAST, SLOW), "group_size must be 1 or more, not 0"),
        (lambda: Node("a", memory=0), "node a: memory"),
        (lambda: star(2).node("worker7"), 'unknown worker or server "worker7": did you mean'),
        (lambda: star(2).link("worker0", "sever0"), 'did you mean "server0"'),
        (lambda: Link(bandwidth=0), "bandwidth must be above 0"),
    ],
)
def test_impossible_clusters_are_refused(build, words):
    with pytest.raises(InputError, match=words):
        build()


def test_clusters_travel_between_processes():
    cluster = star(3, 1, FAST)
    cluster.link("worker0", "server0")
    assert pickle.loads(pickle.dumps(cluster)) == cluster


def test_speeds_may_be_an_array_and_counts_of_any_whole_type():
    cluster = star(np.uint8(200), np.uint8(100), speeds=np.full(200, 2, np.int8))
    assert [type(node.speed) for node in cluster.nodes[:1]] == [float]
    assert len(cluster.topology.centres) == 100


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: switch(2, servers=-1), "servers: give their number, not -1"),
        (lambda: star(2, placement="elsewhere"), 'unknown placement "elsewhere"'),
        (lambda: switch(2, link=None), "a link of a cluster is a Link, not None"),
        (lambda: hierarchical(4, 2.5, FAST, SLOW), "group_size must be a whole number, not 2.5"),
        (lambda: hierarchical(4, 2, FAST, SLOW, cards=1.5), "cards must be a whole number"),
        (lambda: Node("a", "2"), "speed must be finite and above 0, not 2"),
    ],
)
def test_what_a_cluster_cannot_have_is_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()
