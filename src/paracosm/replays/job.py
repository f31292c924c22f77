"""Traces of the ranks of a job, as a job that can be replayed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from paracosm.arrays import Floats
from paracosm.errors import InputError
from paracosm.replays.account import Account
from paracosm.replays.programs import Message, TracedSegments, messages_of, write_programs
from paracosm.replays.segments import Segments, segments_of
from paracosm.replays.traced import Group, Segment, TracedJob
from paracosm.timeline.kineto.communication import BY_NAME, NamedKernels
from paracosm.timeline.kineto.faults import check_device, mark_faults, repeated_marks, step_faults
from paracosm.timeline.kineto.host_communication import host_communication
from paracosm.timeline.kineto.read import KinetoFile, open_kineto, read_kineto
from paracosm.timeline.kineto.trace import (
    Collective,
    KinetoTrace,
    Step,
    chosen_steps,
    step_marks,
    steps_of,
    window_of,
)

LARGE = 1 << 20  # spans of all ranks up to which a job is played as a whole
BLOCK = 1 << 16  # spans of all ranks in a part of a larger one, if it has more than one step


def read_job(
    paths: Sequence[Path], steps: Sequence[int] | None = None, alone: bool = False
) -> TracedJob:
    """Read the trace of every rank of a job.

    Args:
        paths: one file for each rank.
        steps: numbers of the steps to take; all that every trace has without it.
        alone: whether to do without the traces of other ranks: a collective then takes as long as
            it took, with what it waited for them.
    """
    return job_of_traces([read_kineto(path) for path in paths], steps, alone)


def read_parts(
    paths: Sequence[Path],
    steps: Sequence[int] | None = None,
    alone: bool = False,
    account: Account | None = None,
    named: NamedKernels = BY_NAME,
) -> Iterator[TracedJob]:
    """Yield the job of the traces, in parts: runs of steps that are whole on all ranks.

    Of large traces they are of some steps each. Where a part begins with a step that follows the
    last one of the part before, that one is played once more and not counted: what the device is
    behind is then there. Where no step is whole, all are played. The other arguments and errors are
    those of `read_job`.

    Args:
        account: takes what is left out.
        named: what the user says of kernels that communicate.

    Raises:
        InputError: a pattern of `named` is about no kernel.
    """
    account = Account() if account is None else account
    if twice := next((path for path in paths if list(paths).count(path) > 1), None):
        raise InputError(f"{twice} is given twice: give one trace of each rank")
    files = [open_kineto(path, named=named) for path in paths]
    _check_named(files, named)
    marks = {file.path: file.marks() for file in files}
    marked = {path: steps_of(trace) for path, trace in marks.items()}
    if not any(marked.values()):
        traces = [file.whole() for file in files]
        for trace in traces:
            account.add_trace(trace)
        yield job_of_traces(traces, steps, alone)
        return
    numbers = _common_steps(marked) if steps is None else tuple(sorted(set(steps)))
    windows = [chosen_steps(file.path, marked[file.path], numbers) for file in files]
    ranks = _names_of_ranks(files)
    if steps is None:
        account.steps |= _not_common(marked, numbers, ranks)
    for path, trace in marks.items():
        for note in repeated_marks(trace):
            account.add(path, note)
        for number, fault in mark_faults(trace).items():
            if steps is None or number in numbers:
                account.steps[number] = f"{ranks[path]}{fault}"
    reading = _Reading(files, marks, numbers, windows, ranks, alone, account)
    is_found = False
    for part in reading.parts(only_whole=True):
        is_found = True
        yield part
    if not is_found:
        account.all_faulty = True
        yield from reading.parts(only_whole=False)


def _check_named(files: Sequence[KinetoFile], named: NamedKernels) -> None:
    for pattern, _ in named.patterns:
        if not any(file.kernels(partial(named.matches, pattern)) for file in files):
            names = {name for file in files for name in file.kernels(lambda name: True)}
            few = sorted(name[:60] for name in names)[:8]
            has = ", ".join(few) + (", ..." if len(names) > len(few) else "") or "none"
            raise InputError(
                f'communication "{pattern}" has no effect: no kernel has such a name; there are '
                f"{has}"
            )


class _Reading:
    """Files whose steps are played in parts."""

    def __init__(
        self,
        files: Sequence[KinetoFile],
        marks: Mapping[Path, KinetoTrace],
        numbers: Sequence[int],
        windows: Sequence[Sequence[Step]],
        ranks: Mapping[Path, str],
        alone: bool,
        account: Account,
    ) -> None:
        self._files, self._numbers, self._windows = files, numbers, windows
        self._ranks, self._alone, self._account = ranks, alone, account
        self._marks = [
            np.array([step.begin for step in step_marks(trace)]) for trace in marks.values()
        ]
        self._whole: list[KinetoTrace] = []

    def parts(self, only_whole: bool) -> Iterator[TracedJob]:
        for first, last in self._blocks():
            # The step before is there if it is played before; then it is played once more.
            warm = int(first > 0 and self._follow(first))
            traces = self._read(first - warm, last)
            faults = self._faults(traces, first - warm, last)
            if only_whole:
                self._account.steps |= {
                    number: fault
                    for number, fault in faults.items()
                    if number in self._numbers[first:last]
                }
            bad = set(faults) if only_whole else set()
            for begin, end in self._runs(first - warm, last, bad):
                lead = int(warm and begin < first)
                if end - begin > lead:
                    yield job_of_traces(traces, self._numbers[begin:end], self._alone, lead)

    def _read(self, first: int, last: int) -> Sequence[KinetoTrace]:
        if sum(map(len, self._files)) > LARGE:
            traces = [
                file.part(window[first].begin, window[last - 1].end)
                for file, window in zip(self._files, self._windows, strict=True)
            ]
        else:
            if not self._whole:
                self._whole = [file.whole() for file in self._files]
                for trace in self._whole:
                    self._account.add_outside(trace, steps_of(trace))
            traces = self._whole
        for trace in traces:
            self._account.add_trace(trace)
        return traces

    def _blocks(self) -> Iterator[tuple[int, int]]:
        if sum(map(len, self._files)) <= LARGE:
            yield 0, len(self._numbers)
            return
        sizes = np.zeros(len(self._numbers), dtype=np.int64)
        for file, window in zip(self._files, self._windows, strict=True):
            sizes += file.counts([*(step.begin for step in window), window[-1].end])
        yield from _blocks(sizes.tolist())

    def _faults(self, traces: Sequence[KinetoTrace], first: int, last: int) -> dict[int, str]:
        faults: dict[int, str] = {}
        for trace, window in zip(traces, self._windows, strict=True):
            for number, fault in step_faults(trace, window[first:last]).items():
                faults.setdefault(number, f"{self._ranks[trace.path]}{fault}")
        return faults

    def _runs(self, first: int, last: int, bad: set[int]) -> Iterator[tuple[int, int]]:
        """Yield the first and the end of steps that follow one another, without the bad ones."""
        begin = first
        for at in range(first, last):
            if self._numbers[at] in bad:
                yield begin, at
                begin = at + 1
            elif at > begin and not self._follow(at):
                yield begin, at
                begin = at
        yield begin, last

    def _follow(self, at: int) -> bool:
        """Whether a step follows the one before it on every rank: no mark is between them."""
        if self._numbers[at] != self._numbers[at - 1] + 1:
            return False
        return all(
            not ((marks >= window[at - 1].end) & (marks < window[at].begin)).any()
            for marks, window in zip(self._marks, self._windows, strict=True)
        )


def _names_of_ranks(files: Sequence[KinetoFile]) -> dict[Path, str]:
    """Return how messages name the rank of each file: not at all if there is one."""
    if len(files) == 1:
        return {files[0].path: ""}
    known = {file.path: file.rank for file in files}
    return {
        path: f"rank {number if rank is None else rank}: "
        for number, (path, rank) in enumerate(known.items())
    }


def _not_common(
    marked: Mapping[Path, Sequence[Step]], numbers: Sequence[int], ranks: Mapping[Path, str]
) -> dict[int, str]:
    """Return the steps that some traces lack, and which."""
    known = {path: {step.number for step in steps} for path, steps in marked.items()}
    return {
        number: "; ".join(
            f"{ranks[path]}its trace has no such step"
            for path in sorted(known, key=lambda path: ranks[path])
            if number not in known[path]
        )
        for number in sorted(set().union(*known.values()).difference(numbers))
    }


def _blocks(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the end of steps that have some `BLOCK` spans together, or one step."""
    first, together = 0, 0
    for number, size in enumerate(sizes):
        if number > first and together + size > BLOCK:
            yield first, number
            first, together = number, 0
        together += size
    yield first, len(sizes)


