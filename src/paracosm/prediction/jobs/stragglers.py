"""Nodes that are slower, or faster, than their cluster says: "worker3 x0.5"."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from paracosm.cluster import Cluster
from paracosm.errors import InputError

__all__ = ["parse_stragglers", "slowed"]


def parse_stragglers(text: str) -> dict[str, float]:
    """Return the factors of speed by worker in a text such as "worker3 x0.5, worker7 x0.8".

    Raises:
        InputError: it says something else, a factor that is not above 0, or a worker twice.
    """
    factors: dict[str, float] = {}
    for part in text.split(","):
        match = re.fullmatch(r"(\S+)\s*[x*]\s*(\d+\.?\d*|\.\d+)", part.strip())
        if match is None:
            raise InputError(
                f'cannot read "{part.strip()}": write a worker and its speed, worker3 x0.5'
            )
        name, factor = match[1], float(match[2])
        if not (factor > 0 and math.isfinite(factor)):
            raise InputError(f"{part.strip()}: a speed is above 0")
        if name in factors:
            raise InputError(f"{name} is given two speeds")
        factors[name] = factor
    return factors


def slowed(cluster: Cluster, factors: Mapping[str, float]) -> Cluster:
    """Return the cluster with the speeds of some workers' nodes multiplied; others are left out."""
    nodes = tuple(
        replace(node, speed=node.speed * factors[node.name]) if node.name in factors else node
        for node in cluster.nodes
    )
    return replace(cluster, nodes=nodes)
