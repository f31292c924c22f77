"""Whether the arrays of a job go together: compiled loops would read beyond those that do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError, unknown
from paracosm.jobs.job import POLICIES, Communicators, Job
from paracosm.jobs.program import KINDS, STEPS, Program

__all__ = ["check_arrays"]

TASK = KINDS.index("task")
COLUMNS = (
    *("name", "step", "kind", "lane", "duration", "role", "size", "priority", "microbatch"),
    *("allocated", "released"),
)


def check_arrays(job: Job) -> None:
    """Make sure that every index of a job leads somewhere, in time linear in its arrays.

    Raises:
        InputError: no ranks; columns of unequal length; offsets that do not ascend; a dependency on
            a row that is not before its own; a name, step, kind, lane, role, program, communicator
            or rank that is not there; a task with a role, or communication without; a negative
            size; a speed that is not above 0; a policy that is unknown.
    """
    if not job.ranks:
        raise InputError("job: no ranks: give it at least one")
    if len(job.policies) != len(job.lanes):
        raise InputError(
            f"job: {len(job.policies)} policies for {len(job.lanes)} lanes: give one for each"
        )
    for policy in job.policies:
        if policy not in POLICIES:
            raise unknown("policy", policy, POLICIES)
    for number, program in enumerate(job.programs):
        _check_program(job, program, f"job: program {number}")
    _check_ranks(job)
    _check_communicators(job.communicators, job.ranks)


def _check_program(job: Job, program: Program, where: str) -> None:
    n = len(program)
    for column in COLUMNS:
        if len(getattr(program, column)) != n:
            raise InputError(
                f"{where}: {column} has {len(getattr(program, column))} entries for {n} tasks"
            )
    _check_offsets(f"{where}: offsets", program.offsets, n, len(program.dependencies))
    for column, low, count in (
        ("name", 0, len(job.names)),
        ("step", 0, len(STEPS)),
        ("kind", 0, len(KINDS)),
        ("lane", -1, len(job.lanes)),
        ("role", -1, len(job.roles)),
    ):
        _check_codes(f"{where}: task", column, getattr(program, column), low, count)
    row = np.repeat(np.arange(n), np.diff(program.offsets))
    wrong = np.flatnonzero((program.dependencies < 0) | (program.dependencies >= row))
    if len(wrong):
        raise InputError(
            f"{where}: task {row[wrong[0]]} depends on row {program.dependencies[wrong[0]]}: rows "
            "depend on earlier ones"
        )
    wrong = np.flatnonzero((program.role >= 0) != (program.kind != TASK))
    if len(wrong):
        kind = KINDS[program.kind[wrong[0]]]
        has = "has no" if kind == "task" else "needs a"
        raise InputError(f"{where}: task {wrong[0]}: a {kind} {has} role")
    if program.size.min(initial=0) < 0:
        wrong = np.flatnonzero(program.size < 0)
        raise InputError(
            f"{where}: task {wrong[0]}: {program.size[wrong[0]]} bytes; give 0 or more"
        )


def _check_ranks(job: Job) -> None:
    ranks = job.ranks
    for what, found in (("speeds", len(job.speed)), ("labels", len(job.labels))):
        if found != ranks:
            raise InputError(f"job: {found} {what} for {ranks} ranks: give one for each")
    _check_codes("job: rank", "program", job.program, 0, len(job.programs))
    wrong = np.flatnonzero(~((job.speed > 0) & np.isfinite(job.speed)))
    if len(wrong):
        rank = int(wrong[0])
        raise InputError(
            f"job: {job.labels[rank]}: speed must be finite and above 0, not {job.speed[rank]}"
        )
    if job.communicator.shape != (ranks, len(job.roles)):
        raise InputError(
            f"job: communicator has shape {job.communicator.shape}, not ranks x roles = "
            f"{(ranks, len(job.roles))}"
        )
    for role, name in enumerate(job.roles):
        column = job.communicator[:, role]
        _check_codes(
            f'job: role "{name}": rank', "communicator", column, -1, len(job.communicators)
        )


def _check_communicators(groups: Communicators, ranks: int) -> None:
    count = len(groups)
    _check_offsets("job: offsets of communicators", groups.offsets, count, len(groups.members))
    _check_codes("job: member", "rank", groups.members, 0, ranks)
    number = np.repeat(np.arange(count), np.diff(groups.offsets))
    order = np.lexsort((groups.members, number))
    of, who = number[order], groups.members[order]
    twice = np.flatnonzero((of[1:] == of[:-1]) & (who[1:] == who[:-1]))
    if len(twice):
        raise InputError(f"job: communicator {of[twice[0]]} has rank {who[twice[0]]} twice")
    connections = 0 if groups.network is None else len(groups.network.connections)
    if connections > count:
        raise InputError(f"job: {connections} connections for {count} communicators")


def _check_offsets(what: str, offsets: npt.NDArray[np.int64], rows: int, entries: int) -> None:
    if len(offsets) != rows + 1:
        raise InputError(f"{what}: {len(offsets)} entries for {rows} rows, not one more")
    if offsets[0] != 0 or offsets[-1] != entries or np.any(offsets[1:] < offsets[:-1]):
        raise InputError(f"{what} must ascend from 0 to {entries}")


def _check_codes(row: str, what: str, column: npt.NDArray[Any], low: int, count: int) -> None:
    if len(column) and not (low <= column.min() and column.max() < count):
        wrong = int(np.flatnonzero((column < low) | (column >= count))[0])
        raise InputError(f"{row} {wrong}: there is no {what} {column[wrong]}, only {count} of them")
