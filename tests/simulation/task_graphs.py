"""Task graphs written down row by row, and random ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from hypothesis import strategies as st

from paracosm.jobs.job import POLICIES, TaskGraph


@dataclass(frozen=True)
class Row:
    """A task: picoseconds, bytes, and rows."""

    duration: int
    resource: int = -1
    after: Sequence[int] = ()
    priority: int = 0
    meeting: int = -1
    awaited: int = -1
    route: int = -1
    size: float = 0.0


def task_graph(
    rows: Sequence[Row],
    policies: Sequence[str] = (),
    routes: Sequence[Sequence[int]] = (),
    bandwidth: Sequence[float] = (),
) -> TaskGraph:
    """Return the task graph of these rows; `bandwidth` is in bytes/ps."""
    return TaskGraph(
        resource=np.array([row.resource for row in rows], dtype=np.int32),
        duration=np.array([row.duration for row in rows], dtype=np.int64),
        priority=np.array([row.priority for row in rows], dtype=np.int32),
        offsets=np.array([0, *accumulate(len(row.after) for row in rows)], dtype=np.int64),
        dependencies=np.array([before for row in rows for before in row.after], dtype=np.int64),
        meeting=np.array([row.meeting for row in rows], dtype=np.int32),
        awaited=np.array([row.awaited for row in rows], dtype=np.int64),
        route=np.array([row.route for row in rows], dtype=np.int32),
        demand=np.array([row.size for row in rows], dtype=np.float64),
        route_offsets=np.array([0, *accumulate(len(path) for path in routes)], dtype=np.int64),
        routes=np.array([link for path in routes for link in path], dtype=np.int32),
        bandwidth=np.array(bandwidth, dtype=np.float64) * 1e12,
        policy=np.array([POLICIES.index(policy) for policy in policies], dtype=np.int32),
    )


@st.composite
def task_graphs(draw: st.DrawFn) -> TaskGraph:
    """Everything that can be in a task graph; many of them never end."""
    count = draw(st.integers(0, 14))
    links = draw(st.integers(1, 4))
    routes = draw(
        st.lists(
            st.lists(st.integers(0, links - 1), unique=True, max_size=links), min_size=1, max_size=4
        )
    )
    policies = draw(st.lists(st.sampled_from(POLICIES), min_size=1, max_size=3))
    order = draw(st.permutations(range(count)))  # in which rows depend on one another
    place = {row: index for index, row in enumerate(order)}
    rows = []
    for row in range(count):
        earlier = order[: place[row]]
        after = draw(st.sets(st.sampled_from(earlier), max_size=2)) if earlier else set()
        what = draw(st.sampled_from(["plain", "plain", "meets", "awaits", "flows", "flows"]))
        rows.append(
            Row(
                duration=draw(st.sampled_from([0, 0, 1, 2, 5, 9])),
                resource=draw(st.integers(-1, len(policies) - 1)),
                after=sorted(after),
                priority=draw(st.integers(0, 2)),
                meeting=draw(st.integers(0, 2)) if what == "meets" else -1,
                awaited=draw(st.sampled_from(earlier)) if what == "awaits" and earlier else -1,
                route=draw(st.integers(0, len(routes) - 1)) if what == "flows" else -1,
                size=draw(st.sampled_from([0.0, 1e-4, 1.0, 3.0, 7.0, 20.0])),
            )
        )
    bandwidth = [draw(st.sampled_from([1.0, 2.0, 3.0, math.inf])) for _ in range(links)]
    return task_graph(rows, policies, routes, bandwidth)


@st.composite
def layered_graphs(draw: st.DrawFn) -> TaskGraph:
    """Graphs that always end: first in, first out; meetings of rows that depend on nothing later.

    Rows of one meeting follow one another, on resources of their own or on none.
    """
    policies = [draw(st.sampled_from(["fifo", "priority"])) for _ in range(3)]
    routes = [[0], [1], [0, 1], [1, 2], [0, 1, 2]]
    bandwidth = [draw(st.integers(1, 4)) for _ in range(3)]
    rows: list[Row] = []
    for number in range(draw(st.integers(1, 8))):
        before = range(len(rows))
        after = sorted(draw(st.sets(st.sampled_from(before), max_size=3))) if rows else []
        duration = draw(st.integers(0, 9))
        if draw(st.integers(0, 3)) == 0:
            rows += [Row(duration + more, -1, after, meeting=number) for more in range(3)]
        elif draw(st.booleans()):
            resource = draw(st.integers(-1, 2))
            rows.append(Row(duration, resource, after, priority=draw(st.integers(0, 2))))
        else:
            route = draw(st.integers(0, len(routes) - 1))
            size = float(draw(st.integers(0, 50)))
            rows.append(Row(duration, draw(st.integers(-1, 2)), after, route=route, size=size))
    return task_graph(rows, policies, routes, bandwidth)