def job_of_traces(
    traces: Sequence[KinetoTrace],
    steps: Sequence[int] | None = None,
    alone: bool = False,
    warm: int = 0,
) -> TracedJob:
    """Return the job of these traces, one for each rank.

    `warm` of the steps, the first ones, are played and not counted; the other arguments are those
    of `read_job`.
    """
    ranked = {rank: host_communication(trace) for rank, trace in _by_rank(traces).items()}
    for trace in traces:
        check_device(trace)
    if steps is None:
        numbers = _common_steps({trace.path: steps_of(trace) for trace in ranked.values()})
    else:
        numbers = tuple(sorted(set(steps)))
    if alone and len(ranked) > 1:
        raise InputError(
            "--alone needs the trace of a single rank: leave it out, or give one trace"
        )
    windows = {
        rank: window_of(trace, numbers if numbers else None) for rank, trace in ranked.items()
    }
    segments = {rank: segments_of(trace, windows[rank]) for rank, trace in ranked.items()}
    for rank, trace in ranked.items():
        if not segments[rank].segments:
            where = "in the steps that are taken" if numbers else "in it"
            why = "; ".join(["no op, call or kernel takes time", *trace.notes])
            raise InputError(f"{trace.path}: nothing ran {where}: {why}")
    groups = _groups(ranked, segments, alone)
    messages: list[Message] = []
    if not alone:
        paths = {rank: trace.path for rank, trace in ranked.items()}
        messages = messages_of(
            {rank: segment.segments for rank, segment in segments.items()}, paths
        )
    by_clock = clocks({rank: trace.origin for rank, trace in ranked.items()})
    offset = offsets_between_clocks(by_clock, groups, messages)
    moved = {
        rank: offset[rank] - by_clock[rank]
        for rank in ranked
        if abs(offset[rank] - by_clock[rank]) > TOLERANCE
    }
    start = min(windows[rank].begin + offset[rank] for rank in ranked)
    written = write_programs(
        {
            rank: TracedSegments(trace, windows[rank], segments[rank], offset[rank] - start)
            for rank, trace in ranked.items()
        },
        groups,
        messages,
    )
    ungrouped = _ungrouped(segments, warm) if len(ranked) > 2 and not alone else 0
    return TracedJob(*written, len(groups), numbers, alone, moved, ungrouped, warm)


