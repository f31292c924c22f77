"""Random jobs that can run, and a replay of them in so few words that it is right."""

from __future__ import annotations

from hypothesis import strategies as st

from paracosm.jobs.job import KINDS, Job
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job

LANES = ("compute", "communication", "send", "receive")


@st.composite
def static_jobs(draw: st.DrawFn, copies: int = 1) -> Job:
    """Ranks that work, meet and send messages, in one global order: so nobody waits for ever.

    With several copies, alike ranks of all copies meet as well ("across").
    """
    ranks = draw(st.integers(1, 4))
    names, lanes, roles = Codebook(), Codebook(LANES), Codebook()
    writers = [ProgramWriter(names, lanes, roles) for _ in range(ranks)]
    groups: list[tuple[int, ...]] = []
    of_rank: list[dict[str, int]] = [{} for _ in range(ranks)]
    acts = draw(st.lists(st.sampled_from(["task", "meet", "message", "across"]), max_size=25))
    picoseconds = st.integers(0, 1000).map(lambda value: value * 1e-12)

    def add(rank: int, name: str, lane: str, duration: float, kind: str, role: str | None) -> None:
        rows = len(writers[rank])
        after = draw(st.sets(st.integers(0, rows - 1), max_size=3)) if rows else set()
        writers[rank].add(name, lane, duration, after, kind=kind, role=role, size=8 if role else 0)

    def communicator(members: tuple[int, ...], what: str) -> str:
        role = f"{what} {members}"
        if role not in of_rank[members[0]]:
            groups.append(members)
            for rank in members:
                of_rank[rank][role] = len(groups) - 1
        return role

    for number, act in enumerate(acts):
        if act == "task":
            rank = draw(st.integers(0, ranks - 1))
            add(rank, "work", draw(st.sampled_from(LANES)), draw(picoseconds), "task", None)
        elif act == "meet":
            members = tuple(sorted(draw(st.sets(st.integers(0, ranks - 1), min_size=1))))
            role = communicator(members, "meet")
            for rank in members:
                lane = draw(st.sampled_from(LANES))
                add(rank, f"meet {number}", lane, draw(picoseconds), "collective", role)
        elif act == "message" and ranks > 1:
            pair = st.permutations(range(ranks)).map(lambda order: tuple(order[:2]))
            sender, receiver = draw(pair)
            role = communicator((sender, receiver), "message")
            lane = draw(st.sampled_from(LANES))
            add(sender, f"send {number}", lane, draw(picoseconds), "send", role)
            lane = draw(st.sampled_from(LANES))
            late = draw(st.sampled_from([0.0, 0.0, 100e-12]))
            add(receiver, f"receive {number}", lane, late, "receive", role)
        elif act == "across" and copies > 1:
            rank = draw(st.integers(0, ranks - 1))
            add(
                rank, f"across {number}", "communication", draw(picoseconds), "collective", "across"
            )
    speeds = [draw(st.sampled_from([1.0, 1.0, 0.5])) for _ in range(ranks)]
    return _copied(writers, groups, of_rank, speeds, copies)


def _copied(
    writers: list[ProgramWriter],
    groups: list[tuple[int, ...]],
    of_rank: list[dict[str, int]],
    speeds: list[float],
    copies: int,
) -> Job:
    ranks = len(writers)
    everywhere = [
        tuple(copy * ranks + rank for rank in group) for copy in range(copies) for group in groups
    ]
    across = [tuple(copy * ranks + rank for copy in range(copies)) for rank in range(ranks)]
    of_all = [
        {role: copy * len(groups) + number for role, number in of_rank[rank].items()}
        | {"across": copies * len(groups) + rank}
        for copy in range(copies)
        for rank in range(ranks)
    ]
    return write_job(
        writers,
        list(range(ranks)) * copies,
        write_communicators([*everywhere, *across]),
        of_all,
        speed=speeds * copies,
    )


def slowly(job: Job) -> list[list[tuple[int, int, int]]]:
    """Return arrive, begin and end of every task of every rank, in picoseconds.

    Again and again, every task takes what is known of the others, until nothing changes.
    """
    spans = [[(0, 0, 0)] * len(job.programs[program]) for program in job.program]
    while True:
        again = [_rank_once(job, rank, spans) for rank in range(job.ranks)]
        if again == spans:
            return spans
        spans = again


def _rank_once(
    job: Job, rank: int, spans: list[list[tuple[int, int, int]]]
) -> list[tuple[int, int, int]]:
    program = job.programs[job.program[rank]]
    free: dict[int, int] = {}
    found = []
    for row in range(len(program)):
        awaited = program.dependencies[program.offsets[row] : program.offsets[row + 1]]
        arrive = max([free.get(program.lane[row], 0), *(found[each][2] for each in awaited)])
        kind = KINDS[program.kind[row]]
        begin, end = arrive, arrive + _length(job, rank, row)
        if kind == "collective":
            calls = _counterparts(job, rank, row)
            begin = max([arrive, *(spans[other][call][0] for other, call in calls)])
            end = begin + max(_length(job, other, call) for other, call in calls)
        elif kind == "receive":
            [(other, call)] = [
                counterpart
                for counterpart in _counterparts(job, rank, row)
                if counterpart[0] != rank
            ]
            end = max(arrive, spans[other][call][2] + _length(job, rank, row))
        free[program.lane[row]] = end
        found.append((arrive, begin, end))
    return found


def _length(job: Job, rank: int, row: int) -> int:
    program = job.programs[job.program[rank]]
    own = KINDS[program.kind[row]] == "task"
    return round(program.duration[row] / (job.speed[rank] if own else 1.0) * 1e12)


def _counterparts(job: Job, rank: int, row: int) -> list[tuple[int, int]]:
    """Return the rank and row of every member's call that this call meets, its own among them."""
    program = job.programs[job.program[rank]]
    role = program.role[row]
    number = int((program.role[:row] == role).sum())
    group = job.communicator[rank, role]
    found = []
    for other in job.communicators.ranks(group):
        theirs = job.programs[job.program[other]]
        [its_role] = [r for r, g in enumerate(job.communicator[other]) if g == group]
        found.append((other, int((theirs.role == its_role).nonzero()[0][number])))
    return found
