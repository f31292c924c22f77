"""Programs of ranks from the segments of their traces: rows, and where ranks meet."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from paracosm.errors import InputError
from paracosm.jobs.job import Job
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job
from paracosm.replays.device import SHORTEST
from paracosm.replays.segments import Segments
from paracosm.replays.traced import WORK, Group, Segment, TracedRank
from paracosm.timeline.kineto.trace import Collective, KinetoTrace, Window

MESSAGE = "send_recv"
"""What both ends of a message are called: a kernel may have several of either kind."""


@dataclass(frozen=True, eq=False)
class TracedSegments:
    """What a rank did, and seconds to add to its times."""

    trace: KinetoTrace
    window: Window
    segments: Segments
    offset: float


@dataclass(frozen=True, slots=True)
class _Part:
    """What a segment does with other ranks: a collective, or one end of a message."""

    kind: str
    role: str
    size: int
    duration: float
    begin: float  # when the last rank has come, in seconds of the job
    end: float


def write_programs(
    ranks: Mapping[int, TracedSegments], groups: Sequence[Group], messages: "Sequence[Message]"
) -> tuple[Job, tuple[TracedRank, ...]]:
    offset = {rank: did.offset for rank, did in ranks.items()}
    meetings = _Meetings({rank: number for number, rank in enumerate(ranks)})
    for group in groups:
        meetings.add_group(group, offset)
    for message in messages:
        meetings.add_message(message, offset)
    books = Codebook(), Codebook(), Codebook()
    writers, traced = [], []
    for rank, did in ranks.items():
        writer = ProgramWriter(*books)
        traced.append(_written(writer, rank, did, meetings.parts))
        writers.append(writer)
    job = write_job(
        writers,
        list(range(len(ranks))),
        write_communicators(meetings.members),
        meetings.of_role,
        labels=[f"rank {rank}" for rank in ranks],
        provenance={"traces": [str(did.trace.path) for did in ranks.values()]},
    )
    return job, tuple(traced)


class _Meetings:
    """The communicators of a job, and what segments do on them."""

    def __init__(self, place: Mapping[int, int]) -> None:
        self._place = place  # of each rank in the job
        self.members: list[list[int]] = []
        self.of_role: list[dict[str, int]] = [{} for _ in place]
        self.parts: dict[int, list[_Part]] = {}  # by id of the segment
        self._channels: dict[tuple[str, int, int, bool], str] = {}

    def add_group(self, group: Group, offset: Mapping[int, float]) -> None:
        role = f"group {group.name}" if group.name else "all"
        if any(role in self.of_role[self._place[rank]] for rank in group.ranks):
            role = f"{role} ({len(self.members)})"  # a rank has two of the name
        self._add(role, group.ranks)
        offsets = [offset[rank] for rank in group.ranks]
        for meeting in zip(*group.calls, strict=True):
            # The rank that came last did not wait: the collective took as long as it took there.
            took = min(segment.end - segment.begin for segment in meeting)
            began = max(segment.begin + by for segment, by in zip(meeting, offsets, strict=True))
            if meeting[0].on_host:  # its ranks leave one after another
                left = min(segment.end + by for segment, by in zip(meeting, offsets, strict=True))
                took = max(min(took, left - began), 0.0)
            for segment, by in zip(meeting, offsets, strict=True):
                size = max(segment.calls[0].size, 0)
                part = _Part("collective", role, size, took, began, segment.end + by)
                self.parts[id(segment)] = [part]

    def add_message(self, message: "Message", offset: Mapping[int, float]) -> None:
        went = passage(message, offset)
        channel = (message.group, message.source, message.target, went.buffered)
        role = self._channels.get(channel)
        if role is None:
            kind = "buffered message" if went.buffered else "message"
            role = f"{kind} from {message.source} to {message.target} {message.group}".strip()
            self._channels[channel] = role
            self._add(role, (message.source, message.target))
        ends = ("send", "receive") if went.buffered else ("collective", "collective")
        for segment, kind, begin, end in zip(
            (message.sent, message.received), ends, went.begin, went.end, strict=True
        ):
            part = _Part(kind, role, message.size, end - begin, begin, end)
            self.parts.setdefault(id(segment), []).append(part)

    def _add(self, role: str, ranks: Iterable[int]) -> None:
        places = [self._place[rank] for rank in ranks]
        for place in places:
            self.of_role[place][role] = len(self.members)
        self.members.append(places)


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of a program: what a `TracedRank` says of them."""

    writer: ProgramWriter
    start: list[int]  # the row in which the rank begins later than the first one, if it does
    arrive: list[float] = field(default_factory=list)
    begin: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    work: list[int] = field(default_factory=list)
    iteration: list[int] = field(default_factory=list)

    def add(
        self,
        segment: Segment,
        times: tuple[float, float, float],
        duration: float,
        after: Sequence[int],
        *,
        work: str = "",
        part: _Part | None = None,
        lane: str = "",
    ) -> int:
        """Write a row of a segment; `times` are those at which it arrives, begins and ends."""
        name = segment.name
        if segment.calls:
            name = MESSAGE if segment.calls[0].is_message else segment.calls[0].kind
        arrive, begin, end = times
        self.arrive.append(arrive)
        self.begin.append(min(max(begin, arrive), end))
        self.end.append(end)
        self.work.append(WORK.index(work or segment.work))
        self.iteration.append(segment.iteration)
        return self.writer.add(
            name,
            lane or segment.lane,
            duration,
            [*after, *self.start],
            step=segment.step,
            kind="task" if part is None else part.kind,
            role=None if part is None else part.role,
            size=0 if part is None else part.size,
        )


