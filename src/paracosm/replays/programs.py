"""Programs of ranks from the segments of their traces: rows, and where ranks meet."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paracosm.arrays import Codes, Ints
from paracosm.errors import InputError
from paracosm.jobs.job import KINDS, NOTHING_HELD, POLICIES, STEPS, Job, Program
from paracosm.jobs.writer import Codebook, write_communicators
from paracosm.replays.device import SHORTEST
from paracosm.replays.traced import WORK, Communication, Group, Segments, TracedRank
from paracosm.timeline.kineto.trace import Collective


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
    ranks: Mapping[int, Segments],
    offset: Mapping[int, float],
    groups: Sequence[Group],
    messages: "Sequence[Message]",
) -> tuple[Job, tuple[TracedRank, ...]]:
    """Return the job of what ranks did; `offset` are seconds to add to the times of each."""
    meetings = _Meetings({rank: place for place, rank in enumerate(ranks)})
    for group in groups:
        meetings.add_group(group, offset)
    for message in messages:
        meetings.add_message(message, offset)
    names, lanes, roles = books = Codebook(), Codebook(), Codebook()
    written = [
        _written(books, rank, segments, offset[rank], meetings.parts)
        for rank, segments in ranks.items()
    ]
    number = {role: number for number, role in enumerate(roles.texts)}
    communicator = np.full((len(ranks), len(number)), -1, dtype=np.int32)
    for place, of_role in enumerate(meetings.of_role):
        for role in of_role.keys() & number.keys():
            communicator[place, number[role]] = of_role[role]
    job = Job(
        names=names.texts,
        lanes=lanes.texts,
        policies=(POLICIES[0],) * len(lanes.texts),
        roles=roles.texts,
        programs=tuple(program for program, _ in written),
        program=np.arange(len(ranks), dtype=np.int32),
        speed=np.ones(len(ranks)),
        communicators=write_communicators(meetings.members),
        communicator=communicator,
        labels=tuple(f"rank {rank}" for rank in ranks),
        provenance={"traces": [str(segments.path) for segments in ranks.values()]},
    )
    return job, tuple(rank for _, rank in written)


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


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a segment that communicates, which has one or several."""

    times: tuple[float, float, float]  # at which it arrives, begins and ends; seconds of the job
    duration: float  # seconds
    after: tuple[int, ...] = ()  # rows of the segment; the first one: what the segment is after
    part: _Part | None = None
    lane: str = ""  # "": that of the segment
    work: str = ""  # "": that of the segment


def _written(
    books: tuple[Codebook, Codebook, Codebook],
    rank: int,
    segments: Segments,
    offset: float,
    parts: Mapping[int, list[_Part]],
) -> tuple[Program, TracedRank]:
    """Return the program of a rank: a row for each segment, or several for one that meets others.

    Where the rank begins later than the first one, all come after a row of that wait.
    """
    late = max(segments.start + offset, 0.0)
    start = int(late > 0)
    several = {
        call.row: _rows_of(call, offset, segments.lanes[segments.lane[call.row]], own_parts)
        for call in segments.communication
        if (own_parts := parts.get(id(call)))
    }
    counts = np.ones(len(segments), dtype=np.int64)
    counts[list(several)] = [len(rows) for rows in several.values()]
    first = start + np.cumsum(counts) - counts
    last = first + counts - 1
    before = np.zeros(start)  # of all columns, the row of that wait
    segment = np.repeat(np.arange(len(segments)), counts)
    lanes = [*segments.lanes, segments.thread]
    names = [*segments.names, "begins later"]
    arrive = np.concatenate((before, (segments.begin + offset)[segment]))
    end = np.concatenate((before + late, (segments.end + offset)[segment]))
    duration = np.concatenate((before + late, (segments.end - segments.begin)[segment]))
    begin = arrive.copy()
    lane, name, work, step, iteration = (
        np.concatenate((np.full(start, value), column[segment])).astype(np.int32)
        for value, column in (
            (len(segments.lanes), segments.lane),
            (len(segments.names), segments.name),
            (WORK.index("start"), segments.work),
            (STEPS.index("other"), segments.step),
            (-1, segments.iteration),
        )
    )
    kind = np.full(len(arrive), KINDS.index("task"), dtype=np.int32)
    role, size = np.full(len(arrive), -1, dtype=np.int32), np.zeros(len(arrive), dtype=np.int64)
    within = []  # pairs of a row and one that it comes after
    for of, rows in several.items():
        for at, row in enumerate(rows, start=int(first[of])):
            arrive[at], begin[at], end[at] = row.times
            duration[at] = row.duration
            if row.part is not None:
                kind[at], size[at] = KINDS.index(row.part.kind), row.part.size
                role[at] = books[2].code(row.part.role)
            if row.lane:
                lane[at] = len(lanes)
                lanes.append(row.lane)
            if row.work:
                work[at] = WORK.index(row.work)
            within += [(at, first[of] + other) for other in row.after]
    offsets, dependencies = _dependencies(segments, first, last, within, start)
    program = Program(
        name=_coded(books[0], names, name),
        step=step,
        kind=kind,
        lane=_coded(books[1], lanes, lane),
        duration=duration,
        offsets=offsets,
        dependencies=dependencies,
        role=role,
        size=size,
        priority=np.zeros(len(arrive), dtype=np.int32),
        microbatch=np.full(len(arrive), -1, dtype=np.int32),
        holdings=NOTHING_HELD,
    )
    traced = TracedRank(
        path=segments.path,
        rank=rank,
        arrive=arrive,
        begin=np.minimum(np.maximum(begin, arrive), end),
        end=end,
        work=work,
        marks=last[segments.marks],
        iteration=iteration,
        launches=last[segments.launches],
        spans=last[segments.spans],
        missing=segments.missing,
        has_device=segments.has_device,
    )
    return program, traced


