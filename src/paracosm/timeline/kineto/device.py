"""The spans of the device in a window, with their calls, collectives and waits."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paracosm.arrays import Bools, Codes, Floats, Ints
from paracosm.timeline.kineto.communication import KINDS
from paracosm.timeline.kineto.trace import Collective, KinetoTrace, Window


@dataclass(frozen=True, eq=False)
class DeviceSpans:
    """m spans of streams, by begin; times in seconds from the trace's origin."""

    row: Ints  # of the trace
    begin: Floats  # that of the window for what began before it
    end: Floats
    stream: Codes  # lanes of the trace
    call: Ints  # rows of the calls that launched them; -1: before the window
    launched: Floats  # when those calls began; minus infinity
    thread: Codes  # lanes of those calls; -1
    earlier: Bools  # whether they were launched before the window

    def __len__(self) -> int:
        return len(self.row)


def device_spans(trace: KinetoTrace, window: Window) -> DeviceSpans:
    """Return spans launched in the window or running at its begin; without calls, all.

    If steps are marked on the device, spans are of the window in which they begin.
    """
    rows = trace.of("kernel", "copy", "memset")
    calls = trace.of("runtime", "other")
    calls = calls[trace.correlation[calls] >= 0]
    # Of several calls with one correlation (runtime and driver) the outermost comes first.
    numbers, first = np.unique(trace.correlation[calls], return_index=True)
    place = np.searchsorted(numbers, trace.correlation[rows])
    place = np.minimum(place, max(len(numbers) - 1, 0))
    known = np.zeros(len(rows), dtype=bool)
    call = np.full(len(rows), -1, dtype=np.int64)
    if len(numbers):
        known = (numbers[place] == trace.correlation[rows]) & (trace.correlation[rows] >= 0)
        call[known] = calls[first[place[known]]]
    launched = np.where(known, trace.begin[call], -np.inf)
    within = (launched >= window.begin) & (launched <= window.end)
    alone = ~known & (trace.begin[rows] <= window.end)
    running = (trace.end[rows] > window.begin) & (alone | (known & (launched < window.begin)))
    if window.on_device:
        inside = trace.begin[rows] < window.end
        within = known & inside & (trace.begin[rows] >= window.begin)
        running &= inside & ~within
    chosen = within | running
    rows, call, launched, within = rows[chosen], call[chosen], launched[chosen], within[chosen]
    known = known[chosen]
    return DeviceSpans(
        row=rows,
        begin=np.maximum(trace.begin[rows], window.begin),
        end=trace.end[rows],
        stream=trace.lane[rows],
        call=np.where(within, call, -1),
        launched=np.where(within, launched, -np.inf),
        thread=np.where(within, trace.lane[call], -1).astype(np.int32),
        earlier=known & ~within,
    )


class Calls:
    """Finds the description of the collective, or of the messages, that a kernel carries out.

    New traces have it at the kernel, older ones at the op that called it (`record_param_comms`) or
    the range below (`nccl:all_reduce`), which enclose the launch; the oldest have only the kernel's
    name. Coalesced calls (`batch_isend_irecv`) are launched as one kernel after the last of them:
    its launch is in none of their ranges.
    """

    def __init__(self, trace: KinetoTrace, spans: DeviceSpans) -> None:
        self._trace = trace
        rows = np.array(sorted(trace.collectives), dtype=np.int64)
        self._on = {
            lane: rows[trace.lane[rows] == lane] for lane in np.unique(trace.lane[rows]).tolist()
        }
        kernels = [code for code, name in enumerate(trace.names) if trace.kind_of_kernel(name)]
        launches = np.unique(spans.call[np.isin(trace.name[spans.row], kernels)])
        launches = launches[launches >= 0]
        self._coalesced: dict[int, list[Collective]] = {}
        for lane in np.unique(trace.lane[launches]).tolist():
            self._coalesce(lane, launches[trace.lane[launches] == lane])

    def of(self, row: int, call: int) -> tuple[Collective, ...]:
        """Return what the span in `row` is; `call` launched it, or -1.

        Empty for other kernels, several messages if one kernel sends and receives them.
        """
        trace = self._trace
        collective, kind = trace.collectives.get(row), trace.kind_of_kernel(trace.text(row))
        if collective is None and not kind:
            return ()
        together = self._coalesced.get(call, [])
        if together and all(kernel.is_message for kernel in together):
            return tuple(together)
        known = [collective] if collective is not None else []
        if call >= 0:
            known += self._around(int(trace.lane[call]), float(trace.begin[call]))
        collectives = _merged([*known, *together])
        return (collectives if collectives.kind else replace(collectives, kind=kind),)

    def _coalesce(self, lane: int, launches: Ints) -> None:
        """Record, for launches on a thread, the preceding calls without launches of their own."""
        trace = self._trace
        begins = trace.begin[launches]
        reached = -np.inf
        outer: list[list[int]] = []  # ranges, each with those within
        for row in self._on.get(lane, np.empty(0, dtype=np.int64)).tolist():
            if trace.begin[row] >= reached:
                outer.append([])
                reached = float(trace.end[row])
            outer[-1].append(row)
        for rows in outer:
            first, last = np.searchsorted(begins, (trace.begin[rows[0]], trace.end[rows[0]]))
            call = _merged([trace.collectives[row] for row in reversed(rows)])
            if first == last < len(launches) and call.kind in KINDS:
                self._coalesced.setdefault(int(launches[last]), []).append(call)
        for launch in launches.tolist():
            around = self._around(lane, float(trace.begin[launch]))
            if any(collective.kind for collective in around):  # one of its own
                self._coalesced.pop(launch, None)

    def _around(self, lane: int, time: float) -> Sequence[Collective]:
        trace = self._trace
        rows = self._on.get(lane)
        if rows is None:
            return []
        at = int(np.searchsorted(trace.begin[rows], time, side="right"))
        near = rows[max(at - 4, 0) : at][::-1]
        return [trace.collectives[row] for row in near.tolist() if trace.end[row] >= time]


