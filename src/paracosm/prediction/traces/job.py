"""Traces of the ranks of a job, as a job that can be played again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from paracosm.errors import InputError
from paracosm.prediction.traces.clocks import TOLERANCE, shifts
from paracosm.prediction.traces.groups import Group, groups_of
from paracosm.prediction.traces.pieces import Pieces, pieces_of
from paracosm.prediction.traces.programs import TracedPieces, write_programs
from paracosm.prediction.traces.traced import TracedJob
from paracosm.timeline.kineto import KinetoTrace, read_kineto, steps_of, window_of

__all__ = ["job_of_traces", "read_job"]


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
    pieces = {rank: pieces_of(trace, windows[rank]) for rank, trace in ranked.items()}
    for rank, trace in ranked.items():
        if not pieces[rank].pieces:
            where = "in the steps that are taken" if numbers else "in it"
            raise InputError(f"{trace.path}: nothing ran {where}: no op, call or kernel takes time")
    groups = _groups(ranked, pieces, alone)
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
            TracedPieces(trace, windows[rank], pieces[rank], offset[rank] - start)
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
    ranked: Mapping[int, KinetoTrace], pieces: Mapping[int, Pieces], alone: bool
) -> list[Group]:
    if alone:
        return []
    worlds = {trace.world_size for trace in ranked.values() if trace.world_size is not None}
    if len(worlds) > 1:
        sizes = ", ".join(map(str, sorted(worlds)))
        raise InputError(f"traces of different jobs: of {sizes} ranks")
    return groups_of(
        {rank: each.pieces for rank, each in pieces.items()},
        {rank: trace.path for rank, trace in ranked.items()},
        next(iter(worlds), None),
    )
