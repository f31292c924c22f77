"""What a node and its link add to a transfer: bandwidth, parsing overhead, flow control."""

from paracosm.profiling.nodes.assemble import (
    calibration_of_goodput,
    calibration_of_parsing,
    calibration_of_window,
    found_by,
)
from paracosm.profiling.nodes.bandwidth import (
    BandwidthSettings,
    Goodput,
    measure_goodput,
    measure_loopback,
)
from paracosm.profiling.nodes.calibration import QUANTITIES, Found, NodeCalibration
from paracosm.profiling.nodes.file import load_calibration, save_calibration
from paracosm.profiling.nodes.parsing import PARSERS, Parsing, fit_parsing, measure_parsing
from paracosm.profiling.nodes.proxy import Proxy
from paracosm.profiling.nodes.serve import listen, serve_one
from paracosm.profiling.nodes.streams import Stream, StreamWatch

__all__ = [
    "PARSERS",
    "QUANTITIES",
    "BandwidthSettings",
    "Found",
    "Goodput",
    "NodeCalibration",
    "Parsing",
    "Proxy",
    "Stream",
    "StreamWatch",
    "calibration_of_goodput",
    "calibration_of_parsing",
    "calibration_of_window",
    "fit_parsing",
    "found_by",
    "listen",
    "load_calibration",
    "measure_goodput",
    "measure_loopback",
    "measure_parsing",
    "save_calibration",
    "serve_one",
]
