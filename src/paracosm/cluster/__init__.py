"""The simulated hardware: nodes, links, topologies, and what messages and collectives cost."""

from paracosm.cluster.cluster import Cluster, Node, hierarchical, ring, star, switch
from paracosm.cluster.description import cluster_from_mapping, load_cluster
from paracosm.cluster.link import Link, Packets

__all__ = [
    "Cluster",
    "Link",
    "Node",
    "Packets",
    "cluster_from_mapping",
    "hierarchical",
    "load_cluster",
    "ring",
    "star",
    "switch",
]
