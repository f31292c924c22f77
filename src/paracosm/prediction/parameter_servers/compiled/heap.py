"""Binary heaps of events in arrays, for compiled loops; equal times: in the order of items."""

from __future__ import annotations

from typing import Any

from paracosm.replay.events_compiled import inlined

__all__ = ["place_event", "pop_event"]


@inlined
def place_event(heap: Any, first: Any, size: Any, key: Any, item: Any, op: Any) -> None:
    """Add an event to the heap `heap[first:first + size]`."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        above = heap[first + parent]
        if above.key < key or (above.key == key and above.item <= item):
            break
        below = heap[first + at]
        below.key, below.item, below.op = above.key, above.item, above.op
        at = parent
    below = heap[first + at]
    below.key, below.item, below.op = key, item, op


@inlined
def pop_event(heap: Any, first: Any, size: Any) -> None:
    """Remove the first event of the heap `heap[first:first + size]`."""
    last = heap[first + size - 1]
    key, item, op = last.key, last.item, last.op
    size -= 1
    at = 0
    child: Any = 1
    while child < size:
        low = heap[first + child]
        if child + 1 < size:
            other = heap[first + child + 1]
            if other.key < low.key or (other.key == low.key and other.item < low.item):
                low = other
                child += 1
        if key < low.key or (key == low.key and item <= low.item):
            break
        gap = heap[first + at]
        gap.key, gap.item, gap.op = low.key, low.item, low.op
        at = child
        child = 2 * at + 1
    gap = heap[first + at]
    gap.key, gap.item, gap.op = key, item, op