def _ungrouped(segments: Mapping[int, Segments], warm: int) -> int:
    """Return the number of collectives of the steps that count that do not say their group."""
    return sum(
        not (segment.calls[0].is_message or segment.calls[0].ranks or segment.calls[0].group_size)
        for own in segments.values()
        for segment in own.segments
        if segment.calls and segment.iteration >= (warm or -1)
    )


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


def _common_steps(marked: Mapping[Path, Sequence[Step]]) -> tuple[int, ...]:
    numbers = {path: {step.number for step in steps} for path, steps in marked.items()}
    common = set.intersection(*numbers.values())
    if not common and any(numbers.values()):
        one, other = (
            next(path for path in numbers if numbers[path]),
            next((path for path in numbers if not numbers[path]), list(numbers)[-1]),
        )
        raise InputError(
            f"{other}: shares no step with {one}: {_span(numbers[other])} against "
            f"{_span(numbers[one])}"
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
        {rank: segment.segments for rank, segment in segments.items()},
        {rank: trace.path for rank, trace in ranked.items()},
        next(iter(worlds), None),
    )


def groups_of(
    segments: Mapping[int, Sequence[Segment]], paths: Mapping[int, Path], world: int | None
) -> list[Group]:
    """Return the groups of more than one rank, with the collectives that meet.

    The k-th collective of a rank in a group meets the k-th of the others. `world` is the number of
    the job's ranks, where the traces say it.
    """
    traced = tuple(sorted(segments))
    ranks_of: dict[tuple[Sequence[int], int], tuple[int, ...]] = {}
    calls_of: dict[tuple[str, tuple[int, ...]], dict[int, list[Segment]]] = {}
    for rank in traced:
        for segment in sorted(segments[rank], key=_issued):
            if not segment.calls or segment.calls[0].is_message:
                continue
            call = segment.calls[0]
            members = tuple(call.ranks), call.group_size
            if members not in ranks_of:  # checked once, not for every call of every rank
                ranks_of[members] = _ranks(call, traced, world, paths[rank])
            ranks = ranks_of[members]
            if len(ranks) > 1:
                calls_of.setdefault((call.group, ranks), {}).setdefault(rank, []).append(segment)
    groups = [
        Group(name, ranks, tuple(tuple(calls.get(rank, ())) for rank in ranks))
        for (name, ranks), calls in sorted(calls_of.items())
    ]
    for group in groups:
        _check(group, paths)
    return groups


