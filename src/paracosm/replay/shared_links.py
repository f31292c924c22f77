"""Flows over shared links: max-min fair rates, and when each flow has brought its bytes.

Flows over the same links are one group (a *route* here) and have one rate, so that a route needs
only a count of its flows, the bytes that each of them has got since the route was last idle (its
*virtual time*: Parekh and Gallager, "A Generalized Processor Sharing Approach to Flow Control",
1993), and a heap of the virtual times at which its flows end, which do not change with the rate.

Rates follow from progressive filling (Bertsekas and Gallager, "Data Networks", 1992, section
6.5.2): all grow alike until a link is full, whose routes are then fixed, and so on. Only links that
are joined by routes in use to those that gained or lost flows are looked at, once an instant.

A flow ends at the first whole picosecond at which all of its bytes are there, and has its share
until then: no link carries more than its bandwidth, no flow loses a byte. What 1/1024 ps brings is
forgiven, because rounding errors would otherwise cost a picosecond where an end falls on a whole
one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paracosm.graphs.job import TaskGraph
from paracosm.replay.events_compiled import compiled_whole, inlined
from paracosm.replay.heaps import place_item, pop_item

__all__ = [
    "IN_USE",
    "LAST_INSTANT",
    "Links",
    "begin_flow",
    "end_flow",
    "next_flow_end",
    "share_links",
    "share_out",
]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

LAST_INSTANT = 2**63 - 1
"""Picoseconds, 106 days; what would be later is there too."""

FORGIVEN = 1 / 1024  # ps


LINK = np.dtype(
    [
        ("bandwidth", "f8"),
        ("left", "f8"),
        ("first", "i8"),
        ("used", "i8"),
        ("load", "i8"),
        ("is_near", "i8"),
    ]
)
"""A link: bytes/ps, and what of them is not given away; `Links.used[first:first + used]` are the
hops over it of routes that have flows; how many flows are still to get a share."""

ROUTE = np.dtype(
    [
        ("first", "i8"),
        ("of_flows", "i8"),
        ("flows", "i8"),
        ("shared", "i8"),
        ("rate", "f8"),
        ("virtual", "f8"),
        ("since", "i8"),
        ("due", "i8"),
        ("rank", "i8"),
        ("is_touched", "i4"),
        ("is_near", "i4"),
    ]
)
"""A route: where its hops and its heap of flows begin; how many flows it has, and for how many its
rate is, bytes/ps of each; the bytes that each has got by `since`; when its first flow ends; where
it stands in `Links.order`."""

HOP = np.dtype([("link", "i4"), ("route", "i4"), ("place", "i8")])
"""A link on a route, and where it stands in `Links.used` when the route has flows."""

FLOW = np.dtype([("key", "f8"), ("item", "i8")])
"""A flow: the virtual time of its route at which it ends, and its task. Also an entry of
`Links.open`: a link, by what each of its flows would get."""


class Links(NamedTuple):
    """The l links, the routes over them, and what flows.

    Attributes:
        links: l.
        routes: and one more for its `first`.
        hops: of each route.
        used: of each link, hops.
        flows: of each route, a heap.
        order: a heap by `due` of the routes that have flows.
        touched: routes that gained or lost flows.
        near_links, near_routes: those whose rates may change.
        open: a heap of links that have something left for flows that have no rate yet.
        counts: how many stand in `order` and `touched`.
    """

    links: Any
    routes: Any
    hops: Any
    used: Ints
    flows: Any
    order: Ints
    touched: Ints
    near_links: Ints
    near_routes: Ints
    open: Any
    counts: Ints


IN_USE, TOUCHED = 0, 1  # in Links.counts


def share_links(graph: TaskGraph) -> tuple[Links, Codes]:
    """Return the links of a task graph, nothing flowing, and the route of each of its tasks.

    Routes over the same links become one. Links of infinite bandwidth hold nothing up and are left
    out; a task that has no bytes or only such links has no route (-1).
    """
    flows = (graph.route >= 0) & (graph.size > 0)
    is_finite = np.isfinite(graph.bandwidth)
    numbers: dict[tuple[int, ...], int] = {}
    number = np.full(len(graph.route_offsets), -1, dtype=np.int32)  # the last one is for -1
    for route in np.unique(graph.route[flows]).tolist():
        path = graph.routes[graph.route_offsets[route] : graph.route_offsets[route + 1]]
        finite = tuple(sorted(path[is_finite[path]].tolist()))
        if finite:
            number[route] = numbers.setdefault(finite, len(numbers))
    route_of = number[np.where(flows, graph.route, -1)]
    count = len(numbers)
    lengths = np.array([len(path) for path in numbers], dtype=np.int64)
    hops: Any = np.zeros(lengths.sum(), dtype=HOP)
    hops["link"] = [link for path in numbers for link in path]
    hops["route"] = np.repeat(np.arange(count), lengths)
    routes: Any = np.zeros(count + 1, dtype=ROUTE)
    routes["first"][1:] = np.cumsum(lengths)
    routes["of_flows"][1:] = np.cumsum(np.bincount(route_of[route_of >= 0], minlength=count))
    links: Any = np.zeros(len(graph.bandwidth) + 1, dtype=LINK)
    links["bandwidth"][:-1] = graph.bandwidth * 1e-12
    links["first"][1:] = np.cumsum(np.bincount(hops["link"], minlength=len(graph.bandwidth)))
    return Links(
        links=links,
        routes=routes,
        hops=hops,
        used=np.empty(len(hops), dtype=np.int64),
        flows=np.empty(routes["of_flows"][-1], dtype=FLOW),
        order=np.empty(count, dtype=np.int64),
        touched=np.empty(count, dtype=np.int64),
        near_links=np.empty(len(graph.bandwidth), dtype=np.int64),
        near_routes=np.empty(count, dtype=np.int64),
        open=np.empty(len(graph.bandwidth), dtype=FLOW),
        counts=np.zeros(2, dtype=np.int64),
    ), route_of


@inlined
def next_flow_end(links: Any) -> Any:
    """Return the instant at which the next flow ends; the last instant where nothing flows."""
    due = LAST_INSTANT
    if links.counts[IN_USE] > 0:
        due = links.routes[links.order[0]].due
    return due


@inlined
def begin_flow(links: Any, task: Any, number: Any, size: Any, now: Any) -> None:
    """Let the bytes of a task flow over its route; from when on, `share_out` says."""
    route = links.routes[number]
    if route.flows == 0:
        route.virtual = 0.0
        route.since = now
        _occupy(links, number)
    _advance(route, now)
    place_item(links.flows, route.of_flows, route.flows, route.virtual + size, task)
    route.flows += 1
    _set_due(links, number)
    _touch(links, number)


@inlined
def end_flow(links: Any, now: Any) -> Any:
    """Take away a flow that ends now and return its task; -1 where none is left that does."""
    task = -1
    if links.counts[IN_USE] > 0:
        number = links.order[0]
        route = links.routes[number]
        if route.due == now:
            task = links.flows[route.of_flows].item
            _advance(route, now)
            pop_item(links.flows, route.of_flows, route.flows, np.inf)
            route.flows -= 1
            _touch(links, number)
            if route.flows > 0:
                _set_due(links, number)
            else:
                _vacate(links, number)
    return task


@compiled_whole
def share_out(links: Any, now: Any) -> None:
    """Give every flow its max-min fair rate, after flows have begun or ended now."""
    found = 0
    for index in range(links.counts[TOUCHED]):
        number = links.touched[index]
        route = links.routes[number]
        route.is_touched = 0
        if route.flows != route.shared:
            route.shared = route.flows
            if route.flows == 0:
                route.rate = 0.0
            links.near_routes[found] = number
            route.is_near = 1
            found += 1
    links.counts[TOUCHED] = 0
    if found > 0:
        near_routes, near_links = _find_near(links, found)
        _fill(links, near_routes, near_links, now)


@inlined
def _find_near(links: Any, found: Any) -> Any:
    """Find all links and routes in use that those in `near_routes` lead to; return how many."""
    near_links = at = 0
    while at < found:
        number = links.near_routes[at]
        at += 1
        for hop in range(links.routes[number].first, links.routes[number + 1].first):
            link = links.links[links.hops[hop].link]
            if not link.is_near:
                link.is_near = 1
                links.near_links[near_links] = links.hops[hop].link
                near_links += 1
                for place in range(link.first, link.first + link.used):
                    other = links.hops[links.used[place]].route
                    if not links.routes[other].is_near:
                        links.routes[other].is_near = 1
                        links.near_routes[found] = other
                        found += 1
    return found, near_links


@inlined
def _fill(links: Any, near_routes: Any, near_links: Any, now: Any) -> None:
    """Share the near links out among the near routes."""
    for index in range(near_links):
        link = links.links[links.near_links[index]]
        link.is_near = 0
        link.left = link.bandwidth
        link.load = 0
    for index in range(near_routes):
        number = links.near_routes[index]
        for hop in range(links.routes[number].first, links.routes[number + 1].first):
            links.links[links.hops[hop].link].load += links.routes[number].flows
    open_links = 0
    for index in range(near_links):
        number = links.near_links[index]
        link = links.links[number]
        if link.load > 0:
            place_item(links.open, 0, open_links, link.left / link.load, number)
            open_links += 1
    while open_links > 0:
        number, level = links.open[0].item, links.open[0].key
        link = links.links[number]
        pop_item(links.open, 0, open_links, np.inf)
        open_links -= 1
        if link.load > 0:
            # What was fixed since has left more for each of the others; less only by rounding.
            share = max(level, link.left / link.load)
            if share > level:
                place_item(links.open, 0, open_links, share, number)
                open_links += 1
            else:
                for place in range(link.first, link.first + link.used):
                    _fix(links, links.hops[links.used[place]].route, share, now)
    for index in range(near_routes):
        links.routes[links.near_routes[index]].is_near = 0


@inlined
def _fix(links: Any, number: Any, share: Any, now: Any) -> None:
    """Give the flows of a route their rate, if they have none yet, and take it from its links."""
    route = links.routes[number]
    if route.is_near:
        route.is_near = 0
        for hop in range(route.first, links.routes[number + 1].first):
            link = links.links[links.hops[hop].link]
            link.left -= share * route.flows
            link.load -= route.flows
        if route.rate != share:
            _advance(route, now)
            route.rate = share
            _set_due(links, number)


@inlined
def _advance(route: Any, now: Any) -> None:
    """Give the flows of a route what has come since, at the rate that they had."""
    route.virtual += route.rate * (now - route.since)
    route.since = now


@inlined
def _set_due(links: Any, number: Any) -> None:
    """Note when the first flow of a route ends, if rates stay as they are from `since` on."""
    route = links.routes[number]
    due = LAST_INSTANT
    if route.rate > 0:
        lasts = max(0.0, (links.flows[route.of_flows].key - route.virtual) / route.rate)
        if lasts < 9.2e18 - route.since:
            whole = np.int64(lasts)
            due = route.since + whole
            if lasts - whole > FORGIVEN:
                due += 1
    route.due = due
    _reorder(links, route.rank)


@inlined
def _reorder(links: Any, at: Any) -> None:
    """Restore the heap of routes after the instant of the one that stands at `at` has changed."""
    order, routes, size = links.order, links.routes, links.counts[IN_USE]
    number = order[at]
    due = routes[number].due
    while at > 0 and routes[order[(at - 1) >> 1]].due > due:
        order[at] = order[(at - 1) >> 1]
        routes[order[at]].rank = at
        at = (at - 1) >> 1
    while True:
        child = 2 * at + 1
        if child + 1 < size and routes[order[child + 1]].due < routes[order[child]].due:
            child += 1
        if child >= size or due <= routes[order[child]].due:
            break
        order[at] = order[child]
        routes[order[at]].rank = at
        at = child
    order[at] = number
    routes[number].rank = at


@inlined
def _touch(links: Any, number: Any) -> None:
    if not links.routes[number].is_touched:
        links.routes[number].is_touched = 1
        links.touched[links.counts[TOUCHED]] = number
        links.counts[TOUCHED] += 1


@inlined
def _occupy(links: Any, number: Any) -> None:
    """Enter a route that gets its first flow in the lists of its links, and last in the order."""
    for hop in range(links.routes[number].first, links.routes[number + 1].first):
        link = links.links[links.hops[hop].link]
        links.hops[hop].place = link.first + link.used
        links.used[link.first + link.used] = hop
        link.used += 1
    links.routes[number].due = LAST_INSTANT
    links.routes[number].rank = links.counts[IN_USE]
    links.order[links.counts[IN_USE]] = number
    links.counts[IN_USE] += 1


@inlined
def _vacate(links: Any, number: Any) -> None:
    """Undo `_occupy` for a route that has lost its last flow."""
    for hop in range(links.routes[number].first, links.routes[number + 1].first):
        link = links.links[links.hops[hop].link]
        link.used -= 1
        last = links.used[link.first + link.used]
        place = links.hops[hop].place
        links.used[place] = last
        links.hops[last].place = place
    links.counts[IN_USE] -= 1
    at, last = links.routes[number].rank, links.order[links.counts[IN_USE]]
    if last != number:
        links.order[at] = last
        _reorder(links, at)
