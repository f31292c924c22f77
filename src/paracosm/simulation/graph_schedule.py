"""When every node of a graph ran: what a replay returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Schedule"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Schedule:
    """Begin and end of the n nodes of a graph, in seconds from the beginning of the iteration.

    A node has a span on the host, which issues it, and a span on the lane of its resource. Where
    the host itself carries it out (a view; everything on a synchronous device) the two are one.

    Attributes:
        issue: n instants at which the host turns to the node.
        issued: n instants at which the host goes on to the next one.
        begin: n instants at which the node begins on its own lane.
        end: n instants at which it ends there.
        on_host: n booleans: carried out by the host.
    """

    issue: Floats
    issued: Floats
    begin: Floats
    end: Floats
    on_host: npt.NDArray[np.bool_]

    @property
    def makespan(self) -> float:
        """The instant at which the last lane is done; 0 of an empty graph."""
        if not len(self.end):
            return 0.0
        return float(max(self.end.max(), self.issued.max()))
