"""What a node and its link add to a transfer: bandwidth and its sharing, parsing, flow control."""

from paracosm.profiling.nodes.calibration import (
    BandwidthSettings,
    ShareSettings,
    measure_goodput,
    measure_shares,
)
from paracosm.profiling.nodes.exchange import connected_here

__all__ = [
    "BandwidthSettings",
    "ShareSettings",
    "connected_here",
    "measure_goodput",
    "measure_shares",
]
