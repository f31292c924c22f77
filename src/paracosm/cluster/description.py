"""Descriptions of a cluster: as text and values for summaries, from a file, or from a mapping."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paracosm.cluster.cluster import Cluster
from paracosm.cluster.link import Hierarchical, Link
from paracosm.units import format_bandwidth, format_duration


def describe_link(link: Link) -> dict[str, str]:
    """Return the effective values of a link with their units, as a person would type them."""
    return {
        "bandwidth": format_bandwidth(link.bandwidth),
        "latency": format_duration(link.latency),
        "overhead": format_duration(link.overhead),
        "duplex": link.duplex,
        "pipelined": "yes" if link.pipelined else "no",
        "sharing": str(link.sharing),
    }


def link_in_words(values: Mapping[str, str]) -> str:
    """Return the values of a link, as of `describe_link`, in one line."""
    parts = [values["bandwidth"] if values["bandwidth"] != "inf" else "unlimited bandwidth"]
    parts.append(f"latency {values['latency']}")
    parts.append(f"overhead {values['overhead']} a message")
    parts.append(f"{values['duplex']} duplex")
    parts.append("pipelined" if values["pipelined"] == "yes" else "latency holds the ports")
    return ", ".join([*parts, f"{values['sharing']} sharing"])


def cluster_text(cluster: Mapping[str, Any]) -> str:
    """Return one line about a cluster, given as `describe_cluster` returns it."""
    parts = []
    for name, value in cluster.items():
        if isinstance(value, Mapping) and "sharing" in value:
            value = f"of {link_in_words(value)}"
        elif isinstance(value, Mapping):
            value = ", ".join(f"{ends} ({link_in_words(link)})" for ends, link in value.items())
        parts.append(f"{name.replace('_', ' ')} {value}")
    return "; ".join(parts)


def describe_cluster(cluster: Cluster) -> dict[str, Any]:
    """Return the description of a cluster for summaries and reports, with units."""
    speeds = [cluster.node(name).speed for name in cluster.workers]
    described: dict[str, Any] = {
        "topology": cluster.topology.name,
        "workers": len(cluster.workers),
        "servers": len(cluster.servers),
        "links": describe_link(cluster.topology.link),
    }
    if isinstance(cluster.topology, Hierarchical):
        described["group_size"] = cluster.topology.group_size
        described["links between groups"] = describe_link(cluster.topology.outer)
        # Without a number, each worker of a group has a card.
        described["cards"] = cluster.topology.cards or cluster.topology.group_size
        if cluster.topology.leaf is not None:
            described["leaf switches"] = (
                f"{cluster.topology.leaf} groups each, oversubscribed "
                f"{cluster.topology.oversubscription:g} to 1"
            )
    if cluster.servers:
        described["placement"] = cluster.placement
    if cluster.overrides:
        described["links of their own"] = {
            f"{a} - {b}": describe_link(x) for a, b, x in cluster.overrides
        }
    powers = [node.power for node in cluster.nodes if node.power is not None]
    if powers:
        described["power"] = "; ".join(dict.fromkeys(map(str, powers)))
    if min(speeds) != max(speeds):
        described["speeds"] = f"{min(speeds):.4g} to {max(speeds):.4g}"
    elif speeds[0] != 1:
        described["speeds"] = f"{speeds[0]:.4g}"
    return described


# pydantic and yaml take a while to import; only a program that reads a cluster file pays for it.


def load_cluster(path: str | Path) -> Cluster:
    """Return the cluster that the YAML file at `path` describes.

    Raises:
        InputError: one line with the path of the key that is wrong: unknown (the nearest known one
            is named), out of range, without effect, or missing; or why the file cannot be read.
    """
    from paracosm.cluster.file import read
    from paracosm.data_files import read_yaml

    return read(read_yaml(path, "cluster file"), str(path))


def cluster_from_mapping(mapping: Mapping[str, Any]) -> Cluster:
    """Return the cluster that `mapping`, the content of a cluster file, describes."""
    from paracosm.cluster.file import read

    return read(mapping, "cluster")
