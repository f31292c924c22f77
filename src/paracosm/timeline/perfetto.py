"""Write a timeline as a trace that Perfetto (https://ui.perfetto.dev) and chrome://tracing open.

The file is in the Trace Event Format (Google, 2016), JSON object form: a process per node, a thread
per resource, a complete event ("X") per span, a pair of flow events ("s", "f") per message, a
counter event ("C") per counter value. Times are in microseconds, rounded to Perfetto's nanoseconds;
begins and ends are rounded alike, so that touching spans remain so.

Perfetto's importer requires:

- The slices of a thread nest. Other overlapping spans of one resource get further threads.
- A flow event binds to the slice that its thread opened last. It directly follows its span.
- A flow is identified by id, name and category together. Both ends have the same.
- Events of one instant are taken in the order of the file. Sends are written before receives.
"""

import gzip
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import IO, Any

import numpy as np

from paracosm.arrays import Bools, Floats, Ints
from paracosm.errors import InputError
from paracosm.files import replacing
from paracosm.timeline.timeline import Spans, Timeline

_RESOURCES = ("compute", "send", "receive", "wait")  # in this order on the screen, then the others

_quoted = lru_cache(1024)(json.dumps)


def write_trace(timeline: Timeline, path: str | Path) -> None:
    """Write `timeline` as Trace Event Format JSON, compressed where `path` ends in ".gz".

    Messages with exactly one send and one receive span, begun in this order, get an arrow. Events
    are written as they are made; beside the timeline, memory holds a few numbers per span.
    """
    with replacing(path) as temporary, _open(temporary, str(path).endswith(".gz")) as file:
        file.write('{"displayTimeUnit":"ms","traceEvents":[\n')
        tracks = _Tracks(timeline)
        events = chain(_span_events(timeline, tracks), _counter_events(timeline, tracks))
        for event in events:
            file.write(event + ",\n")
        file.write(",\n".join(tracks.metadata()) + "\n]}\n")


def _open(path: Path, packed: bool) -> IO[str]:
    if packed:
        return gzip.open(path, "wt", encoding="utf-8", compresslevel=5)
    return open(path, "w", encoding="utf-8")


class _Tracks:
    def __init__(self, timeline: Timeline) -> None:
        nodes = {*timeline.spans.node.distinct(), *timeline.counters.node.distinct()}
        self.processes = {node: pid for pid, node in enumerate(sorted(nodes, key=_natural), 1)}
        # For each resource of a node its threads, and for each of those the ends of its open spans.
        self._open_ends: dict[tuple[str, str], list[tuple[int, list[int]]]] = {}
        self._threads = 0

    def thread(self, node: str, resource: str, begin: int, end: int) -> int:
        """Return the first thread of the resource on which the span nests."""
        threads = self._open_ends.setdefault((node, resource), [])
        for thread, ends in threads:
            while ends and ends[-1] <= begin:
                ends.pop()
            if not ends or end <= ends[-1]:
                ends.append(end)
                return thread
        self._threads += 1
        threads.append((self._threads, [end]))
        return self._threads

    def metadata(self) -> Iterator[str]:
        """Yield the events that name and order the processes and threads."""
        for node, pid in self.processes.items():
            yield _metadata("process_name", {"name": node}, pid)
            yield _metadata("process_sort_index", {"sort_index": pid}, pid)
        order = sorted(self._open_ends, key=lambda key: (_RESOURCES + key[1:]).index(key[1]))
        index = 0
        for node, resource in order:
            for lane, (thread, _) in enumerate(self._open_ends[node, resource], 1):
                index += 1
                name = resource if lane == 1 else f"{resource} ({lane})"
                yield _metadata("thread_name", {"name": name}, self.processes[node], thread)
                arguments = {"sort_index": index}
                yield _metadata("thread_sort_index", arguments, self.processes[node], thread)


def _span_events(timeline: Timeline, tracks: _Tracks) -> Iterator[str]:
    spans = timeline.spans
    begins, ends = _nanoseconds(spans.begin), _nanoseconds(spans.end)
    is_receive = spans.resource.isin("receive")
    arrows = _arrows(spans, begins)
    order = np.lexsort((-ends, is_receive, begins))
    columns = (begins[order].tolist(), ends[order].tolist(), arrows[order].tolist())
    for span, begin, end, arrow in zip(spans[order], *columns, strict=True):
        pid = tracks.processes[span.node]
        tid = tracks.thread(span.node, span.resource, begin, end)
        where = f'"pid":{pid},"tid":{tid},"ts":{_microseconds(begin)}'
        yield f'{{"ph":"X","name":{_quoted(span.name)},{where},"dur":{_microseconds(end - begin)}}}'
        if arrow:
            phase = '"ph":"f","bp":"e"' if span.resource == "receive" else '"ph":"s"'
            yield f'{{{phase},"name":"message","cat":"message","id":{span.flow},{where}}}'


def _counter_events(timeline: Timeline, tracks: _Tracks) -> Iterator[str]:
    counters = timeline.counters
    times = _nanoseconds(counters.time).tolist()
    for (node, name, _, value), time in zip(counters, times, strict=True):
        if isfinite(value):  # JSON has no other numbers
            where = f'"pid":{tracks.processes[node]},"tid":0,"ts":{_microseconds(time)}'
            yield f'{{"ph":"C","name":{_quoted(name)},{where},"args":{{"value":{value!r}}}}}'


def _arrows(spans: Spans, begins: Ints) -> Bools:
    """Return which spans are one end of a message with both ends in the right order."""
    (sent, first_send, sends), (received, first_receive, receives) = (
        np.unique(
            np.where(spans.resource.isin(resource), spans.flow, -1),
            return_index=True,
            return_counts=True,
        )
        for resource in ("send", "receive")
    )
    common, in_sent, in_received = np.intersect1d(sent, received, return_indices=True)
    begun, arrived = first_send[in_sent], first_receive[in_received]
    whole = (sends[in_sent] == 1) & (receives[in_received] == 1) & (common >= 0)
    whole &= begins[begun] <= begins[arrived]
    ends_of_arrows = np.zeros(len(spans), bool)
    ends_of_arrows[begun[whole]] = ends_of_arrows[arrived[whole]] = True
    return ends_of_arrows


def _nanoseconds(seconds: Floats) -> Ints:
    if not (np.abs(seconds) < 2**63 / 1e9).all():
        raise InputError("the timeline is damaged: a time is not a number, or beyond 292 years")
    return np.rint(seconds * 1e9).astype(np.int64)


def _microseconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1000:.3f}"


def _metadata(name: str, arguments: dict[str, Any], pid: int, tid: int = 0) -> str:
    return json.dumps({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": arguments})


def _natural(name: str) -> list[tuple[int, str]]:
    """Order worker2 before worker10."""
    parts = re.split(r"(\d{1,18})", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
