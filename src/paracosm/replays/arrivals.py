"""Late ranks at the collectives of a job: by rank, by step, by collective.

A collective can begin when its last rank has come. That rank is *late* by the seconds for which the
others wait, in their mean. Collectives of several steps are the same one if they are the same in
order within their group.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.replays.traced import TracedJob
from paracosm.results.summaries import LateCollective, Lateness, LateRank, LateStep

NO_STEP = -1


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that comes last most often."""

    rank: int  # which
    last: int  # number of collectives at which it is last
    collectives: int  # number of collectives of its groups
    lateness: float  # seconds for which the others waited, in the mean of those


@dataclass(frozen=True, eq=False)
class Arrivals:
    """The m collectives of several ranks; in `what`, each kind, group, its ranks and place."""

    what: tuple[tuple[str, str, tuple[int, ...], int], ...]
    code: Ints  # m indices into `what`
    step: Ints  # m numbers of steps, or `NO_STEP`
    last: Ints  # m ranks
    late: Floats  # m seconds

    def __len__(self) -> int:
        return len(self.code)

    def met(self) -> dict[int, int]:
        """Return the number of collectives of each rank."""
        counts: dict[int, int] = {}
        for code, times in enumerate(np.bincount(self.code, minlength=len(self.what)).tolist()):
            for rank in self.what[code][2]:
                counts[rank] = counts.get(rank, 0) + times
        return dict(sorted(counts.items()))

    def straggler(self) -> Straggler | None:
        """Return the rank that comes last most often, of several the one that is latest."""
        stragglers = [
            Straggler(rank, int(own.sum()), met, float(self.late[own].sum() / max(own.sum(), 1)))
            for rank, met in self.met().items()
            for own in [self.last == rank]
        ]
        return max(
            stragglers,
            key=lambda each: (each.last, each.last * each.lateness, -each.rank),
            default=None,
        )


def arrivals_of(traced: TracedJob, arrive: Sequence[Floats]) -> Arrivals:
    """Return the collectives of the steps that count; `arrive` are seconds of every row."""
    job = traced.job
    codes: dict[tuple[str, str, tuple[int, ...], int], int] = {}
    columns: list[tuple[int, int, int, float]] = []
    for number in range(traced.groups):
        members = job.communicators.ranks(number)
        rows = [_rows(traced, rank, number) for rank in members]
        arrivals = np.array([arrive[rank][own] for rank, own in zip(members, rows, strict=True)])
        latest = arrivals.argmax(axis=0)
        waited = (arrivals.max(axis=0) - arrivals).sum(axis=0) / max(len(members) - 1, 1)
        names = [job.names[code] for code in job.programs[members[0]].name[rows[0]].tolist()]
        iteration = traced.ranks[members[0]].iteration[rows[0]].tolist()
        ranks = tuple(traced.ranks[rank].rank for rank in members)
        role = job.roles[job.programs[members[0]].role[rows[0][0]]] if len(rows[0]) else ""
        place: dict[int, int] = {}
        for at, (name, passed) in enumerate(zip(names, iteration, strict=True)):
            place[passed] = place.get(passed, 0) + 1
            if passed >= traced.warm or not traced.steps:
                call = (name, role, ranks, place[passed])
                columns.append(
                    (
                        codes.setdefault(call, len(codes)),
                        traced.steps[passed] if passed >= 0 else NO_STEP,
                        ranks[latest[at]],
                        float(waited[at]),
                    )
                )
    code, step, last, late = zip(*columns, strict=True) if columns else ((), (), (), ())
    return Arrivals(
        what=tuple(codes),
        code=np.array(code, dtype=np.int64),
        step=np.array(step, dtype=np.int64),
        last=np.array(last, dtype=np.int64),
        late=np.array(late, dtype=np.float64),
    )


def _rows(traced: TracedJob, rank: int, communicator: int) -> Ints:
    role = traced.job.programs[rank].role
    return np.flatnonzero((role >= 0) & (traced.job.communicator[rank][role] == communicator))


def joined_arrivals(parts: Sequence[Arrivals]) -> Arrivals:
    whole = dict.fromkeys(what for part in parts for what in part.what)
    codes = {what: code for code, what in enumerate(whole)}
    renumbered = [
        np.array([codes[what] for what in part.what], dtype=np.int64)[part.code] for part in parts
    ]
    return Arrivals(
        what=tuple(codes),
        code=np.concatenate(renumbered),
        step=np.concatenate([part.step for part in parts]),
        last=np.concatenate([part.last for part in parts]),
        late=np.concatenate([part.late for part in parts]),
    )


def lateness_of(arrivals: Arrivals) -> Lateness | None:
    """Return late ranks by rank, step and collective; None without collectives between ranks."""
    if not len(arrivals):
        return None
    late, last = arrivals.late, arrivals.last
    worst = {}  # of each step, the rank for which the others wait longest
    steps = []
    for step in np.unique(arrivals.step[arrivals.step != NO_STEP]).tolist():
        of_step = arrivals.step == step
        cost = {
            rank: float(late[of_step & (last == rank)].sum()) for rank in np.unique(last[of_step])
        }
        rank = min(cost, key=lambda each: (-cost[each], each))
        worst[step] = int(rank)
        count = int((last[of_step] == rank).sum())
        steps.append(
            LateStep(
                step=step,
                rank=int(rank),
                last=count,
                collectives=int(of_step.sum()),
                lateness=cost[rank],
            )
        )
    ranks = [
        LateRank(
            rank=rank,
            last=int(own.sum()),
            collectives=met,
            steps=sum(worst_rank == rank for worst_rank in worst.values()),
            lateness=float(late[own].sum()),
            mean=float(late[own].mean()) if own.any() else 0.0,
            most=float(late[own].max(initial=0.0)),
        )
        for rank, met in arrivals.met().items()
        for own in [last == rank]
    ]
    collectives = []
    for code, (kind, group, members, place) in enumerate(arrivals.what):
        of_step = np.flatnonzero(arrivals.code == code)
        who, times = np.unique(last[of_step], return_counts=True)
        top = of_step[int(late[of_step].argmax())]
        collectives.append(
            LateCollective(
                kind=kind,
                group=group,
                ranks=len(members),
                place=place,
                times=len(of_step),
                rank=int(who[times.argmax()]),
                last=int(times.max()),
                mean=float(late[of_step].mean()),
                most=float(late[top]),
                most_rank=int(last[top]),
                most_step=int(arrivals.step[top]) if arrivals.step[top] != NO_STEP else None,
            )
        )
    return Lateness(
        ranks=sorted(ranks, key=lambda each: (-each.lateness, each.rank)),
        steps=steps,
        collectives=sorted(collectives, key=lambda each: -each.mean * each.times),
    )
