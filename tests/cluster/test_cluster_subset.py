"""The first workers of a cluster."""

from __future__ import annotations

import pytest

from paracosm.cluster.cluster import Cluster, first_workers, hierarchical, ring, star, switch
from paracosm.cluster.description import cluster_from_mapping
from paracosm.cluster.link import Link
from paracosm.errors import InputError

LINK, OUTER = Link(1e9, 1e-6), Link(1e8, 1e-5)


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        (switch(8, 0, LINK), switch(3, 0, LINK)),
        (ring(8, LINK), ring(3, LINK)),
        (star(8, 2, LINK), star(3, 2, LINK)),
        (star(8, 2, LINK, placement="workers"), star(3, 2, LINK, placement="workers")),
        (star(8, 2, LINK, placement="workers"), star(1, 2, LINK, placement="workers")),
        (hierarchical(8, 4, LINK, OUTER), hierarchical(6, 4, LINK, OUTER)),
        (switch(4, 1, LINK, [1, 2, 3, 4]), switch(2, 1, LINK, [1, 2])),
    ],
)
def test_it_is_as_if_the_others_had_never_been_there(whole: Cluster, part: Cluster) -> None:
    assert first_workers(whole, len(part.workers)) == part


def test_links_of_workers_that_are_gone_are_gone() -> None:
    overrides = [
        {"between": ["worker0", worker], "latency": "1ms"} for worker in ("worker1", "worker2")
    ]
    cluster = cluster_from_mapping(
        {"topology": "switch", "workers": 3, "links": {"overrides": overrides}}
    )
    assert first_workers(cluster, 3) is cluster
    left = first_workers(cluster, 2)
    assert [override[:2] for override in left.overrides] == [("worker0", "worker1")]
    assert left.link("worker0", "worker1").latency == 1e-3


@pytest.mark.parametrize("count", [0, 5])
def test_there_are_only_so_many(count: int) -> None:
    with pytest.raises(InputError, match=f"{count} workers of a cluster that has 4: give 1 to 4"):
        first_workers(switch(4), count)
