"""The link between GPUs of one machine, by the name of the GPU.

Bandwidths are those that NCCL reckons with (`src/graph/topo.h`): for each NVLink of a generation,
times the number of links that the GPU has (NVIDIA's data sheets), and at most 235 GB/s for the ring
of an A100 (`src/graph/tuning.cc`); 12 GB/s for PCI Express 3.0, twice that for 4.0. Latencies are
those of a step of its ring (`hwLat`): 3.4 us over NVLink, 5.7 us over PCI Express.
"""

from __future__ import annotations

from paracosm.cluster import Link

__all__ = ["link_between"]

NVLINK = {
    "B200": 18 * 40.1e9,
    "H200": 18 * 20.6e9,
    "H100": 18 * 20.6e9,
    "A100": 235e9,
    "V100": 6 * 20e9,
    "P100": 4 * 18e9,
}
"""Bytes/s of modules for sockets with NVLink (SXM)."""

PCI = {"H100": 24e9, "A100": 24e9, "L4": 24e9, "A40": 24e9}
"""Bytes/s of cards for PCI Express 4.0 and later; all others have 3.0."""


def link_between(device: str) -> Link:
    """Return the link between two GPUs with this name ("NVIDIA_H100_80GB_HBM3") of one machine.

    A name with "PCIe" in it is a card's, and so is one of a GPU that has no NVLink.
    """
    name = device.upper()
    card = "PCI" in name or "NVL" in name
    if not card:
        for model, bandwidth in NVLINK.items():
            if model in name:
                return Link(bandwidth=bandwidth, latency=3.4e-6)
    bandwidth = next((value for model, value in PCI.items() if model in name), 12e9)
    return Link(bandwidth=bandwidth, latency=5.7e-6)
