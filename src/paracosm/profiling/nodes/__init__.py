"""What a node and its link add to a transfer: bandwidth and its sharing, parsing, flow control."""

from paracosm.profiling.nodes.assemble import (
    calibration_of_goodput,
    calibration_of_parsing,
    calibration_of_shares,
    calibration_of_window,
    found_by,
)
from paracosm.profiling.nodes.bandwidth import BandwidthSettings, Goodput, measure_goodput
from paracosm.profiling.nodes.calibration import QUANTITIES, Found, NodeCalibration
from paracosm.profiling.nodes.file import load_calibration, save_calibration
from paracosm.profiling.nodes.parsing import PARSERS, Parsing, fit_parsing, measure_parsing
from paracosm.profiling.nodes.peer import Peer, connected, connected_here
from paracosm.profiling.nodes.proxy import Proxy
from paracosm.profiling.nodes.serve import listen, serve_one
from paracosm.profiling.nodes.shares import (
    Shares,
    ShareSettings,
    correlation,
    counted,
    measure_shares,
    unevenness,
)
from paracosm.profiling.nodes.streams import Stream, StreamWatch

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
    "save_calibration",
    "serve_one",
    "unevenness",
]
