"""Binary heaps in arrays, and instants, for compiled loops. The caller keeps the sizes.

The smallest item is first. Items move into a gap instead of being swapped.
"""

from typing import Any

import numpy as np

from paracosm.compiled import inlined
from paracosm.network.clock import LAST_INSTANT

NOBODY = -1
"""Instead of a number: that of nothing and nobody."""

NEVER = -1
"""The instant of what has not happened."""


@inlined
def later(now: Any, duration: Any) -> Any:
    """Return the instant `duration` picoseconds after `now`; the last instant if that is later."""
    return now + min(duration, LAST_INSTANT - now)


@inlined
def place_item(heap: Any, first: Any, size: Any, key: Any, item: Any) -> None:
    """Add an item to the heap `heap[first:first + size]`; equal keys come in any order."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if heap[first + parent].key <= key:
            break
        heap[first + at].key = heap[first + parent].key
        heap[first + at].item = heap[first + parent].item
        at = parent
    heap[first + at].key = key
    heap[first + at].item = item


@inlined
def pop_item(heap: Any, first: Any, size: Any, most: Any) -> None:
    """Remove the first item of the heap `heap[first:first + size]`, in which no key is above
    `most`.

    The gap goes down to a leaf and the last item up from there: the smaller child is found by
    addition, without a branch that a processor would have to predict.
    """
    last = size - 1
    key, item = heap[first + last].key, heap[first + last].item
    heap[first + last].key = most
    at = 0
    child: Any = 1
    while child < last:
        child += np.int64(heap[first + child + 1].key < heap[first + child].key)
        heap[first + at].key = heap[first + child].key
        heap[first + at].item = heap[first + child].item
        at = child
        child = 2 * at + 1
    while at > 0:
        parent = (at - 1) >> 1
        if heap[first + parent].key <= key:
            break
        heap[first + at].key = heap[first + parent].key
        heap[first + at].item = heap[first + parent].item
        at = parent
    heap[first + at].key = key
    heap[first + at].item = item


@inlined
def replace_first(heap: Any, size: Any, key: Any, item: Any) -> None:
    """Replace the first item of the heap `heap[:size]`."""
    at = 0
    child: Any = 1
    while child < size:
        if child + 1 < size:
            child += np.int64(heap[child + 1].key < heap[child].key)
        if key <= heap[child].key:
            break
        heap[at].key = heap[child].key
        heap[at].item = heap[child].item
        at = child
        child = 2 * at + 1
    heap[at].key = key
    heap[at].item = item


@inlined
def place_task(rows: Any, tasks: Any, first: Any, size: Any, row: Any) -> None:
    """Add a row to the heap `rows[first:first + size]` by (key of the task, row)."""
    key = tasks[row].key
    at = size
    while at > 0:
        parent = rows[first + ((at - 1) >> 1)]
        above = tasks[parent].key
        if above < key or (above == key and parent < row):
            break
        rows[first + at] = parent
        at = (at - 1) >> 1
    rows[first + at] = row


@inlined
def pop_task(rows: Any, tasks: Any, first: Any, size: Any) -> None:
    """Remove the first row of the heap `rows[first:first + size]` by (key of the task, row)."""
    last = size - 1
    row = rows[first + last]
    key = tasks[row].key
    at = 0
    while True:
        child = 2 * at + 1
        if child >= last:
            break
        below = rows[first + child]
        if child + 1 < last:
            other = rows[first + child + 1]
            if tasks[other].key < tasks[below].key or (
                tasks[other].key == tasks[below].key and other < below
            ):
                child += 1
                below = other
        if key < tasks[below].key or (key == tasks[below].key and row < below):
            break
        rows[first + at] = below
        at = child
    rows[first + at] = row


@inlined
def place_event(heap: Any, size: Any, key: Any, item: Any, op: Any) -> None:
    """Add an event to the heap `heap[:size]` by (key, item)."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        above = heap[parent]
        if above.key < key or (above.key == key and above.item <= item):
            break
        below = heap[at]
        below.key, below.item, below.op = above.key, above.item, above.op
        at = parent
    below = heap[at]
    below.key, below.item, below.op = key, item, op


@inlined
def pop_event(heap: Any, size: Any) -> None:
    """Remove the first event of the heap `heap[:size]` by (key, item)."""
    last = heap[size - 1]
    key, item, op = last.key, last.item, last.op
    size -= 1
    at = 0
    child: Any = 1
    while child < size:
        low = heap[child]
        if child + 1 < size:
            other = heap[child + 1]
            if other.key < low.key or (other.key == low.key and other.item < low.item):
                low = other
                child += 1
        if key < low.key or (key == low.key and item <= low.item):
            break
        gap = heap[at]
        gap.key, gap.item, gap.op = low.key, low.item, low.op
        at = child
        child = 2 * at + 1
    gap = heap[at]
    gap.key, gap.item, gap.op = key, item, op
