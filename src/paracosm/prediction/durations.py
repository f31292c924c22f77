"""How long every distinct op of a graph takes, and how that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from paracosm.graphs import Graph

if TYPE_CHECKING:
    from paracosm.profiling.estimators import Estimate

__all__ = ["SOURCES", "OpDurations", "constant", "from_estimates"]

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

SOURCES = ("exact", "interpolated", "estimated", "unknown", "recorded", "none")
"""Measured as it is; between measured ones; from a model fitted on others of its type; from its
flops and bytes alone, no op of its type was measured; written in the graph; nothing known."""


@dataclass(frozen=True, eq=False)
class OpDurations:
    """Durations of the ops of a graph, one entry for each of `graph.ops`.

    Attributes:
        value: seconds; NaN where nothing is known.
        low, high: the interval in which the duration is thought to lie, seconds.
        source: indices into `SOURCES`.
        method: how each was found, "median of 12 samples".
    """

    value: Floats
    low: Floats
    high: Floats
    source: Codes
    method: tuple[str, ...]


def constant(graph: Graph, seconds: float) -> OpDurations:
    """Return the same duration for every op, for totals that can be computed by hand."""
    values = np.full(len(graph.ops), seconds)
    exact = np.zeros(len(graph.ops), dtype=np.int32)
    return OpDurations(values, values, values, exact, ("constant",) * len(graph.ops))


def from_estimates(estimates: Sequence[Estimate | None]) -> OpDurations:
    """Return durations from what estimators gave for each op, None where they gave nothing."""
    nothing = float("nan")
    rows = [
        (nothing, nothing, nothing) if each is None else (each.duration, each.low, each.high)
        for each in estimates
    ]
    value, low, high = np.array(rows, dtype=np.float64).reshape(-1, 3).T.copy()
    codes = {source: code for code, source in enumerate(SOURCES)}
    return OpDurations(
        value=value,
        low=np.minimum(low, value),
        high=np.maximum(high, value),
        source=np.array(
            [codes["none"] if each is None else codes[each.source] for each in estimates],
            dtype=np.int32,
        ),
        method=tuple("" if each is None else each.method for each in estimates),
    )
