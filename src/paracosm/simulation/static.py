"""Replay of a job whose lanes all run in order: one longest path, whatever the number of ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.jobs import KINDS, Job
from paracosm.jobs.expand import PICOSECOND
from paracosm.simulation.folding import Folding
from paracosm.simulation.job_schedule import JobSchedule
from paracosm.simulation.static_arrays import StaticArrays, static_arrays
from paracosm.simulation.static_kernel import LATEST, fill_tasks, play_chains

__all__ = ["Played", "play_static", "schedule_of"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Played:
    """What became of the chains of a static job, in picoseconds.

    Attributes:
        job, folding, arrays: what was played.
        arrive, begin, end: of the chains of all units.
        order: chains in an order in which each comes after what it waits for.
    """

    job: Job
    folding: Folding
    arrays: StaticArrays
    arrive: Ints
    begin: Ints
    end: Ints
    order: Ints


def play_static(job: Job, folding: Folding, lengths: Ints | None = None) -> Played:
    """Play a job whose lanes are in order and whose links are not shared.

    Args:
        job: of at least one rank.
        folding: of its ranks into units.
        lengths: picoseconds of the tasks of all units, where they are not those of the programs.

    Raises:
        InputError: a duration that cannot be; ranks that wait for each other for ever; instants
            after 2**63 - 1 ps (106 days).
    """
    arrays = static_arrays(job, folding, lengths)
    chains, units = arrays.chains, len(arrays.program)
    total, slots = int(arrays.first_chain[-1]), int(arrays.slots_before[-1])
    arrive, begin, end = (np.full(total, -1, dtype=np.int64) for _ in range(3))
    order = np.empty(total, dtype=np.int64)
    done = play_chains(
        arrays.program,
        arrays.first_chain,
        arrays.first_duration,
        folding.group,
        chains.chains_before,
        chains.of_lane,
        chains.kind,
        chains.role,
        chains.ordinal,
        chains.offsets,
        chains.dependencies,
        arrays.durations,
        arrays.slots_before,
        folding.members,
        folding.offsets,
        np.zeros(slots, dtype=np.int64),
        np.zeros(slots, dtype=np.int64),
        np.zeros(slots, dtype=np.int64),
        np.full(slots, -1, dtype=np.int64),
        chains.of_lane[arrays.program, :-1].copy(),
        np.zeros((units, len(job.lanes)), dtype=np.int64),
        np.zeros(units, dtype=np.int64),
        np.zeros(units, dtype=np.bool_),
        arrive,
        begin,
        end,
        order,
    )
    played = Played(job, folding, arrays, arrive, begin, end, order)
    if done < total:
        raise _stuck(played)
    if end.max(initial=0) == LATEST:
        raise InputError(
            "the job lasts more than 2**63 - 1 picoseconds (106 days), which is as far as the "
            "clock goes: shorten durations, or check their unit"
        )
    return played


def schedule_of(played: Played) -> JobSchedule:
    """Return the instants of all tasks, from those of their chains."""
    arrays = played.arrays
    tasks = int(arrays.first_row[-1])
    arrive, begin, end = (np.empty(tasks) for _ in range(3))
    fill_tasks(
        arrays.program,
        arrays.first_chain,
        arrays.first_row,
        arrays.first_length,
        arrays.chains.chains_before,
        arrays.chains.rows_before,
        arrays.chains.rows,
        arrays.chains.first,
        arrays.chains.kind,
        arrays.lengths,
        played.arrive,
        played.begin,
        played.end,
        PICOSECOND,
        arrive,
        begin,
        end,
    )
    return JobSchedule(
        job=played.job,
        class_of=played.folding.class_of,
        representative=played.folding.representative,
        first=arrays.first_row,
        arrive=arrive,
        begin=begin,
        end=end,
    )


def _stuck(played: Played) -> InputError:
    """Say of the first ranks that wait for ever what they wait for."""
    job, arrays, chains, told = played.job, played.arrays, played.arrays.chains, []
    for unit, own in enumerate(arrays.program.tolist()):
        instants = slice(arrays.first_chain[unit], arrays.first_chain[unit + 1])
        here = np.flatnonzero((played.end[instants] < 0) & (played.arrive[instants] >= 0))
        for chain in here[:1].tolist():
            place = chains.first[chains.chains_before[own] + own + chain]
            row = chains.rows[chains.rows_before[own] + place]
            kind = chains.kind[chains.chains_before[own] + chain]
            what = "waits at" if kind == KINDS.index("collective") else "waits for"
            label = job.labels[played.folding.representative[unit]]
            told.append(f"{label} {what} {job.names[job.programs[own].name[row]]} (task {row})")
    waits = "; ".join(told[:3]) or "every lane waits for another one"
    return InputError(f"the job cannot go on, ranks wait for each other: {waits}")
