"""The imagined hardware: nodes, links, topologies, and what messages and collectives cost."""

from paracosm.cluster.builders import (
    cluster_from_shorthand,
    hierarchical,
    ring,
    star,
    switch,
)
from paracosm.cluster.cluster import Cluster, Node
from paracosm.cluster.collectives import (
    halving_doubling_all_reduce,
    hierarchical_all_reduce,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    tree_all_reduce,
    tree_broadcast,
)
from paracosm.cluster.link import Link
from paracosm.cluster.mapping import cluster_from_mapping, cluster_to_mapping, load_cluster

__all__ = [
    "Cluster",
    "Link",
    "Node",
    "cluster_from_mapping",
    "cluster_from_shorthand",
    "cluster_to_mapping",
    "halving_doubling_all_reduce",
    "hierarchical",
    "hierarchical_all_reduce",
    "load_cluster",
    "ring",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "star",
    "switch",
    "tree_all_reduce",
    "tree_broadcast",
]