def _dependencies(
    segments: Segments, first: Ints, last: Ints, within: Sequence[tuple[int, int]], start: int
) -> tuple[Ints, Ints]:
    """Return the CSR of what rows come after; `first` and `last` are those of each segment."""
    count = int(last[-1]) + 1
    owner = np.repeat(np.arange(len(segments)), np.diff(segments.offsets))
    added = np.array(within, dtype=np.int64).reshape(-1, 2)
    later = np.arange(1, count if start else 1)  # than the row of the wait
    rows = np.concatenate((first[owner], added[:, 0], later))
    others = np.concatenate((last[segments.after], added[:, 1], np.zeros_like(later)))
    pairs = rows * count + others
    pairs.sort()  # np.unique uses a hash table, ten times slower
    rows, others = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], count)
    return np.searchsorted(rows, np.arange(count + 1)), others


def _coded(book: Codebook, texts: Sequence[str], codes: Codes) -> Codes:
    """Return the codes that a job has for texts, which get new ones in the order of their rows."""
    present, first = np.unique(codes, return_index=True)
    of_job = np.full(len(texts), -1, dtype=np.int32)
    for code in present[np.argsort(first)].tolist():
        of_job[code] = book.code(texts[code])
    return of_job[codes]


def _rows_of(call: Communication, offset: float, lane: str, parts: list[_Part]) -> list[_Row]:
    arrive, end = call.begin + offset, call.end + offset
    if call.calls[0].is_message:
        return _exchanged(arrive, end, lane, parts)
    return _met(call, arrive, end, parts[0])


def _met(call: Communication, arrive: float, end: float, part: _Part) -> list[_Row]:
    """Return the rows of a collective: with all ranks, and until its own rank leaves it."""
    left = min(part.begin + part.duration, end) if call.on_host else end
    rows = [_Row((arrive, part.begin, left), part.duration, part=part)]
    if end - left > SHORTEST:
        rows.append(_Row((left, left, end), end - left, (0,)))
    return rows


def _exchanged(arrive: float, end: float, lane: str, parts: list[_Part]) -> list[_Row]:
    """Return the rows of a kernel that sends and receives messages."""
    rows: list[_Row] = []
    if len(parts) > 1:
        rows.append(_Row((arrive, arrive, arrive), 0.0))
    after = (0,) if rows else ()
    ends, left = [], arrive
    for number, part in enumerate(parts):
        own_lane = f"{lane}, message {number + 1}" if number else ""
        if part.kind == "receive":
            at_once, times = (arrive, arrive, arrive), (part.begin, part.begin, part.end)
            rows.append(_Row(at_once, 0.0, after, part, own_lane, "waiting"))
            rows.append(_Row(times, part.duration, (len(rows) - 1,), lane=own_lane))
        else:
            times = (arrive, part.begin, part.end)
            rows.append(_Row(times, part.duration, after, part, own_lane))
        ends.append(len(rows) - 1)
        left = max(left, part.end)
    if len(parts) > 1 or end - left > SHORTEST:
        # What it takes beyond its messages.
        last = max(left, end)
        rows.append(_Row((left, left, last), max(end - left, 0.0), tuple(ends)))
    return rows


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
    sent: Communication
    received: Communication
    size: int  # bytes; 0 where no trace says it


@dataclass(frozen=True, slots=True)
class Passage:
    """When a message went, in seconds of the job: of the sender, then of the receiver."""

    buffered: bool  # the sender does not wait for the receiver
    begin: tuple[float, float]
    end: tuple[float, float]


def messages_of(
    calls: Mapping[int, Sequence[Communication]], paths: Mapping[int, Path]
) -> list[Message]:
    """Return the messages of what the ranks communicate, which is in the order of issue.

    The k-th message that a rank sends another one in a process group is the k-th that this one
    receives from it.

    Raises:
        InputError: a trace does not say with whom a rank exchanges messages, the other's trace is
            not there, or what one sends the other does not receive.
    """
    ends: dict[tuple[str, int, int], tuple[list[_End], list[_End]]] = {}
    for rank in sorted(calls):
        for kernel in calls[rank]:
            for call in kernel.calls:
                if call.is_message:
                    peer = _peer(call, rank, calls, paths[rank])
                    sends = call.kind == "send"
                    key = (call.group, *((rank, peer) if sends else (peer, rank)))
                    ends.setdefault(key, ([], []))[not sends].append((kernel, call))
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


_End = tuple[Communication, Collective]


def _peer(call: Collective, rank: int, there: Mapping[int, object], path: Path) -> int:
    others = [other for other in call.ranks or tuple(there) if other != rank]
    peer = call.peer
    if peer < 0 and len(others) == 1:
        peer = others[0]
    way = f"{call.kind} {'to' if call.kind == 'send' else 'from'}"
    if peer < 0:
        raise InputError(
            f"{path}: {way} a rank that the trace does not name: newer versions of PyTorch do, but "
            "for gloo in a job with several process groups; --alone takes messages as long as they "
            "were"
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
