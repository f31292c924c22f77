"""Traces of the ranks of a job, as a job that can be played again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paracosm.errors import InputError
from paracosm.jobs import Codebook, Job, ProgramWriter, write_communicators, write_job
from paracosm.prediction.traces.segments import Segments, segments_of
from paracosm.prediction.traces.traced import WORK, Segment, TracedJob, TracedRank
from paracosm.timeline.kineto import (
    Collective,
    KinetoTrace,
    Window,
    read_kineto,
    steps_of,
    window_of,
)


def read_job(
    paths: Sequence[Path], steps: Sequence[int] | None = None, alone: bool = False
) -> TracedJob:
    """Read the trace of every rank of a job.

    Args:
        paths: one file for each rank.
        steps: numbers of the steps to take; all that every trace has without it.
        alone: whether to do without the traces of other ranks: a collective then takes as long as
            it took, with what it waited for them.

    Raises:
        InputError: a trace cannot be read; ranks are missing or given twice; they share no steps,
            or their collectives do not match.
    """
    return job_of_traces([read_kineto(path) for path in paths], steps, alone)


def job_of_traces(
    traces: Sequence[KinetoTrace], steps: Sequence[int] | None = None, alone: bool = False
) -> TracedJob:
    """Return the job of these traces, one for each rank; the arguments are those of `read_job`."""
    ranked = _by_rank(traces)
    numbers = _common_steps(ranked) if steps is None else tuple(sorted(set(steps)))
    if alone and len(ranked) > 1:
        raise InputError("--alone is for the trace of one rank: leave it out, or give one trace")
    windows = {
        rank: window_of(trace, numbers if numbers else None) for rank, trace in ranked.items()
    }
    segments = {rank: segments_of(trace, windows[rank]) for rank, trace in ranked.items()}
    for rank, trace in ranked.items():
        if not segments[rank].segments:
            where = "in the steps that are taken" if numbers else "in it"
            raise InputError(f"{trace.path}: nothing ran {where}: no op, call or kernel takes time")
    groups = _groups(ranked, segments, alone)
    origins = {rank: trace.origin for rank, trace in ranked.items()}
    offset, by_clock = shifts(origins, groups), shifts(origins, ())
    moved = {
        rank: offset[rank] - by_clock[rank]
        for rank in ranked
        if abs(offset[rank] - by_clock[rank]) > TOLERANCE
    }
    start = min(windows[rank].begin + offset[rank] for rank in ranked)
    written = write_programs(
        [
            TracedSegments(trace, windows[rank], segments[rank], offset[rank] - start)
            for rank, trace in ranked.items()
        ],
        list(ranked),
        groups,
    )
    return TracedJob(*written, numbers, alone, moved)


def _by_rank(traces: Sequence[KinetoTrace]) -> dict[int, KinetoTrace]:
    """Return traces by rank; where no trace says its own, they are in order."""
    if not traces:
        raise InputError("no traces: give one file for each rank")
    known = [trace for trace in traces if trace.rank is not None]
    if not known:
        return dict(enumerate(traces))
    if len(known) < len(traces):
        silent = next(trace for trace in traces if trace.rank is None)
        raise InputError(f'{silent.path}: lacks "distributedInfo", which says the rank')
    ranked: dict[int, KinetoTrace] = {}
    for trace in known:
        assert trace.rank is not None
        if trace.rank in ranked:
            raise InputError(
                f"{trace.path}: of rank {trace.rank}, and so is {ranked[trace.rank].path}: give "
                "one trace of each rank"
            )
        ranked[trace.rank] = trace
    return dict(sorted(ranked.items()))


def _common_steps(ranked: Mapping[int, KinetoTrace]) -> tuple[int, ...]:
    marked = {rank: {step.number for step in steps_of(trace)} for rank, trace in ranked.items()}
    common = set.intersection(*marked.values())
    if not common and any(marked.values()):
        one, other = (
            next(rank for rank in marked if marked[rank]),
            next((rank for rank in marked if not marked[rank]), max(marked)),
        )
        raise InputError(
            f"{ranked[other].path}: shares no step with {ranked[one].path}: "
            f"{_span(marked[other])} against {_span(marked[one])}"
        )
    return tuple(sorted(common))


def _span(numbers: set[int]) -> str:
    return f"{min(numbers)} to {max(numbers)}" if numbers else "none"


def _groups(
    ranked: Mapping[int, KinetoTrace], segments: Mapping[int, Segments], alone: bool
) -> list[Group]:
    if alone:
        return []
    worlds = {trace.world_size for trace in ranked.values() if trace.world_size is not None}
    if len(worlds) > 1:
        sizes = ", ".join(map(str, sorted(worlds)))
        raise InputError(f"traces of different jobs: of {sizes} ranks")
    return groups_of(
        {rank: each.segments for rank, each in segments.items()},
        {rank: trace.path for rank, trace in ranked.items()},
        next(iter(worlds), None),
    )


@dataclass(frozen=True, slots=True)
class Group:
    """A process group: its ranks, ascending, and the collectives of each in order."""

    name: str
    ranks: tuple[int, ...]
    calls: tuple[tuple[Segment, ...], ...]

    @property
    def label(self) -> str:
        few = ", ".join(map(str, self.ranks))
        whole = self.ranks == tuple(range(self.ranks[0], self.ranks[-1] + 1))
        ranks = f"{self.ranks[0]} to {self.ranks[-1]}" if whole and len(self.ranks) > 2 else few
        return f"group {self.name} of ranks {ranks}" if self.name else f"ranks {ranks}"


def groups_of(
    segments: Mapping[int, Sequence[Segment]], paths: Mapping[int, Path], world: int | None
) -> list[Group]:
    """Return the groups of more than one rank, with the collectives that meet.

    The k-th collective of a rank in a group meets the k-th of the others. `world` is the number of
    the job's ranks, where the traces say it.
    """
    found: dict[tuple[str, tuple[int, ...]], dict[int, list[Segment]]] = {}
    for rank in sorted(segments):
        for segment in sorted(
            (segment for segment in segments[rank] if segment.call is not None),
            key=lambda p: p.begin,
        ):
            assert segment.call is not None
            ranks = _ranks(segment.call, tuple(sorted(segments)), world, paths[rank])
            if len(ranks) > 1:
                key = (segment.call.group, ranks)
                found.setdefault(key, {}).setdefault(rank, []).append(segment)
    groups = []
    for (name, ranks), calls in sorted(found.items()):
        group = Group(name, ranks, tuple(tuple(calls.get(rank, ())) for rank in ranks))
        _check(group, paths)
        groups.append(group)
    return groups


def _ranks(
    call: Collective, given: tuple[int, ...], world: int | None, path: Path
) -> tuple[int, ...]:
    if call.ranks:
        ranks = tuple(sorted(set(call.ranks)))
    elif call.group_size == 1:
        return ()
    elif call.group_size in (0, len(given)) and world in (None, len(given)):
        ranks = given
    elif call.group_size in (0, world) and world is not None:
        ranks = tuple(range(world))
    else:
        raise InputError(
            f"{path}: {call.kind} in a group of {call.group_size} ranks that the trace does not "
            f"name, of {world or len(given)}: which meet, nobody says"
        )
    missing = [rank for rank in ranks if rank not in given]
    if missing:
        few = ", ".join(map(str, missing[:6])) + (", ..." if len(missing) > 6 else "")
        raise InputError(
            f"{path}: {call.kind} among {len(ranks)} ranks, and there is no trace of rank "
            f"{few}: give one of every rank, or --alone to take collectives as long as they were"
        )
    if call.kind in ("send", "receive"):
        raise InputError(f"{path}: {call.kind} between two ranks: only collectives are replayed")
    return ranks


def _check(group: Group, paths: Mapping[int, Path]) -> None:
    first, calls = group.ranks[0], group.calls[0]
    for rank, others in zip(group.ranks[1:], group.calls[1:], strict=True):
        for number, (one, other) in enumerate(zip(calls, others, strict=False)):
            assert one.call is not None
            assert other.call is not None
            if one.call.kind != other.call.kind:
                raise InputError(
                    f"{paths[rank]}: collective {number} in {group.label} is {other.call.kind} "
                    f"(at {1e3 * other.begin:.3f} ms), and that of rank {first} is "
                    f"{one.call.kind}: the traces are not of the same steps"
                )
        if len(calls) != len(others):
            raise InputError(
                f"{paths[rank]}: {len(others)} collectives in {group.label}, and rank {first} has "
                f"{len(calls)}: the traces are not of the same steps"
            )


TOLERANCE = 100e-6  # seconds; ranks of one machine agree within ten microseconds


def shifts(origins: Mapping[int, int], groups: Sequence[Group]) -> dict[int, float]:
    """Return seconds to add to the times of each rank, which count from its own origin.

    The earliest origin, in nanoseconds on the ranks' clocks, is 0. Ranks that share no collective
    are taken by their clocks.

    A collective ends on all of its ranks at once, to some microseconds. Where ranks disagree by
    more in the median, their clocks do: the traces of such a rank are moved.
    """
    start = min(origins.values())
    offset = {rank: (origin - start) * 1e-9 for rank, origin in origins.items()}
    settled: set[int] = set()
    for group in sorted(groups, key=lambda each: -len(each.ranks)):
        if not group.calls[0]:
            continue
        known = [rank for rank in group.ranks if rank in settled] or [group.ranks[0]]
        ends = {
            rank: np.array([segment.end for segment in calls]) + offset[rank]
            for rank, calls in zip(group.ranks, group.calls, strict=True)
        }
        agreed = np.median([ends[rank] for rank in known], axis=0)
        for rank in group.ranks:
            late = float(np.median(ends[rank] - agreed))
            if rank not in settled and abs(late) > TOLERANCE:
                offset[rank] -= late
            settled.add(rank)
    return offset


@dataclass(frozen=True, eq=False)
class TracedSegments:
    """What a rank did, and seconds to add to its times."""

    trace: KinetoTrace
    window: Window
    segments: Segments
    offset: float


@dataclass(frozen=True, slots=True)
class _Meeting:
    """A collective of several ranks: the role of its group, its duration, when it began."""

    role: str
    transfer: float
    began: float


def write_programs(
    ranks: Sequence[TracedSegments], numbers: Sequence[int], groups: Sequence[Group]
) -> tuple[Job, tuple[TracedRank, ...]]:
    place = {rank: number for number, rank in enumerate(numbers)}
    roles = _roles(groups, place)
    met: dict[int, _Meeting] = {}
    for group, role in zip(groups, roles, strict=True):
        offsets = [ranks[place[rank]].offset for rank in group.ranks]
        for meeting in zip(*group.calls, strict=True):
            # The rank that came last did not wait: the collective took as long as it took there.
            transfer = min(segment.end - segment.begin for segment in meeting)
            began = max(segment.begin + by for segment, by in zip(meeting, offsets, strict=True))
            met |= {id(segment): _Meeting(role, transfer, began) for segment in meeting}
    books = Codebook(), Codebook(), Codebook()
    writers, traced = [], []
    for number, rank in zip(numbers, ranks, strict=True):
        writer = ProgramWriter(*books)
        rows = _written(writer, rank, met)
        writers.append(writer)
        traced.append(_traced(number, rank, rows, met))
    of_role: list[dict[str, int]] = [{} for _ in ranks]
    for number, (group, role) in enumerate(zip(groups, roles, strict=True)):
        for member in group.ranks:
            of_role[place[member]][role] = number
    job = write_job(
        writers,
        list(range(len(ranks))),
        write_communicators([[place[rank] for rank in group.ranks] for group in groups]),
        of_role,
        labels=[f"rank {rank}" for rank in numbers],
        provenance={"traces": [str(rank.trace.path) for rank in ranks]},
    )
    return job, tuple(traced)


def _roles(groups: Sequence[Group], place: Mapping[int, int]) -> list[str]:
    """The name of each group, with its number where a rank has two of the name."""
    taken: list[set[str]] = [set() for _ in place]
    roles = []
    for number, group in enumerate(groups):
        role = f"group {group.name}" if group.name else "all"
        if any(role in taken[place[rank]] for rank in group.ranks):
            role = f"{role} ({number})"
        for rank in group.ranks:
            taken[place[rank]].add(role)
        roles.append(role)
    return roles


def _written(
    writer: ProgramWriter, rank: TracedSegments, met: Mapping[int, _Meeting]
) -> list[Segment]:
    rows = list(rank.segments.segments)
    late = rank.window.begin + rank.offset
    start: list[Segment] = []
    if late > 0:
        thread = rank.window.thread
        lane = rank.trace.lanes[thread].name if thread >= 0 else "start"
        begin = rank.window.begin
        start = [Segment(begin - late, begin, lane, "begins later", "start")]
    for segment in [*start, *rows]:
        before = start if segment not in start else []
        meeting = met.get(id(segment))
        segment.row = writer.add(
            segment.name if segment.call is None else segment.call.kind,
            segment.lane,
            segment.end - segment.begin if meeting is None else meeting.transfer,
            [each.row for each in (*segment.after, *before)],
            step=segment.step,
            kind="task" if meeting is None else "collective",
            role=None if meeting is None else meeting.role,
            size=max(segment.call.size, 0)
            if meeting is not None and segment.call is not None
            else 0,
        )
    return [*start, *rows]


def _traced(
    number: int, rank: TracedSegments, rows: Sequence[Segment], met: Mapping[int, _Meeting]
) -> TracedRank:
    segments = rank.segments
    arrive = np.array([segment.begin for segment in rows]) + rank.offset
    end = np.array([segment.end for segment in rows]) + rank.offset
    began = [met[id(segment)].began if id(segment) in met else -np.inf for segment in rows]
    marks = segments.marks if segments.last is None else [*segments.marks, segments.last]
    return TracedRank(
        path=rank.trace.path,
        rank=number,
        arrive=arrive,
        begin=np.clip(began, arrive, end),
        end=end,
        work=np.array([WORK.index(segment.work) for segment in rows], dtype=np.int32),
        marks=np.array([segment.row for segment in marks], dtype=np.int64),
        iteration=np.array([segment.iteration for segment in rows], dtype=np.int32),
        launches=np.array([launch.row for launch, _ in segments.launched], dtype=np.int64),
        spans=np.array([span.row for _, span in segments.launched], dtype=np.int64),
        missing=rank.trace.missing,
    )
