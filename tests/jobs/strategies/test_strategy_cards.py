"""Ranks of a machine that share its network card, in jobs whose times follow by hand."""

from __future__ import annotations

from typing import Any

import pytest
from four_ops import SLOW, makespan, replayed, two_layers

from paracosm.cluster.cluster import Cluster, hierarchical
from paracosm.cluster.link import Link


def machines(workers: int, each: int, **more: Any) -> Cluster:
    return hierarchical(workers, each, Link(), SLOW, **more)


@pytest.mark.parametrize(("cards", "load"), [(None, 1), (2, 1), (1, 2)])
def test_rings_of_tensor_parallel_ranks(cards: int | None, load: int) -> None:
    """Layers take half a second and one; each of two buckets is a ring of 2 s by itself."""
    cluster = machines(4, 2, cards=cards)
    time = makespan(two_layers(), "dp=2, tp=2, all_reduce=ring", cluster)
    assert time == pytest.approx(1.0 + 1.0 + 2 * load * 2.0)


@pytest.mark.parametrize(("cards", "load"), [(None, 1), (1, 2)])
def test_messages_between_stages(cards: int | None, load: int) -> None:
    """Two replicas send their activation at the same time, a second each by themselves."""
    time = makespan(two_layers(), "dp=2, pp=2", machines(4, 2, cards=cards))
    assert time == pytest.approx((1 + load + 1) + (2 + load + 2))


def test_uplinks_of_leaf_switches() -> None:
    """Machines of one; the first two below one switch, whose uplink has one message at a time."""
    cluster = machines(4, 1, leaf=2, oversubscription=2)
    assert makespan(two_layers(), "dp=2, pp=2", cluster) == pytest.approx(
        # The stages are on two leaves; rings of 4 MB, 4 s, stay below each.
        (1 + 2 + 1) + (2 + 2 + 2) + 4
    )


def test_ranks_that_meet_alike_have_one_program() -> None:
    cluster = machines(32, 8, cards=4)
    job = replayed(two_layers(), "dp=4, tp=8, all_reduce=ring", cluster).job
    assert len(job.programs) == 1