def _merged(known: Sequence[Collective]) -> Collective:
    ranks = next((collective.ranks for collective in known if collective.ranks), ())
    place = next((collective.place for collective in known if collective.place >= 0), -1)
    there = ranks[place] if 0 <= place < len(ranks) else place if not ranks else -1
    return Collective(
        kind=next((collective.kind for collective in known if collective.kind), ""),
        size=next((collective.size for collective in known if collective.size >= 0), -1),
        group=next((collective.group for collective in known if collective.group), ""),
        group_size=next(
            (collective.group_size for collective in known if collective.group_size), 0
        ),
        ranks=ranks,
        peer=next((collective.peer for collective in known if collective.peer >= 0), there),
    )


LATE = 5e-6  # seconds without a reason that need one: a launch on an idle stream takes 2 to 5 us

_WAIT_CALL = re.compile(r"(cuda|hip|cu)StreamWaitEvent")


def waits_between_streams(trace: KinetoTrace, spans: DeviceSpans) -> dict[int, list[int]]:
    """Return, by number of a span, the numbers of the spans of other streams that it waits for.

    Where the profiler recorded its waits (`cuda_sync`), they say so: a wait makes the next span of
    its stream wait for the last span that was launched, before the event was recorded, to the other
    one. Where it did not, two rules stand in, as in replays of traces before this one (Zhu et al.,
    Daydream, USENIX ATC 2020; Hu et al., dPRO, MLSys 2022): after a call of `cudaStreamWaitEvent`
    the next launch of its thread waits for what was launched to other streams before the call; and
    a span that begins late, for no other reason, waits for the span of another stream that ended
    last before. Neither adds a wait that the trace contradicts.

    The spans of one launch, of a graph, wait for each other along its edges, and what is launched
    before and after for the graph as a whole. No profiler records that: here it is always the
    second rule.

    What the host communicates on threads of its own waits for none of the others.
    """
    streams = _Streams(trace, spans)
    if len(streams.order) < 2 or not trace.has_device:
        return {}
    if any(
        synchronisation.kind == "stream wait event"
        for synchronisation in trace.synchronisations.values()
    ):
        streams.add_recorded()
    elif not trace.synchronisations:
        streams.add_after_calls()
    streams.add_for_late(of_graphs_only=bool(trace.synchronisations))
    return streams.waits


