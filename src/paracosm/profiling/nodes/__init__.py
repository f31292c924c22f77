"""What a node and its link add to a transfer: bandwidth and its sharing, parsing, flow control."""

from paracosm.profiling.nodes.calibration import (
    QUANTITIES,
    Found,
    NodeCalibration,
    calibration_of_goodput,
    calibration_of_parsing,
    calibration_of_shares,
    calibration_of_window,
    found_by,
    load_calibration,
    save_calibration,
)
from paracosm.profiling.nodes.goodput import (
    BandwidthSettings,
    Goodput,
    Shares,
    ShareSettings,
    correlation,
    counted,
    measure_goodput,
    measure_shares,
    unevenness,
)
from paracosm.profiling.nodes.http2 import Stream, StreamWatch
from paracosm.profiling.nodes.parsing import (
    PARSERS,
    Parsing,
    Transfers,
    fit_parsing,
    measure_parsing,
    measure_transfers,
    overheads_of,
)
from paracosm.profiling.nodes.peer import Peer, connected, connected_here, listen, serve_one
from paracosm.profiling.nodes.proxy import Proxy

__all__ = [
    "PARSERS",
    "QUANTITIES",
    "BandwidthSettings",
    "Found",
    "Goodput",
    "NodeCalibration",
    "Parsing",
    "Peer",
    "Proxy",
    "ShareSettings",
    "Shares",
    "Stream",
    "StreamWatch",
    "Transfers",
    "calibration_of_goodput",
    "calibration_of_parsing",
    "calibration_of_shares",
    "calibration_of_window",
    "connected",
    "connected_here",
    "correlation",
    "counted",
    "fit_parsing",
    "found_by",
    "listen",
    "load_calibration",
    "measure_goodput",
    "measure_parsing",
    "measure_shares",
    "measure_transfers",
    "overheads_of",
    "save_calibration",
    "serve_one",
    "unevenness",
]
