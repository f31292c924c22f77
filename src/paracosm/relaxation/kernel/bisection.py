"""Recursive bisection of a graph by breadth-first search, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from paracosm.compiled import compiled


@compiled
def bisect(pointer: Any, neighbours: Any, parts: Any) -> Any:
    """Return the part of each vertex, 0 to parts - 1; sizes differ by one vertex at most.

    A segment of the graph that is to become several parts is ordered by breadth-first search from a
    vertex far from the others (George and Liu, "Computer Solution of Large Sparse Positive Definite
    Systems", 1981: a pseudo-peripheral vertex) and cut in two where the sizes ask for it; each half
    is treated alike.

    Args:
        pointer, neighbours: the graph as symmetric CSR without loops, shapes (n + 1,) and (edges,).
        parts: how many, at most n.
    """
    n = pointer.size - 1
    owner = np.zeros(n, np.int64)
    order = np.arange(n)  # the vertices of every segment stand together
    mark = np.zeros(n, np.int64)
    segment = np.zeros(n, np.int64)
    queue = np.empty(n, np.int64)
    stack = np.empty((128, 2), np.int64)  # ranges of parts; a bisection is at most 64 deep
    stack[0, 0], stack[0, 1] = 0, parts
    depth, stamp, segments = 1, 0, 1
    while depth > 0:
        depth -= 1
        first, end = stack[depth, 0], stack[depth, 1]
        begin, stop = first * n // parts, end * n // parts
        if end - first == 1:
            for place in range(begin, stop):
                owner[order[place]] = first
            continue
        far = order[begin]
        for _ in range(3):
            stamp += 1
            _search(pointer, neighbours, order, begin, stop, far, segment, mark, stamp, queue)
            far = queue[stop - begin - 1]
        middle = (first + end) // 2
        cut = middle * n // parts
        for place in range(begin, stop):
            order[place] = queue[place - begin]
            if place >= cut:
                segment[order[place]] = segments
        segments += 1
        stack[depth, 0], stack[depth, 1] = first, middle
        stack[depth + 1, 0], stack[depth + 1, 1] = middle, end
        depth += 2
    return owner


@compiled
def _search(
    pointer: Any,
    neighbours: Any,
    order: Any,
    begin: Any,
    stop: Any,
    start: Any,
    segment: Any,
    mark: Any,
    stamp: Any,
    queue: Any,
) -> None:
    """Write the vertices of the segment at order[begin:stop] into `queue`, breadth first."""
    inside = segment[start]
    tail = 0
    following = begin
    for head in range(stop - begin):
        if head == tail:  # the next connected component
            vertex = start
            if head > 0:
                while mark[order[following]] == stamp:
                    following += 1
                vertex = order[following]
            mark[vertex] = stamp
            queue[tail] = vertex
            tail += 1
        vertex = queue[head]
        for place in range(pointer[vertex], pointer[vertex + 1]):
            neighbour = neighbours[place]
            if segment[neighbour] == inside and mark[neighbour] != stamp:
                mark[neighbour] = stamp
                queue[tail] = neighbour
                tail += 1