def _issued(segment: Segment) -> float:
    return segment.begin if segment.called is None else segment.called


def _ranks(
    call: Collective, traced: tuple[int, ...], world: int | None, path: Path
) -> tuple[int, ...]:
    if call.ranks:
        ranks = tuple(sorted(set(call.ranks)))
    elif call.group_size == 1:
        return ()
    elif call.group_size in (0, len(traced)) and world in (None, len(traced)):
        ranks = traced
    elif call.group_size in (0, world) and world is not None:
        ranks = tuple(range(world))
    else:
        raise InputError(
            f"{path}: {call.kind} in a group of {call.group_size} ranks that the trace does not "
            f"name, of {world or len(traced)}: which of them meet is unknown"
        )
    missing = sorted(set(ranks) - set(traced))
    if missing:
        few = ", ".join(map(str, missing[:6])) + (", ..." if len(missing) > 6 else "")
        raise InputError(
            f"{path}: {call.kind} among {len(ranks)} ranks, and there is no trace of rank "
            f"{few}: give one of every rank, or --alone to take collectives as long as they were"
        )
    return ranks


def _check(group: Group, paths: Mapping[int, Path]) -> None:
    first, calls = group.ranks[0], group.calls[0]
    for rank, others in zip(group.ranks[1:], group.calls[1:], strict=True):
        for number, (one, other) in enumerate(zip(calls, others, strict=False)):
            kind, expected = other.calls[0].kind, one.calls[0].kind
            if kind != expected:
                raise InputError(
                    f"{paths[rank]}: collective {number} in {group.label} is {kind} "
                    f"(at {1e3 * other.begin:.3f} ms), and that of rank {first} is {expected}: "
                    f"{_why_they_differ(group, other)}"
                )
        if len(calls) != len(others):
            raise InputError(
                f"{paths[rank]}: {len(others)} collectives in {group.label}, and rank {first} has "
                f"{len(calls)}: {_why_they_differ(group, (*others, *calls)[0])}"
            )


