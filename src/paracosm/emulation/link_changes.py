"""A cluster whose links are changed by what-ifs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce

from paracosm.cluster import Cluster, Link
from paracosm.cluster.topology import Hierarchical
from paracosm.emulation.what_if import LinkChange
from paracosm.errors import InputError

__all__ = ["with_changed_links"]


def with_changed_links(cluster: Cluster, changes: Iterable[LinkChange]) -> Cluster:
    """Return the cluster after one change after the other; worker i is rank i.

    A changed link of two ranks is a link of their own, which a later change starts from.

    Raises:
        InputError: nothing joins two ranks, or a change makes no difference to any link.
    """
    return reduce(_changed, changes, cluster)


def _changed(cluster: Cluster, change: LinkChange) -> Cluster:
    try:
        if change.pair is None:
            return _with_all_changed(cluster, change)
        return _with_one_changed(cluster, change, *change.pair)
    except InputError as error:
        raise InputError(f'what_if "{change.text}": {error}') from None


def _with_one_changed(cluster: Cluster, change: LinkChange, first: int, second: int) -> Cluster:
    a, b = cluster.workers[first], cluster.workers[second]
    link = cluster.link(a, b)
    _check([link], change, f"the link of {first} and {second}")
    ends = {cluster.node(a).name, cluster.node(b).name}
    others = tuple(
        each
        for each in cluster.overrides
        if {cluster.node(each[0]).name, cluster.node(each[1]).name} != ends
    )
    return replace(cluster, overrides=(*others, (a, b, _link(link, change))))


def _with_all_changed(cluster: Cluster, change: LinkChange) -> Cluster:
    topology = cluster.topology
    links = [topology.link, *(link for _, _, link in cluster.overrides)]
    if isinstance(topology, Hierarchical):
        links.append(topology.outer)
        topology = replace(topology, outer=_link(topology.outer, change))
    _check(links, change, "every link")
    return replace(
        cluster,
        topology=replace(topology, link=_link(topology.link, change)),
        overrides=tuple((a, b, _link(link, change)) for a, b, link in cluster.overrides),
    )


def _link(link: Link, change: LinkChange) -> Link:
    value = getattr(link, change.value) * change.factor + change.added
    return replace(link, **{change.value: value})


def _check(links: list[Link], change: LinkChange, which: str) -> None:
    """Refuse a factor of what is nothing or without limit."""
    if change.added or change.factor == 1:
        return
    if change.value == "latency" and all(link.latency == 0 for link in links):
        raise InputError(f"has no effect: {which} has no latency; write latency +1ms")
    if change.value == "bandwidth" and all(link.bandwidth == float("inf") for link in links):
        raise InputError(f"has no effect: {which} has unlimited bandwidth; give it one first")
