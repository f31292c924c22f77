"""The pieces of all ranks as the programs of a job, and beside them when each task was traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.jobs import Codebook, Job, ProgramWriter, write_communicators, write_job
from paracosm.prediction.traces.groups import Group
from paracosm.prediction.traces.piece import WORK, Piece
from paracosm.prediction.traces.pieces import Pieces
from paracosm.prediction.traces.traced import TracedRank
from paracosm.timeline.kineto import KinetoTrace, Window

__all__ = ["TracedPieces", "write_programs"]


@dataclass(frozen=True, eq=False)
class TracedPieces:
    """What a rank did: its trace, the window and the pieces of it, and seconds to add to times."""

    trace: KinetoTrace
    window: Window
    pieces: Pieces
    offset: float


@dataclass(frozen=True, slots=True)
class _Meeting:
    """A collective of several ranks: the role of its group, its duration, when it began."""

    role: str
    transfer: float
    began: float


def write_programs(
    ranks: Sequence[TracedPieces], numbers: Sequence[int], groups: Sequence[Group]
) -> tuple[Job, tuple[TracedRank, ...]]:
    """Return the job of these ranks, and what the trace of each says of its rows.

    Args:
        ranks: what they did, by `numbers`.
        numbers: of the ranks in the job that was traced.
        groups: of ranks that meet.
    """
    place = {rank: number for number, rank in enumerate(numbers)}
    roles = _roles(groups, place)
    met: dict[int, _Meeting] = {}
    for group, role in zip(groups, roles, strict=True):
        offsets = [ranks[place[rank]].offset for rank in group.ranks]
        for meeting in zip(*group.calls, strict=True):
            # The rank that came last did not wait: the collective took as long as it took there.
            transfer = min(piece.end - piece.begin for piece in meeting)
            began = max(piece.begin + by for piece, by in zip(meeting, offsets, strict=True))
            met |= {id(piece): _Meeting(role, transfer, began) for piece in meeting}
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
    """Return a role for each group: its name, with its number where a rank has two of the name."""
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


def _written(writer: ProgramWriter, rank: TracedPieces, met: Mapping[int, _Meeting]) -> list[Piece]:
    """Write the pieces of a rank, after the time by which it begins later than the first one."""
    rows = list(rank.pieces.pieces)
    late = rank.window.begin + rank.offset
    start: list[Piece] = []
    if late > 0:
        thread = rank.window.thread
        lane = rank.trace.lanes[thread].name if thread >= 0 else "start"
        begin = rank.window.begin
        start = [Piece(begin - late, begin, lane, "begins later", "start")]
    for piece in [*start, *rows]:
        before = start if piece not in start else []
        meeting = met.get(id(piece))
        piece.row = writer.add(
            piece.name if piece.call is None else piece.call.kind,
            piece.lane,
            piece.end - piece.begin if meeting is None else meeting.transfer,
            [each.row for each in (*piece.after, *before)],
            step=piece.step,
            kind="task" if meeting is None else "collective",
            role=None if meeting is None else meeting.role,
            size=max(piece.call.size, 0) if meeting is not None and piece.call is not None else 0,
        )
    return [*start, *rows]


def _traced(
    number: int, rank: TracedPieces, rows: Sequence[Piece], met: Mapping[int, _Meeting]
) -> TracedRank:
    pieces = rank.pieces
    arrive = np.array([piece.begin for piece in rows]) + rank.offset
    end = np.array([piece.end for piece in rows]) + rank.offset
    began = [met[id(piece)].began if id(piece) in met else -np.inf for piece in rows]
    marks = pieces.marks if pieces.last is None else [*pieces.marks, pieces.last]
    return TracedRank(
        path=rank.trace.path,
        rank=number,
        arrive=arrive,
        begin=np.clip(began, arrive, end),
        end=end,
        work=np.array([WORK.index(piece.work) for piece in rows], dtype=np.int32),
        marks=np.array([piece.row for piece in marks], dtype=np.int64),
        iteration=np.array([piece.iteration for piece in rows], dtype=np.int32),
        launches=np.array([launch.row for launch, _ in pieces.launched], dtype=np.int64),
        spans=np.array([span.row for _, span in pieces.launched], dtype=np.int64),
        missing=rank.trace.missing,
    )
