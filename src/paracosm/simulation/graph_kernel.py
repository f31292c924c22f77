"""The compiled replay of one device: every lane is in order, so it is one longest path.

Numba keeps compiled code on disk by the time stamp of this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba

__all__ = ["play"]

_njit: Any = numba.njit


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with Numba and keep the result on disk."""
    options = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}
    return cast(Callable[..., Any], _njit(**options)(function))


@_compiled
def play(
    lane: Any,
    on_host: Any,
    waits: Any,
    duration: Any,
    launch: Any,
    offsets: Any,
    dependencies: Any,
    free: Any,
    ready: Any,
    issue: Any,
    issued: Any,
    begin: Any,
    end: Any,
) -> None:
    """Fill the instants of every node, in the order in which the host issues them.

    Args:
        lane: the resource of each of n nodes.
        on_host: n booleans: the host carries the node out.
        waits: n booleans: the host waits until what the node depends on is there, and the device's
            stream has come to its end (that of a synchronous device has nothing in it).
        duration, launch: n seconds on the node's lane; of the host, for a node it only issues.
        offsets, dependencies: CSR of the rows that each node depends on.
        free: one instant for every resource, zeros: when its lane is free again. The host's is
            that of the lane "host".
        ready: n instants at which a node's result is there (filled): where the host only
            takes a view, that of what it is a view of.
        issue, issued, begin, end: as in `Schedule` (filled).
    """
    compute, host = 0, 1  # indices into RESOURCES; a test holds them to that
    for node in range(lane.size):
        there = 0.0
        for place in range(offsets[node], offsets[node + 1]):
            there = max(there, ready[dependencies[place]])
        start = free[host]
        if on_host[node]:
            if waits[node]:
                start = max(max(start, there), free[compute])  # its stream is in order
            issue[node] = start
            issued[node] = start + duration[node]
            begin[node] = start
            end[node] = issued[node]
            ready[node] = max(end[node], there)
        else:
            issue[node] = start
            issued[node] = start + launch[node]
            begin[node] = max(max(issued[node], there), free[lane[node]])
            end[node] = begin[node] + duration[node]
            free[lane[node]] = end[node]
            ready[node] = end[node]
        free[host] = issued[node]