def _written(
    writer: ProgramWriter, number: int, rank: TracedSegments, parts: Mapping[int, list[_Part]]
) -> TracedRank:
    rows = _Rows(writer, [])
    late = rank.window.begin + rank.offset
    if late > 0:
        begin = rank.window.begin
        thread = rank.window.thread
        lane = rank.trace.lane_names[thread] if thread >= 0 else "start"
        waiting = Segment(begin - late, begin, lane, "begins later", "start")
        rows.start.append(rows.add(waiting, (0.0, 0.0, late), late, []))
    for segment in rank.segments.segments:
        after = [before.row for before in segment.after]
        arrive, end = segment.begin + rank.offset, segment.end + rank.offset
        segment_parts = parts.get(id(segment), [])
        if not segment_parts:
            times = (arrive, arrive, end)
            segment.row = rows.add(segment, times, segment.end - segment.begin, after)
        elif not segment.calls[0].is_message:
            segment.row = _met(rows, segment, arrive, end, after, segment_parts[0])
        else:
            segment.row = _exchanged(rows, segment, arrive, end, after, segment_parts)
    segments = rank.segments
    marks = segments.marks if segments.last is None else [*segments.marks, segments.last]
    return TracedRank(
        path=rank.trace.path,
        rank=number,
        arrive=np.array(rows.arrive),
        begin=np.array(rows.begin),
        end=np.array(rows.end),
        work=np.array(rows.work, dtype=np.int32),
        marks=np.array([segment.row for segment in marks], dtype=np.int64),
        iteration=np.array(rows.iteration, dtype=np.int32),
        launches=np.array([launch.row for launch, _ in segments.launched], dtype=np.int64),
        spans=np.array([span.row for _, span in segments.launched], dtype=np.int64),
        missing=rank.trace.missing,
        has_device=rank.trace.has_device,
    )


def _met(
    rows: _Rows, segment: Segment, arrive: float, end: float, after: list[int], part: _Part
) -> int:
    """Write the rows of a collective: with all ranks, and until its own rank leaves it."""
    left = min(part.begin + part.duration, end) if segment.on_host else end
    row = rows.add(segment, (arrive, part.begin, left), part.duration, after, part=part)
    if end - left > SHORTEST:
        row = rows.add(segment, (left, left, end), end - left, [row])
    return row


def _exchanged(
    rows: _Rows, segment: Segment, arrive: float, end: float, after: list[int], parts: list[_Part]
) -> int:
    """Write the rows of a kernel that sends and receives messages; return the last."""
    if len(parts) > 1:
        after = [rows.add(segment, (arrive, arrive, arrive), 0.0, after)]
    ends, left = [], arrive
    for number, part in enumerate(parts):
        lane = segment.lane if not number else f"{segment.lane}, message {number + 1}"
        taken, before = part.duration, after
        if part.kind == "receive":
            times = (arrive, arrive, arrive)
            before = [rows.add(segment, times, 0.0, after, work="waiting", part=part, lane=lane)]
            times = (part.begin, part.begin, part.end)
            ends.append(rows.add(segment, times, taken, before, lane=lane))
        else:
            times = (arrive, part.begin, part.end)
            ends.append(rows.add(segment, times, taken, before, part=part, lane=lane))
        left = max(left, part.end)
    if len(parts) > 1 or end - left > SHORTEST:
        # What it takes beyond its messages.
        return rows.add(segment, (left, left, max(left, end)), max(end - left, 0.0), ends)
    return ends[0]


