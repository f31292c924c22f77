"""A task graph in full: one row for every task of every rank, what an event loop plays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["TaskGraph"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TaskGraph:
    """n tasks on r exclusive resources and l shared links. Times are integer picoseconds.

    Attributes:
        resource: n indices of the exclusive resource that a task holds; -1 for none.
        duration: n picoseconds; of a task with a route, the time before it asks for its links.
        priority: n numbers, the smallest first.
        offsets, dependencies: CSR: rows that must have ended before a task is ready.
        meeting: n numbers of the collective that a task is part of; -1 for none. Its tasks arrive
            one by one, each holding its resource, begin together when the last has arrived, and
            end together after the longest of their durations.
        awaited: n rows; -1 for none. A task that awaits another one holds its resource and ends
            its own duration after the end of the other, or at once where that is past.
        route: n indices into the routes; -1 for tasks that send nothing over shared links.
        demand: n amounts that tasks ask of their routes: bytes that flow (fair), or picoseconds for
            which they hold all links alone (serial).
        route_offsets, routes: CSR: links of each route, each link at most once.
        bandwidth: l bytes/s.
        policy: r indices into `POLICIES`, by which a resource chooses among the tasks that want it.
        sharing: "fair": flows over a link share its bandwidth so that rates are max-min fair;
            "serial": they have it one after the other.
    """

    resource: Codes
    duration: Ints
    priority: Codes
    offsets: Ints
    dependencies: Ints
    meeting: Codes
    awaited: Ints
    route: Codes
    demand: Floats
    route_offsets: Ints
    routes: Codes
    bandwidth: Floats
    policy: Codes
    sharing: str = "fair"

    def __len__(self) -> int:
        return len(self.resource)
