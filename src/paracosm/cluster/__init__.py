"""The simulated hardware: nodes, links, topologies, and what messages and collectives cost."""

from paracosm.cluster.cluster import Cluster, Node, hierarchical, ring, star, switch
from paracosm.cluster.collectives import (
    dissemination_barrier,
    halving_doubling_all_reduce,
    linear_gather,
    linear_scatter,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce,
    ring_reduce_scatter,
    tree_all_reduce,
    tree_broadcast,
    tree_gather,
    tree_reduce,
    tree_scatter,
)
from paracosm.cluster.description import cluster_from_mapping, load_cluster
from paracosm.cluster.link import Link

__all__ = [
    "Cluster",
    "Link",
    "Node",
    "cluster_from_mapping",
    "dissemination_barrier",
    "halving_doubling_all_reduce",
    "hierarchical",
    "linear_gather",
    "linear_scatter",
    "load_cluster",
    "ring",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce",
    "ring_reduce_scatter",
    "star",
    "switch",
    "tree_all_reduce",
    "tree_broadcast",
    "tree_gather",
    "tree_reduce",
    "tree_scatter",
]
