"""Checks that the communication of a job's ranks matches: every call has its counterparts."""

from dataclasses import dataclass

import numpy as np

from paracosm.arrays import Bools, Codes, Ints
from paracosm.errors import InputError
from paracosm.jobs.job import KINDS, Job

SHOWN = 6  # ranks of a group that a message lists
COLLECTIVE, SEND, RECEIVE = (KINDS.index(kind) for kind in ("collective", "send", "receive"))


@dataclass(frozen=True, eq=False)
class _Calls:
    """The calls of a program on the communicator of one role: kind, and the rows in order."""

    kind: int
    rows: Ints


def check_job(job: Job) -> None:
    """Check that collectives and messages match, in the number and order in which ranks call them.

    Collectives of one communicator must have the same names on all its ranks, messages the same
    sizes at both ends.
    """
    if not 1 <= job.slowdown < np.inf:
        raise InputError(
            f"the slowdown of computing beside collectives is {job.slowdown}: 1 or more"
        )
    _check_ranks(job)
    calls: list[list[_Calls | None]] = []
    for number, program in enumerate(job.programs):
        own = set(program.role.tolist())
        roles = range(len(job.roles))
        calls.append([_calls(job, number, role) if role in own else None for role in roles])
    _check_roles(job, calls)
    signature = _signatures(job, calls)
    kinds = np.array([[0 if c is None else c.kind for c in row] for row in calls], dtype=np.int64)
    rank, role = np.nonzero(job.communicator >= 0)
    group = job.communicator[rank, role]
    used = kinds.reshape(len(calls), -1)[job.program[rank], role] > 0
    rank, role, group = rank[used], role[used], group[used]
    order = np.lexsort((rank, group))
    rank, role, group = rank[order], role[order], group[order]
    sizes = np.diff(job.communicators.offsets)
    present = np.bincount(group, minlength=len(sizes))
    for short in np.flatnonzero((present > 0) & (present != sizes))[:1].tolist():
        raise _missing(job, short, rank[group == short], role[group == short])
    _check_members(job, present > 0, rank, role, group)
    marks = signature[job.program[rank], role]
    first = np.concatenate(([True], group[1:] != group[:-1])) if len(group) else np.zeros(0, bool)
    leader = np.maximum.accumulate(np.where(first, np.arange(len(group)), 0))
    for entry in np.flatnonzero(marks != marks[leader])[:1].tolist():
        raise _different(job, calls, int(group[entry]), rank, role, int(leader[entry]), entry)
    _check_messages(job, kinds, rank, role, group)


def _calls(job: Job, program: int, role: int) -> _Calls:
    rows = np.flatnonzero(job.programs[program].role == role)
    kinds = np.unique(job.programs[program].kind[rows])
    if len(kinds) > 1:
        raise InputError(
            f'role "{job.roles[role]}": one program uses it as {KINDS[kinds[0]]} and as '
            f"{KINDS[kinds[1]]}: each needs a communicator of its own"
        )
    return _Calls(int(kinds[0]), rows)


def _check_roles(job: Job, calls: list[list[_Calls | None]]) -> None:
    for program, of_role in enumerate(calls):
        ranks = np.flatnonzero(job.program == program)
        for role in (role for role, calls in enumerate(of_role) if calls is not None):
            without = ranks[job.communicator[ranks, role] < 0]
            if len(without):
                raise InputError(
                    f'{job.labels[without[0]]} communicates as "{job.roles[role]}" and has no '
                    "communicator for it"
                )


def _check_members(job: Job, used: Bools, rank: Ints, role: Ints, group: Codes) -> None:
    number = np.repeat(np.arange(len(used)), np.diff(job.communicators.offsets))
    there = used[number]
    number, members = number[there], job.communicators.members[there]
    members = members[np.lexsort((members, number))]
    for entry in np.flatnonzero(members != rank)[:1].tolist():
        of_group = group == group[entry]
        strangers = np.setdiff1d(rank[of_group], members[of_group])
        if not len(strangers):  # a member calls twice, in two roles, and another one never
            raise _missing(job, int(group[entry]), rank[of_group], role[of_group])
        raise InputError(
            f"communicator of {_listed(job, int(group[entry]))}: {job.labels[strangers[0]]} calls "
            "on it and is not among them"
        )


def _signatures(job: Job, calls: list[list[_Calls | None]]) -> Ints:
    """Return a number for every (program, role): equal if the calls match."""
    seen: dict[bytes, int] = {}
    marks = np.zeros((len(calls), len(job.roles)), dtype=np.int64)
    for program, of_role in enumerate(calls):
        for role, calls_of_role in enumerate(of_role):
            if calls_of_role is not None:
                text = _what(job, program, calls_of_role).tobytes()
                marks[program, role] = seen.setdefault(text, len(seen))
    return marks