AGREE = 10e-6  # seconds, to which the clocks of ranks on one machine do


@dataclass(frozen=True, slots=True)
class Message:
    """What goes from one rank to another one.

    It shows in the traces of both ranks, as a kernel of each. Where the sender's has ended before
    the receiver's begins, the data has waited in a buffer: the sender waits for nobody, and the
    receiver takes it from there. Otherwise each waits for the other, and the message goes from when
    the second one has come until the first one ends. One kernel may send and receive several; it
    ends with the last of them.
    """

    source: int
    target: int
    group: str  # name of the process group, or ""
    sent: Segment
    received: Segment
    size: int  # bytes; 0 where no trace says it


@dataclass(frozen=True, slots=True)
class Passage:
    """When a message went, in seconds of the job: of the sender, then of the receiver."""

    buffered: bool  # the sender does not wait for the receiver
    begin: tuple[float, float]
    end: tuple[float, float]


def messages_of(
    segments: Mapping[int, Sequence[Segment]], paths: Mapping[int, Path]
) -> list[Message]:
    """Return the messages of the ranks' segments, which are in the order of issue.

    The k-th message that a rank sends another one in a process group is the k-th that this one
    receives from it.

    Raises:
        InputError: a trace does not say with whom a rank exchanges messages, the other's trace is
            not there, or what one sends the other does not receive.
    """
    ends: dict[tuple[str, int, int], tuple[list[_End], list[_End]]] = {}
    for rank in sorted(segments):
        for segment in segments[rank]:
            for call in segment.calls:
                if call.is_message:
                    peer = _peer(call, rank, segments, paths[rank])
                    sends = call.kind == "send"
                    key = (call.group, *((rank, peer) if sends else (peer, rank)))
                    ends.setdefault(key, ([], []))[not sends].append((segment, call))
    messages = []
    for (group, source, target), (sent, received) in sorted(ends.items()):
        if len(sent) != len(received):
            where = f" in group {group}" if group else ""
            raise InputError(
                f"{paths[target]}: {len(received)} messages from rank {source}{where}, which sends "
                f"{len(sent)}: the traces are not of the same steps"
            )
        for (one, call), (other, _) in zip(sent, received, strict=True):
            if source != target:
                messages.append(Message(source, target, group, one, other, max(call.size, 0)))
    return messages


_End = tuple[Segment, Collective]


def _peer(call: Collective, rank: int, there: Mapping[int, object], path: Path) -> int:
    others = [other for other in call.ranks or tuple(there) if other != rank]
    peer = call.peer
    if peer < 0 and len(others) == 1:
        peer = others[0]
    way = f"{call.kind} {'to' if call.kind == 'send' else 'from'}"
    if peer < 0:
        raise InputError(
            f"{path}: {way} a rank that the trace does not name: newer versions of PyTorch do; "
            "--alone takes messages as long as they were"
        )
    if peer not in there:
        raise InputError(
            f"{path}: {way} rank {peer}, and there is no trace of rank {peer}: give one of every "
            "rank, or --alone to take messages as long as they were"
        )
    return peer


def passage(message: Message, offset: Mapping[int, float]) -> Passage:
    """Return when a message went; `offset` are seconds to add to the times of each rank."""
    by, to = offset[message.source], offset[message.target]
    sent, received = message.sent, message.received
    came, left = (sent.begin + by, received.begin + to), (sent.end + by, received.end + to)
    if left[0] + AGREE <= came[1]:
        # What else a kernel waits for does not count: not longer than the other end took.
        times = left[0] - came[0], left[1] - came[1]
        longest = [
            time if len(segment.calls) == 1 else min(times)
            for segment, time in zip((sent, received), times, strict=True)
        ]
        return Passage(True, came, (came[0] + longest[0], came[1] + longest[1]))
    begin = max(came)
    end = max(begin, min(left))
    return Passage(False, (begin, begin), (end, end))