def _why_they_differ(group: Group, met: Segment) -> str:
    if met.on_host and not group.name:
        return (
            "the traces are not of the same steps, or the job has several groups, which ranges of "
            "gloo do not tell; --alone takes collectives of one rank as long as they were"
        )
    return "the traces are not of the same steps"


TOLERANCE = 100e-6  # seconds; ranks of one machine agree within ten microseconds


def clocks(origins: Mapping[int, int]) -> dict[int, float]:
    """Return the offset of each rank's times, seconds, from origins in ns; the first is 0."""
    start = min(origins.values())
    return {rank: (origin - start) * 1e-9 for rank, origin in origins.items()}


def offsets_between_clocks(
    offset: Mapping[int, float], groups: Sequence[Group], messages: Sequence[Message]
) -> dict[int, float]:
    """Return the seconds to add to the times of each rank, set by where ranks met.

    A collective ends on all of its ranks at once, to some microseconds, and a message on both of
    its own; one of the host may end milliseconds apart, and says only that clocks differ if a rank
    has left before another one has come. Where ranks disagree by more in the median, their clocks
    do: the traces of such a rank, and of those that agree with it, are moved. A message that a
    buffer holds ends later on its receiver: between two ranks the mean of both directions counts.
    Ranks that never meet are taken by their clocks.
    """
    moved = dict(offset)
    agree = {rank: frozenset([rank]) for rank in offset}

    def settle(ranks: Sequence[int], late: Callable[[list[int], list[int]], float]) -> None:
        """Make ranks agree; `late` is by how much some of them are behind the others."""
        first = max(ranks, key=lambda rank: (len(agree[rank]), -rank))
        known = [rank for rank in ranks if rank in agree[first]]
        for rank in ranks:
            if rank not in agree[first]:
                by = late(known, [other for other in ranks if other in agree[rank]])
                if abs(by) > TOLERANCE:
                    moved.update({other: moved[other] - by for other in agree[rank]})
                whole = agree[first] | agree[rank]
                agree.update(dict.fromkeys(whole, whole))

    for group in sorted(groups, key=lambda each: -len(each.ranks)):
        if group.calls[0]:
            ends = {
                rank: np.array([segment.end for segment in calls]) + moved[rank]
                for rank, calls in zip(group.ranks, group.calls, strict=True)
            }
            by_clocks = _could_meet(group, moved)
            settle(group.ranks, partial(_late_together, {} if by_clocks else ends))
    between: dict[tuple[int, int], dict[bool, list[float]]] = {}
    for message in messages:
        pair = min(message.source, message.target), max(message.source, message.target)
        ends_at = {message.source: message.sent.end, message.target: message.received.end}
        ways = between.setdefault(pair, {})
        ways.setdefault(message.source == pair[0], []).append(ends_at[pair[1]] - ends_at[pair[0]])
    for pair, ways in sorted(between.items()):
        apart = float(np.mean([np.median(times) for times in ways.values()]))
        apart += moved[pair[1]] - moved[pair[0]]
        settle(pair, partial(_late_between, pair, apart))
    return moved


def _could_meet(group: Group, offset: Mapping[int, float]) -> bool:
    """Whether clocks are possible by most collectives of the host in a group."""
    if not group.calls[0][0].on_host:
        return False
    met = 0
    for calls in zip(*group.calls, strict=True):
        shifts = [offset[rank] for rank in group.ranks]
        left = min(call.end + shift for call, shift in zip(calls, shifts, strict=True))
        came = max(call.begin + shift for call, shift in zip(calls, shifts, strict=True))
        met += left >= came
    return met > len(group.calls[0]) / 2


def _late_together(ends: Mapping[int, Floats], known: list[int], others: list[int]) -> float:
    if not ends:
        return 0.0
    agreed = np.median([ends[rank] for rank in known], axis=0)
    return float(np.median([ends[rank] - agreed for rank in others]))


def _late_between(
    pair: tuple[int, int], apart: float, known: list[int], others: list[int]
) -> float:
    return apart if others == [pair[1]] else -apart
