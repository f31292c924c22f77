"""A cluster from a file or a mapping, and back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paracosm.cluster.cluster import Cluster

__all__ = ["cluster_from_mapping", "cluster_to_mapping", "load_cluster"]

# pydantic and yaml take a while to import; only a program that reads a cluster file pays for it.


def load_cluster(path: str | Path) -> Cluster:
    """Return the cluster that the YAML file at `path` describes.

    Raises:
        InputError: one line with the path of the key that is wrong: unknown (the nearest known one
            is named), out of range, without effect, or missing; or why the file cannot be read.
    """
    from paracosm.cluster.file import read_file

    return read_file(path)


def cluster_from_mapping(mapping: Mapping[str, Any]) -> Cluster:
    """Return the cluster that `mapping`, the content of a cluster file, describes.

    Raises:
        InputError: as `load_cluster`.
    """
    from paracosm.cluster.file import read

    return read(mapping, "cluster")


def cluster_to_mapping(cluster: Cluster) -> dict[str, Any]:
    """Return the mapping that `cluster_from_mapping` turns into an equal cluster.

    Raises:
        InputError: the nodes are not called worker0, worker1, ..., server0, server1, ...
    """
    from paracosm.cluster.file import write

    return write(cluster)
