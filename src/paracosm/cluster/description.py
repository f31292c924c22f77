"""A cluster in words and in values with their units, for summaries and reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paracosm.cluster.cluster import Cluster
from paracosm.cluster.link import Link
from paracosm.cluster.topology import Hierarchical
from paracosm.units import format_bandwidth, format_duration

__all__ = ["describe_cluster", "describe_link", "link_in_words"]


def describe_link(link: Link) -> dict[str, str]:
    """Return the effective values of a link with their units, as a person would type them."""
    return {
        "bandwidth": format_bandwidth(link.bandwidth),
        "latency": format_duration(link.latency),
        "overhead": format_duration(link.overhead),
        "duplex": link.duplex,
        "pipelined": "yes" if link.pipelined else "no",
        "sharing": link.sharing,
    }


def link_in_words(said: Mapping[str, str]) -> str:
    """Return the values of a link, as of `describe_link`, in one line."""
    parts = [said["bandwidth"] if said["bandwidth"] != "inf" else "unlimited bandwidth"]
    parts.append(f"latency {said['latency']}")
    if said["overhead"] != "0 s":
        parts.append(f"overhead {said['overhead']} a message")
    parts.append(f"{said['duplex']} duplex")
    parts.append("pipelined" if said["pipelined"] == "yes" else "latency holds the ports")
    return ", ".join([*parts, f"{said['sharing']} sharing"])


def describe_cluster(cluster: Cluster) -> dict[str, Any]:
    """Return what summaries and reports say of a cluster, every quantity with its unit."""
    speeds = [cluster.node(name).speed for name in cluster.workers]
    said: dict[str, Any] = {
        "topology": cluster.topology.name,
        "workers": len(cluster.workers),
        "servers": len(cluster.servers),
        "links": describe_link(cluster.topology.link),
    }
    if isinstance(cluster.topology, Hierarchical):
        said["group_size"] = cluster.topology.group_size
        said["links between groups"] = describe_link(cluster.topology.outer)
    if cluster.servers:
        said["placement"] = cluster.placement
    if cluster.overrides:
        said["links of their own"] = {
            f"{a} - {b}": describe_link(x) for a, b, x in cluster.overrides
        }
    if min(speeds) != max(speeds):
        said["speeds"] = f"{min(speeds):.4g} to {max(speeds):.4g}"
    elif speeds[0] != 1:
        said["speeds"] = f"{speeds[0]:.4g}"
    return said