def _what(job: Job, program: int, calls: _Calls) -> Ints:
    of = job.programs[program]
    if calls.kind == COLLECTIVE:
        return np.concatenate(([0], of.name[calls.rows])).astype(np.int64)
    return np.concatenate(([1], of.size[calls.rows])).astype(np.int64)


def _check_messages(job: Job, kinds: Ints, rank: Ints, role: Ints, group: Codes) -> None:
    kind = kinds[job.program[rank], role]
    messages = kind != COLLECTIVE
    offsets, members = job.communicators.offsets, job.communicators.members
    sender = members[offsets[group[messages]]] == rank[messages]
    wrong = np.flatnonzero(sender != (kind[messages] == SEND))
    sizes = np.diff(offsets)[group[messages]]
    for entry in [*np.flatnonzero(sizes != 2).tolist(), *wrong.tolist()][:1]:
        number = int(group[messages][entry])
        raise InputError(
            f"communicator of {_listed(job, number)}: messages go from its first of two ranks to "
            f"its second; {job.labels[rank[messages][entry]]} "
            f"{'sends' if kind[messages][entry] == SEND else 'receives'}"
        )


def _missing(job: Job, number: int, rank: Ints, role: Ints) -> InputError:
    members = job.communicators.ranks(number)
    twice = [r for r in members if int((rank == r).sum()) > 1]
    if twice:
        return InputError(
            f"communicator of {_listed(job, number)}: {job.labels[twice[0]]} uses it in two roles"
        )
    absent = sorted(set(members) - set(rank.tolist())) or [int(rank[0])]
    doing = f'{job.labels[rank[0]]} calls "{job.roles[role[0]]}"'
    return InputError(
        f"collectives do not match: of {_listed(job, number)}, {doing} and "
        f"{job.labels[absent[0]]} never does"
    )


def _different(
    job: Job,
    calls: list[list[_Calls | None]],
    number: int,
    rank: Ints,
    role: Ints,
    first: int,
    second: int,
) -> InputError:
    here, there = int(job.program[rank[first]]), int(job.program[rank[second]])
    mine, yours = calls[here][role[first]], calls[there][role[second]]
    me, you = job.labels[rank[first]], job.labels[rank[second]]
    if mine is None or yours is None:
        raise AssertionError("entries are of roles that are used")
    plural = "collectives" if mine.kind == COLLECTIVE else "messages"
    head = f"{plural} of {_listed(job, number)} do not match"
    ours, theirs = _what(job, here, mine), _what(job, there, yours)
    for position in range(1, min(len(ours), len(theirs))):
        if ours[position] != theirs[position]:
            return InputError(
                f"{head}: the {_ordinal(position)} is {_call(job, here, mine, position)} on {me}, "
                f"{_call(job, there, yours, position)} on {you}"
            )
    return InputError(f"{head}: {me} has {len(mine.rows)}, {you} has {len(yours.rows)}")


def _call(job: Job, program: int, calls: _Calls, position: int) -> str:
    row = calls.rows[position - 1]
    of = job.programs[program]
    return f"{job.names[of.name[row]]} of {of.size[row]:,} bytes"


def _listed(job: Job, number: int) -> str:
    labels = [job.labels[rank] for rank in job.communicators.ranks(number)]
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    return ", ".join(labels[:SHOWN]) + more


def _ordinal(number: int) -> str:
    endings = {1: "st", 2: "nd", 3: "rd"}
    ending = "th" if number % 100 in (11, 12, 13) else endings.get(number % 10, "th")
    return f"{number}{ending}"


def _check_ranks(job: Job) -> None:
    if not job.ranks:
        raise InputError("job: no ranks: give it at least one")
    for rank in np.flatnonzero(~((job.speed > 0) & np.isfinite(job.speed)))[:1]:
        raise InputError(
            f"job: {job.labels[rank]}: speed must be finite and above 0, not {job.speed[rank]}"
        )
    groups = job.communicators
    for what, numbers, count in (
        ("program", job.program, len(job.programs)),
        ("rank", groups.members, job.ranks),
        ("communicator", job.communicator, len(groups)),
    ):
        if (wrong := numbers[numbers >= count]).size:
            raise InputError(f"job: there is no {what} {wrong[0]}, only {count} of them")
    number = np.repeat(np.arange(len(groups)), np.diff(groups.offsets))
    order = np.lexsort((groups.members, number))
    of, who = number[order], groups.members[order]
    for twice in np.flatnonzero((of[1:] == of[:-1]) & (who[1:] == who[:-1]))[:1]:
        raise InputError(f"job: communicator {of[twice]} has rank {who[twice]} twice")