class _Streams:
    """The spans of each stream, in order, and which of another one they wait for."""

    def __init__(self, trace: KinetoTrace, spans: DeviceSpans) -> None:
        self.trace, self.spans = trace, spans
        self.order = {
            int(lane): np.flatnonzero(spans.stream == lane) for lane in np.unique(spans.stream)
        }
        self.waits: dict[int, list[int]] = {}

    def add_recorded(self) -> None:
        """Add what the profiler saw."""
        trace, spans, order = self.trace, self.spans, self.order
        calls = trace.of("runtime", "other")
        call_at: dict[int, float] = dict(
            zip(trace.correlation[calls].tolist(), trace.begin[calls].tolist(), strict=True)
        )
        stream_of = {(trace.lanes[lane].owner, trace.lanes[lane].number): lane for lane in order}
        for row, seen in trace.synchronisations.items():
            if seen.kind != "stream wait event":
                continue
            owner = trace.lanes[trace.lane[row]].owner
            waiting, on = stream_of.get((owner, seen.stream)), stream_of.get((owner, seen.on))
            if waiting is None or on is None or waiting == on:
                continue
            called = call_at.get(int(trace.correlation[row]), float(trace.begin[row]))
            source = self._last_launched(on, call_at.get(seen.recorded, called))
            members = order[waiting]
            after = int(np.searchsorted(spans.launched[members], called, side="right"))
            if source >= 0 and after < len(members):
                target = int(members[after])
                if spans.end[source] <= spans.begin[target]:
                    self.waits.setdefault(target, []).append(source)

    def add_after_calls(self) -> None:
        """Add what the calls that make a stream wait hint at."""
        trace, spans = self.trace, self.spans
        wanted = [code for code, name in enumerate(trace.names) if _WAIT_CALL.match(name)]
        rows = np.flatnonzero(np.isin(trace.name, wanted))
        for thread in np.unique(trace.lane[rows]):
            called = trace.begin[rows[trace.lane[rows] == thread]]
            mine = np.flatnonzero(spans.thread == thread)
            launched = spans.launched[mine]
            mine = mine[np.argsort(launched, kind="stable")]
            launched = spans.launched[mine]
            target = np.searchsorted(launched, called, side="right")
            for at, time in dict(zip(target.tolist(), called.tolist(), strict=True)).items():
                if at == len(mine):
                    continue
                span = int(mine[at])
                for stream in self.order:
                    if stream != spans.stream[span]:
                        self._add(span, self._last_launched(stream, time))

    def add_for_late(self, of_graphs_only: bool) -> None:
        """Add a reason to spans that begin late without one, or only where a graph is involved."""
        trace, spans = self.trace, self.spans
        _, launch, sizes = np.unique(spans.call, return_inverse=True, return_counts=True)
        of_graph = (sizes[launch] > 1) & (spans.call >= 0)
        if of_graphs_only and not of_graph.any():
            return
        by_end = np.argsort(spans.end, kind="stable")
        ends = spans.end[by_end]
        for members in self.order.values():
            free = -np.inf
            for span in members.tolist():
                begin = spans.begin[span]
                known = [spans.end[other] for other in self.waits.get(span, ())]
                call = spans.call[span]
                issued = trace.end[call] if call >= 0 else spans.launched[span]
                ready = max(free, min(issued, begin), *known, -np.inf)
                free = max(free, spans.end[span])
                if call < 0 or begin - ready <= LATE:
                    continue
                at = int(np.searchsorted(ends, begin, side="right")) - 1
                while at >= 0 and ends[at] > ready:
                    other = int(by_end[at])
                    in_order = (
                        spans.call[other] == call or spans.launched[other] < spans.launched[span]
                    )
                    graph = of_graph[other] or of_graph[span]
                    if (
                        spans.stream[other] != spans.stream[span]
                        and in_order
                        and (graph or not of_graphs_only)
                    ):
                        self._add(span, other)
                        break
                    at -= 1

    def _add(self, span: int, other: int) -> None:
        """Note that a span waits for another one, unless it began before that ended."""
        if other >= 0 and self.spans.end[other] <= self.spans.begin[span]:
            known = self.waits.setdefault(span, [])
            if other not in known:
                known.append(other)

    def _last_launched(self, stream: int, before: float) -> int:
        members = self.order[stream]
        at = int(np.searchsorted(self.spans.launched[members], before, side="left")) - 1
        return int(members[at]) if at >= 0 else -1


@dataclass(frozen=True, slots=True)
class OpSpan:
    """One op."""

    record: int  # "Record function id", or -1
    thread: int  # lane; in each, ops come in the order of their begins
    name: str  # "aten::addmm"
    seconds: float  # of the device on all it launched, else its own on the host
    on_device: bool  # whether it launched anything


def op_times(trace: KinetoTrace) -> Iterator[OpSpan]:
    """Yield ops and named ranges by thread and begin; what they launched, the correlations say."""
    device = trace.of("kernel", "copy", "memset")
    known = device[trace.correlation[device] >= 0]
    work: dict[int, float] = {}
    for number, seconds in zip(
        trace.correlation[known].tolist(), trace.duration[known].tolist(), strict=True
    ):
        work[number] = work.get(number, 0.0) + seconds
    calls, ops = trace.of("runtime"), trace.of("op", "annotation")
    for lane in np.unique(trace.lane[ops]).tolist():
        if trace.lanes[lane].kind != "thread":
            continue
        here = calls[trace.lane[calls] == lane]
        launched = [row for row in here.tolist() if int(trace.correlation[row]) in work]
        begins = trace.begin[launched]
        sums = np.cumsum([0.0, *(work[int(trace.correlation[row])] for row in launched)])
        rows = ops[trace.lane[ops] == lane]
        first = np.searchsorted(begins, trace.begin[rows], side="left")
        last = np.searchsorted(begins, trace.end[rows], side="right")
        for row, low, high in zip(rows.tolist(), first.tolist(), last.tolist(), strict=True):
            seconds = float(sums[high] - sums[low]) if high > low else float(trace.duration[row])
            yield OpSpan(int(trace.record[row]), lane, trace.text(row), seconds, high > low)
