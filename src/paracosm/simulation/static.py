"""Replay of a job whose lanes all run in order: one longest path, whatever the number of ranks.

Nothing is sorted and no clock is kept. The lanes of one rank are followed until each waits for
another rank; then it is that rank's turn. Every instant is the maximum of known instants, so the
order of ranks makes no difference.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Bools, Codes, Floats, Ints
from paracosm.compiled import compiled_whole, shaped
from paracosm.errors import InputError
from paracosm.jobs.expand import PICOSECOND, picoseconds
from paracosm.jobs.job import KINDS, Job
from paracosm.network.clock import LAST_INSTANT
from paracosm.network.heaps import later
from paracosm.simulation.folding import (
    Folding,
    JoinedChains,
    contract,
    join_chains,
    offsets_of,
    sum_chains,
)


@dataclass(frozen=True, eq=False)
class JobSchedule:
    """Instants of the tasks of a job, in seconds from the beginning of the iteration.

    Equal ranks, which must behave alike, form a class, of which only one is stored: the schedule of
    rank r is that of `representative[class_of[r]]`. Replayed in full, every rank is a class of its
    own. The tasks of class c are at `slice(first[c], first[c + 1])`, in the order of the rows of
    its program.
    """

    job: Job
    class_of: Codes  # R indices of classes
    representative: Codes  # the rank that stands for each of C classes
    first: Ints  # C + 1 offsets
    arrive: Floats  # when each task takes its lane; a collective then waits for the other ranks
    begin: Floats  # when it goes on; differs from `arrive` for collectives only
    end: Floats  # when it has ended and its lane is free

    @property
    def makespan(self) -> float:
        """The instant at which the last task has ended; 0 of an empty job."""
        return float(self.end.max(initial=0.0))

    def tasks_of(self, rank: int) -> slice:
        """Return the place of the tasks of a rank, or of its representative."""
        number = int(self.class_of[rank])
        return slice(int(self.first[number]), int(self.first[number + 1]))


@dataclass(frozen=True, eq=False)
class Played:
    """The chains of a static job after its replay, in picoseconds."""

    job: Job
    folding: Folding
    arrays: "StaticArrays"
    arrive: Ints  # of the chains of all units
    begin: Ints
    end: Ints
    order: Ints  # each chain after what it waits for

    @property
    def lengths(self) -> Ints:
        """Picoseconds of the tasks of all units, one unit after the other."""
        arrays = self.arrays
        rows = np.diff(arrays.first_row)
        return np.concatenate(
            [
                arrays.lengths[first : first + n]
                for first, n in zip(arrays.first_length, rows, strict=True)
            ]
        )


def play_static(job: Job, folding: Folding, lengths: Ints | None = None) -> Played:
    """Play a job whose lanes are in order and whose links are not shared.

    `lengths` are picoseconds of the tasks of all units, where they are not those of the programs.
    """
    arrays = _static_arrays(job, folding, lengths)
    total = int(arrays.first_chain[-1])
    arrive, begin, end = (np.full(total, -1, dtype=np.int64) for _ in range(3))
    order = np.empty(total, dtype=np.int64)
    done = _play_chains(arrays, folding, _first_front(arrays), arrive, begin, end, order)
    played = Played(job, folding, arrays, arrive, begin, end, order)
    if done < total:
        raise _stuck(played)
    if end.max(initial=0) == LAST_INSTANT:
        raise InputError(
            "the job lasts more than 2**63 - 1 picoseconds (106 days), the range of the clock: "
            "shorten durations, or check their unit"
        )
    return played


def schedule_of(played: Played) -> JobSchedule:
    """Return the instants of all tasks, from those of their chains."""
    arrays = played.arrays
    tasks = int(arrays.first_row[-1])
    arrive, begin, end = (np.empty(tasks) for _ in range(3))
    _fill_tasks(*(arrays, played.arrive, played.begin, played.end, PICOSECOND, arrive, begin, end))
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
    """Describe what the first ranks wait for in a deadlock."""
    job, arrays, chains, told = played.job, played.arrays, played.arrays.chains, []
    for unit, own_program in enumerate(arrays.program.tolist()):
        instants = slice(arrays.first_chain[unit], arrays.first_chain[unit + 1])
        here = np.flatnonzero((played.end[instants] < 0) & (played.arrive[instants] >= 0))
        for chain in here[:1].tolist():
            place = chains.first[chains.chains_before[own_program] + own_program + chain]
            row = chains.rows[chains.rows_before[own_program] + place]
            kind = chains.kind[chains.chains_before[own_program] + chain]
            what = "waits at" if kind == KINDS.index("collective") else "waits for"
            label = job.labels[played.folding.representative[unit]]
            told.append(
                f"{label} {what} {job.names[job.programs[own_program].name[row]]} (task {row})"
            )
    waits = "; ".join(told[:3]) or "every lane waits for another one"
    return InputError(f"the job is deadlocked, ranks wait for each other: {waits}")


Numbers = TypeVar("Numbers", np.int64, np.float64)


class StaticArrays(NamedTuple):
    """Chains of all programs, and the places of each unit's instants.

    A unit is a class of equal ranks, or a rank. Units with one program and one speed share their
    durations, unless all have their own.
    """

    chains: JoinedChains  # of the programs
    program: Codes  # U indices of programs
    first_chain: Ints  # first_chain, first_row: U + 1 offsets of the units' chains and tasks
    first_row: Ints
    first_duration: Ints  # first_duration, first_length: U offsets into `durations` and `lengths`
    first_length: Ints
    durations: Ints  # picoseconds of chains
    lengths: Ints  # picoseconds of tasks
    slots_before: Ints  # offsets of the calls of each communicator between units


def _static_arrays(job: Job, folding: Folding, lengths: Ints | None = None) -> StaticArrays:
    chains = join_chains([contract(program, len(job.lanes)) for program in job.programs])
    program = job.program[folding.representative]
    first_chain = offsets_of(np.diff(chains.chains_before)[program])
    first_row = offsets_of(np.diff(chains.rows_before)[program])
    if lengths is None:
        own, first_length, first_duration, lengths = _shared(job, folding, chains)
        durations = chain_sums(chains, own, lengths)
    else:
        first_length, first_duration = first_row[:-1], first_chain[:-1]
        durations = chain_sums(chains, program, lengths)
    return StaticArrays(
        chains=chains,
        program=program,
        first_chain=first_chain,
        first_row=first_row,
        first_duration=first_duration,
        first_length=first_length,
        durations=durations,
        lengths=lengths,
        slots_before=_slots(folding, chains, program),
    )


def chain_sums(
    chains: JoinedChains, program: Codes, lengths: npt.NDArray[Numbers]
) -> npt.NDArray[Numbers]:
    """Return the sums over the tasks of each chain, of units with these programs side by side."""
    first_chain = offsets_of(np.diff(chains.chains_before)[program])
    first_row = offsets_of(np.diff(chains.rows_before)[program])
    total = np.zeros(int(first_chain[-1]), dtype=lengths.dtype)
    if len(lengths):
        sum_chains(program, first_chain, first_row, chains, lengths, total)
    return total


def _shared(job: Job, folding: Folding, chains: JoinedChains) -> tuple[Codes, Ints, Ints, Ints]:
    """Return the program of every pair of program and speed that occurs, offsets, and lengths."""
    program = job.program[folding.representative]
    speed = job.speed[folding.representative]
    pairs, pair_of = np.unique(
        np.column_stack((program.astype(np.int64), speed.view(np.int64))),
        axis=0,
        return_inverse=True,
    )
    own = pairs[:, 0].astype(np.int32)
    lengths = [
        picoseconds(job.programs[code], float(rate), job.names)
        for code, rate in zip(own, pairs[:, 1].copy().view(np.float64), strict=True)
    ]
    rows = offsets_of(np.diff(chains.rows_before)[own])
    totals = offsets_of(np.diff(chains.chains_before)[own])
    of_unit = pair_of.reshape(-1)
    return own, rows[of_unit], totals[of_unit], np.concatenate(lengths)


def _slots(folding: Folding, chains: JoinedChains, program: Codes) -> Ints:
    """Return offsets of as many slots for each communicator as a member has calls."""
    roles = folding.group.shape[1]
    most = np.zeros(len(folding.offsets) - 1, dtype=np.int64)
    for number in np.unique(program).tolist():
        of_program = slice(chains.chains_before[number], chains.chains_before[number + 1])
        role = chains.role[of_program]
        calls = np.bincount(role[role >= 0], minlength=roles)
        groups = folding.group[program == number]
        used = groups >= 0
        np.maximum.at(most, groups[used], np.broadcast_to(calls, groups.shape)[used])
    return offsets_of(most)


TASK, COLLECTIVE, SEND, RECEIVE = (KINDS.index(kind) for kind in KINDS)


class _Front(NamedTuple):
    """How far the units are. Of communicator g, the k-th call is slot `slots_before[g] + k`."""

    slot_count: Ints  # how many members have arrived
    slot_arrive: Ints  # when the last of them did
    slot_duration: Ints  # the longest that one has
    slot_end: Ints
    place: Ints  # U x lanes: the chain that each lane comes to next, and when the lane is free
    free: Ints
    turn: Ints  # a stack of units that may go on, the first on top
    queued: Bools  # whether a unit is in it


def _first_front(arrays: StaticArrays) -> _Front:
    slots, units = int(arrays.slots_before[-1]), len(arrays.program)
    place = np.ascontiguousarray(arrays.chains.of_lane[arrays.program, :-1])
    return _Front(
        slot_count=np.zeros(slots, dtype=np.int64),
        slot_arrive=np.zeros(slots, dtype=np.int64),
        slot_duration=np.zeros(slots, dtype=np.int64),
        slot_end=np.full(slots, -1, dtype=np.int64),
        place=place,
        free=np.zeros_like(place),
        turn=np.arange(units)[::-1].copy(),
        queued=np.ones(units, dtype=np.bool_),
    )


@shaped(
    "units: program turn queued; units+1: first_chain; chains: arrive begin end order; "
    "units lanes: place free; slots: slot_count slot_arrive slot_duration slot_end"
)
@compiled_whole
def _play_chains(
    arrays: Any, folding: Any, front: Any, arrive: Any, begin: Any, end: Any, order: Any
) -> int:
    """Fill the instants of the chains of all units, in `order`; return the number known."""
    chains = arrays.chains
    program, first_chain, slots_before = arrays.program, arrays.first_chain, arrays.slots_before
    kind, of_lane, offsets = chains.kind, chains.of_lane, chains.offsets
    members, members_before = folding.members, folding.offsets
    units, lanes = program.size, of_lane.shape[1] - 1
    slot_count, slot_arrive = front.slot_count, front.slot_arrive
    slot_duration, slot_end = front.slot_duration, front.slot_end
    place, free, turn, queued = front.place, front.free, front.turn, front.queued
    done = 0
    waiting = units
    while waiting > 0:
        waiting -= 1
        unit = turn[waiting]
        queued[unit] = False
        own_program, base = program[unit], first_chain[unit]
        before = chains.chains_before[own_program]
        moved = True
        while moved:
            moved = False
            for lane in range(lanes):
                while place[unit, lane] < of_lane[own_program, lane + 1]:
                    chain = place[unit, lane]
                    here, of = base + chain, before + chain
                    length = arrays.durations[arrays.first_duration[unit] + chain]
                    what = kind[of]
                    slot, meets = -1, -1
                    if what != TASK:
                        meets = folding.group[unit, chains.role[of]]
                        slot = slots_before[meets] + chains.ordinal[of]
                    wakes = False
                    if arrive[here] < 0:
                        there = free[unit, lane]
                        known = True
                        for index in range(offsets[of], offsets[of + 1]):
                            ended = end[base + chains.dependencies[index]]
                            if ended < 0:
                                known = False
                                break
                            there = max(there, ended)
                        if not known:
                            break
                        arrive[here] = there
                        if what == COLLECTIVE:
                            slot_count[slot] += 1
                            slot_arrive[slot] = max(slot_arrive[slot], there)
                            slot_duration[slot] = max(slot_duration[slot], length)
                            if (
                                slot_count[slot]
                                == members_before[meets + 1] - members_before[meets]
                            ):
                                slot_end[slot] = later(slot_arrive[slot], slot_duration[slot])
                                wakes = True
                        elif what == SEND:
                            slot_end[slot] = later(there, length)
                            wakes = True
                    if what in (COLLECTIVE, RECEIVE) and slot_end[slot] < 0:
                        break
                    if what == COLLECTIVE:
                        begin[here], end[here] = slot_arrive[slot], slot_end[slot]
                    elif what == RECEIVE:
                        begin[here] = arrive[here]
                        end[here] = max(arrive[here], later(slot_end[slot], length))
                    else:
                        begin[here] = arrive[here]
                        end[here] = later(arrive[here], length)
                    free[unit, lane] = end[here]
                    place[unit, lane] = chain + 1
                    order[done] = here
                    done += 1
                    moved = True
                    if wakes:
                        for index in range(members_before[meets], members_before[meets + 1]):
                            other = members[index]
                            if other != unit and not queued[other]:
                                turn[waiting] = other
                                waiting += 1
                                queued[other] = True
    return done


@shaped(
    "units: program; units+1: first_chain; chains: chain_arrive chain_begin chain_end; "
    "n: arrive begin end"
)
@compiled_whole
def _fill_tasks(
    arrays: Any,
    chain_arrive: Any,
    chain_begin: Any,
    chain_end: Any,
    second: float,
    arrive: Any,
    begin: Any,
    end: Any,
) -> None:
    """Fill the instants of all tasks, in seconds, from the picoseconds of their chains."""
    columns = arrays.chains
    for unit in range(arrays.program.size):
        own_program = arrays.program[unit]
        before = columns.chains_before[own_program]
        for chain in range(columns.chains_before[own_program + 1] - before):
            here = arrays.first_chain[unit] + chain
            offset = before + own_program + chain
            now = chain_begin[here]
            for place in range(columns.first[offset], columns.first[offset + 1]):
                row = columns.rows[columns.rows_before[own_program] + place]
                task = arrays.first_row[unit] + row
                arrive[task] = now * second
                begin[task] = now * second
                now += arrays.lengths[arrays.first_length[unit] + row]
                end[task] = now * second
            if columns.kind[before + chain] != TASK:
                row = columns.rows[columns.rows_before[own_program] + columns.first[offset]]
                task = arrays.first_row[unit] + row
                arrive[task] = chain_arrive[here] * second
                end[task] = chain_end[here] * second
