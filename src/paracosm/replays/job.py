"""Traces of the ranks of a job, as a job that can be replayed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from paracosm.arrays import Floats
from paracosm.backends import HERE, Backend
from paracosm.errors import InputError
from paracosm.replays.programs import Message, messages_of, write_programs
from paracosm.replays.reading import Done, take_apart
from paracosm.replays.traced import Communication, Group, TracedJob
from paracosm.timeline.kineto.read import read_kineto
from paracosm.timeline.kineto.trace import Collective, KinetoTrace, Step, steps_of


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


def job_of_traces(
    traces: Sequence[KinetoTrace],
    steps: Sequence[int] | None = None,
    alone: bool = False,
    warm: int = 0,
    backend: Backend = HERE,
    done: Done = lambda count: None,
) -> TracedJob:
    """Return the job of these traces, one for each rank; other arguments are those of `read_job`.

    Args:
        warm: how many of the steps, the first ones, are played and not counted.
        backend: where traces are taken apart.
        done: called with how many of them are.
    """
    ranked = _with_groups(_by_rank(traces))
    if alone and len(ranked) > 1:
        raise InputError(
            "--alone needs the trace of a single rank: leave it out, or give one trace"
        )
    if steps is None:
        numbers = common_steps({trace.path: steps_of(trace) for trace in ranked.values()})
    else:
        numbers = tuple(sorted(set(steps)))
    apart = take_apart(list(ranked.values()), numbers, backend, done)
    segments = dict(zip(ranked, apart, strict=True))
    calls = {rank: did.communication for rank, did in segments.items()}
    groups = _groups(ranked, calls, alone)
    paths = {rank: trace.path for rank, trace in ranked.items()}
    messages = [] if alone else messages_of(calls, paths)
    by_clock = clocks({rank: trace.origin for rank, trace in ranked.items()})
    offset = offsets_between_clocks(by_clock, groups, messages)
    moved = {
        rank: offset[rank] - by_clock[rank]
        for rank in ranked
        if abs(offset[rank] - by_clock[rank]) > TOLERANCE
    }
    start = min(segments[rank].start + offset[rank] for rank in ranked)
    from_start = {rank: seconds - start for rank, seconds in offset.items()}
    written = write_programs(segments, from_start, groups, messages)
    ungrouped = _ungrouped(calls, warm) if len(ranked) > 2 and not alone else 0
    return TracedJob(*written, len(groups), numbers, alone, moved, ungrouped, warm)


def _ungrouped(calls: Mapping[int, Sequence[Communication]], warm: int) -> int:
    """Return the number of collectives of the steps that count that do not say their group."""
    return sum(
        not (call.calls[0].is_message or call.calls[0].ranks or call.calls[0].group_size)
        for calls_of_rank in calls.values()
        for call in calls_of_rank
        if call.iteration >= (warm or -1)
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


def _with_groups(ranked: Mapping[int, KinetoTrace]) -> Mapping[int, KinetoTrace]:
    """Return traces that all tell the groups of gloo's threads, where there are several, or none.

    What one rank knows and another does not cannot meet: then all collectives are taken for those
    of all ranks, as they are where there is one group.
    """
    traces = ranked.values()
    several = any(len(trace.groups) > 1 for trace in traces)
    if several and all(trace.group_of_thread for trace in traces):
        return ranked
    return {rank: replace(trace, group_of_thread={}) for rank, trace in ranked.items()}


def common_steps(marked: Mapping[Path, Sequence[Step]]) -> tuple[int, ...]:
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
    ranked: Mapping[int, KinetoTrace], calls: Mapping[int, Sequence[Communication]], alone: bool
) -> list[Group]:
    if alone:
        return []
    worlds = {trace.world_size for trace in ranked.values() if trace.world_size is not None}
    if len(worlds) > 1:
        sizes = ", ".join(map(str, sorted(worlds)))
        raise InputError(f"traces of different jobs: of {sizes} ranks")
    return groups_of(
        calls, {rank: trace.path for rank, trace in ranked.items()}, next(iter(worlds), None)
    )


def groups_of(
    calls: Mapping[int, Sequence[Communication]], paths: Mapping[int, Path], world: int | None
) -> list[Group]:
    """Return the groups of more than one rank, with the collectives that meet.

    The k-th collective of a rank in a group meets the k-th of the others. `world` is the number of
    the job's ranks, where the traces say it.
    """
    traced = tuple(sorted(calls))
    ranks_of: dict[tuple[Sequence[int], int], tuple[int, ...]] = {}
    calls_of: dict[tuple[str, tuple[int, ...]], dict[int, list[Communication]]] = {}
    for rank in traced:
        for kernel in sorted(calls[rank], key=_issued):
            call = kernel.calls[0]
            if call.is_message:
                continue
            members = tuple(call.ranks), call.group_size
            if members not in ranks_of:  # checked once, not for every call of every rank
                ranks_of[members] = _ranks(call, traced, world, paths[rank])
            ranks = ranks_of[members]
            if len(ranks) > 1:
                calls_of.setdefault((call.group, ranks), {}).setdefault(rank, []).append(kernel)
    groups = [
        Group(name, ranks, tuple(tuple(of_group.get(rank, ())) for rank in ranks))
        for (name, ranks), of_group in sorted(calls_of.items())
    ]
    for group in groups:
        _check(group, paths)
    return groups


def _issued(kernel: Communication) -> float:
    return kernel.begin if kernel.called is None else kernel.called


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
            if not _may_meet(one, other):
                raise InputError(
                    f"{paths[rank]}: collective {number} in {group.label} is {_called(other)} "
                    f"(at {1e3 * other.begin:.3f} ms), and that of rank {first} is {_called(one)}: "
                    f"{_why_they_differ(group, other)}"
                )
        if len(calls) != len(others):
            raise InputError(
                f"{paths[rank]}: {len(others)} collectives in {group.label}, and rank {first} has "
                f"{len(calls)}: {_why_they_differ(group, (*others, *calls)[0])}"
            )


def _may_meet(one: Communication, other: Communication) -> bool:
    """Whether two ranks call the same: of an all-reduce of the host also the same size."""
    if one.calls[0].kind != other.calls[0].kind:
        return False
    sizes = {met.calls[0].size for met in (one, other)} - {-1}
    return len(sizes) < 2 or not one.on_host or one.calls[0].kind != "all_reduce"


def _called(met: Communication) -> str:
    call = met.calls[0]
    return f"{call.kind} of {call.size:,} bytes" if met.on_host and call.size >= 0 else call.kind


def _why_they_differ(group: Group, met: Communication) -> str:
    if not met.on_host:
        return "the traces are not of the same steps"
    why = (
        "one of its groups has another number of threads of gloo than two"
        if group.name
        else "the job has several groups, which ranges of gloo do not tell. Its threads do if both "
        "of each group work on every rank: let each group communicate twice or more often in what "
        "is recorded"
    )
    return (
        f"the traces are not of the same steps, or {why}; --alone takes collectives of one rank as "
        "long as they were"
    )


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
