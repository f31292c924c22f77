"""Collectives and messages of the host: gloo, MPI and UCC, in traces without a device.

torch.distributed marks each of them by a range ("gloo:all_reduce"). Gloo's collectives run on
threads of their own, and the range is on that thread, from when it begins (`AsyncWork::execute` in
PyTorch's ProcessGroupGloo.cpp). All others, and gloo's messages, are marked on the thread that
calls them, from the call to the end (`Work::Work` in its Work.cpp). The call itself is an op of
"c10d", which enqueues and returns; the host waits later, between ops or in `wait_tensor`.

Neither says its process group. That of a collective of gloo's is the one that its thread works for.
A message has the place in its group of the other end: which rank that is, is known where it is the
same one in all groups.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from paracosm.arrays import Ints
from paracosm.timeline.kineto.categories import CATEGORIES
from paracosm.timeline.kineto.communication import HOST_BACKENDS, collective_of, is_on_gloo_thread
from paracosm.timeline.kineto.trace import Collective, KinetoTrace, Lane, Ranges, counted

_RANGE = re.compile(rf"({'|'.join(HOST_BACKENDS)}):\w")
_CALL = re.compile("c10d::")
_WAIT = re.compile("_?c10d_functional::wait_tensor")
_KERNEL, _CALLED, _NAMED = (CATEGORIES.index(word) for word in ("kernel", "runtime", "annotation"))


def host_communication(trace: KinetoTrace) -> KinetoTrace:
    """Return a trace whose host communication is on lanes of its own, as kernels are on streams.

    The ops that call it launch it. Those that only wait for it, or that run within it on gloo's
    threads, are no longer ops. A trace of a device is returned as it is.
    """
    spans = [] if trace.has_device else _rows(trace, _RANGE, "op", "annotation").tolist()
    if not spans:
        return trace
    kinds = {row: collective_of(trace.text(row)) for row in spans}
    on_thread = [row for row in spans if is_on_gloo_thread(trace.text(row))]
    calls = _calls(trace, kinds, set(on_thread))
    category, lane, correlation = trace.category.copy(), trace.lane.copy(), trace.correlation.copy()
    category[_rows(trace, _WAIT, "op")] = _NAMED
    category[_ops_within(trace, on_thread)] = _NAMED
    lanes = {place: number for number, place in enumerate(trace.lanes)}
    collectives: dict[int, Collective] = {}
    for number, row in enumerate(spans, start=int(correlation.max()) + 1):
        call = calls.get(row)
        described = trace.collectives.get(-1 if call is None else call, Collective(""))
        own = replace(trace.collectives.get(row, described), kind=kinds[row], place=described.place)
        if (group := trace.group_of_thread.get(int(trace.lane[row]))) and row in on_thread:
            own = replace(own, group=group.name, group_size=len(group.ranks), ranks=group.ranks)
        collectives[row] = _with_peer(own, trace)
        category[row], correlation[row] = _KERNEL, number
        place = _lane(trace, row, own, row in on_thread)
        lane[row] = lanes.setdefault(place, len(lanes))
        if call is not None:
            category[call], correlation[call] = _CALLED, number
    return replace(
        trace,
        category=category,
        lane=lane,
        lanes=tuple(lanes),
        correlation=correlation,
        collectives=collectives,
    )


def communication_among_ops(trace: KinetoTrace) -> list[str]:
    """Say how much communication a trace without a device has, for who reads its ops alone."""
    rows = [] if trace.has_device else _rows(trace, _RANGE, "op", "annotation").tolist()
    if not rows:
        return []
    count = counted(len(rows), "span")
    return [f"{count} of communication on the host not told from ops: {trace.text(rows[0])}"]


def _rows(trace: KinetoTrace, pattern: re.Pattern[str], *categories: str) -> Ints:
    """Return the rows of some categories whose names begin with a pattern."""
    codes = [code for code, name in enumerate(trace.names) if pattern.match(name)]
    rows = trace.of(*categories)
    return rows[np.isin(trace.name[rows], codes)]


def _with_peer(own: Collective, trace: KinetoTrace) -> Collective:
    """Return a message of one of several groups with its other end, if all say the same rank."""
    if not own.is_message or own.place < 0 or own.peer >= 0 or len(trace.groups) < 2:
        return own
    at_place = {group.ranks[own.place] for group in trace.groups if own.place < len(group.ranks)}
    others = at_place - {trace.rank}
    return replace(own, place=-1, peer=others.pop() if len(others) == 1 else -1)


def _lane(trace: KinetoTrace, row: int, own: Collective, on_thread: bool) -> Lane:
    """Return where a span of communication is shown: those of one lane come one after another."""
    thread, backend = trace.lanes[int(trace.lane[row])], trace.text(row).partition(":")[0]
    if on_thread:
        return Lane(f"{backend} thread", thread.owner, thread.number)
    if not own.is_message:
        return Lane(backend, thread.owner, "collectives")
    other = f" {'to' if own.kind == 'send' else 'from'} {own.place}" if own.place >= 0 else ""
    return Lane(backend, thread.owner, f"{own.kind}{other}")


def _calls(trace: KinetoTrace, kinds: Mapping[int, str], on_thread: set[int]) -> dict[int, int]:
    """Return the rows of the ops that called spans.

    What is marked on the calling thread begins within its call. Gloo's threads take what was called
    in its order: the k-th span of a kind is of the k-th call. Gloo does some collectives by others
    (reduce-scatter by all-reduce): spans that are left over are of calls of kinds without spans.
    """
    called = _rows(trace, _CALL, "op")
    waiting: dict[tuple[str, str], deque[int]] = defaultdict(deque)
    for row in called.tolist():
        kind = collective_of(trace.text(row))
        kind = kind if kind in kinds.values() else ""
        waiting[trace.lanes[int(trace.lane[row])].owner, kind].append(row)
    by_thread = {number: called[trace.lane[called] == number] for number in range(len(trace.lanes))}
    op_of_span: dict[int, int] = {}
    for row, kind in kinds.items():
        thread, begin = int(trace.lane[row]), trace.begin[row]
        if row not in on_thread:
            own = by_thread[thread]
            at = int(np.searchsorted(trace.begin[own], begin, side="right")) - 1
            if at >= 0 and trace.end[own[at]] >= begin:
                op_of_span[row] = int(own[at])
            continue
        for queue in (waiting[trace.lanes[thread].owner, each] for each in (kind, "")):
            if queue and trace.begin[queue[0]] <= begin:
                op_of_span[row] = queue.popleft()
                break
    return op_of_span


def _ops_within(trace: KinetoTrace, spans: Iterable[int]) -> Ints:
    """Return the rows of the ops that spans on threads of their own call."""
    within = Ranges(trace, spans)
    return np.array(
        [
            row
            for row in trace.of("op").tolist()
            if within.covers(int(trace.lane[row]), float(trace.begin[row]))
        ],
        dtype=np.int64,
    )
