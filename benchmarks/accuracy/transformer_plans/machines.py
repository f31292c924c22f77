"""Clusters of machines that are on sale."""

from __future__ import annotations

from switched_ring import nccl_link

from paracosm.cluster.cluster import Cluster, hierarchical
from paracosm.cluster.link import Link
from paracosm.errors import InputError

__all__ = ["dgx_a100"]


def dgx_a100(gpus: int, adapters: int = 4, tensor: int = 8) -> Cluster:
    """Return machines of eight A100, joined by NVSwitch within and InfiniBand HDR between.

    Bandwidths and latencies are those that NCCL itself reckons with (`src/graph/topo.h`,
    `src/graph/tuning.cc`): 235 GB/s for the ring of an A100 over NVLink, with another protocol for
    small messages (`nccl_link`); 12 GB/s for each 100 Gbit/s of network, and 9.6 us a step. The
    GPUs of a machine share its adapters evenly. A message keeps its sender for its latency, as
    NCCL's kernels do.

    Args:
        gpus: all of them; a multiple of 8, or less than that.
        adapters: of 200 Gbit/s in a machine.
        tensor: GPUs that share a layer, of whose all-reduces the latencies are.

    Raises:
        InputError: GPUs that do not fill their machines.
    """
    if gpus > 8 and gpus % 8:
        raise InputError(f"{gpus} GPUs do not fill machines of 8; {8 * round(gpus / 8)} would")
    within = nccl_link(max(tensor, 2), bandwidth=235e9)
    between = Link(bandwidth=adapters * 24e9 / 8, latency=9.6e-6, pipelined=False)
    return hierarchical(gpus, 8, within, between)
