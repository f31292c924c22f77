"""Calibrations from single measurements; `NodeCalibration.over` puts several together."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from paracosm.profiling.nodes.bandwidth import Goodput
from paracosm.profiling.nodes.calibration import Found, NodeCalibration
from paracosm.profiling.nodes.parsing import Parsing
from paracosm.profiling.nodes.shares import Shares, unevenness

__all__ = [
    "calibration_of_goodput",
    "calibration_of_parsing",
    "calibration_of_shares",
    "calibration_of_window",
    "found_by",
]


def calibration_of_goodput(goodput: Goodput, by: str, *, loopback: bool = False) -> NodeCalibration:
    """Return the medians of all rounds.

    Args:
        goodput: as measured.
        by: how, in words.
        loopback: there was no network in it.
    """
    both = [sum(pair) for pair in goodput.both]
    values = {
        "bandwidth_out": (statistics.median(goodput.sent), _spread(goodput.sent)),
        "bandwidth_in": (statistics.median(goodput.received), _spread(goodput.received)),
        "duplex": (goodput.duplex, _spread(both)),
        "round_trip": (goodput.round_trip, None),
    }
    return found_by("measured", by, values, loopback=loopback)


def calibration_of_shares(shares: Shares, by: str, *, loopback: bool = False) -> NodeCalibration:
    """Return how unevenly connections share.

    Args:
        shares: as measured.
        by: how, in words.
        loopback: there was no network in it.

    Raises:
        InputError: nothing came over any connection.
    """
    apart = abs(unevenness(shares.sent) - unevenness(shares.received))
    spread = apart / shares.uneven if shares.uneven > 0 else None
    return found_by("measured", by, {"uneven": (shares.uneven, spread)}, loopback=loopback)


def calibration_of_parsing(parsing: Parsing, by: str) -> NodeCalibration:
    """Return alpha and beta of a line.

    Args:
        parsing: as measured.
        by: how, in words.
    """
    values: dict[str, tuple[float, float | None]] = {
        "alpha": (parsing.alpha, parsing.error),
        "beta": (parsing.beta, parsing.error),
    }
    return found_by("measured", by, values)


def calibration_of_window(window: float, by: str) -> NodeCalibration:
    """Return a window.

    Args:
        window: bytes, as announced.
        by: how it was seen, in words.
    """
    return found_by("measured", by, {"window": (window, None)})


def found_by(
    how: str, by: str, values: dict[str, tuple[float, float | None]], *, loopback: bool = False
) -> NodeCalibration:
    """Return a calibration of quantities that were found in one way, now.

    Args:
        how: "measured" or "estimated".
        by: in words.
        values: by the names of quantities: value and spread.
        loopback: there was no network in it.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    found = {name: Found(how, by, now, spread, loopback) for name, (_, spread) in values.items()}
    known: dict[str, Any] = {name: value for name, (value, _) in values.items()}
    return NodeCalibration(**known, found=found)


def _spread(values: Sequence[float]) -> float | None:
    """Return how far rounds are apart; None of a single one, which does not tell."""
    if len(values) < 2:
        return None
    return (max(values) - min(values)) / statistics.median(values)
