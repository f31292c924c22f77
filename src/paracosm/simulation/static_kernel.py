"""The compiled replay of in-order lanes: every chain once, as soon as all it waits for is known.

Nothing is sorted and no clock is kept. The lanes of one rank are followed until each waits for
another rank; then it is that rank's turn. Every instant is the maximum of instants that are known,
so the order in which ranks have their turns makes no difference.
"""

from __future__ import annotations

from typing import Any

from paracosm.compiled import compiled
from paracosm.jobs import KINDS

__all__ = ["LATEST", "fill_tasks", "play_chains"]

LATEST = 2**63 - 1
"""Picoseconds: as far as instants go; what would end later ends then."""

TASK, COLLECTIVE, SEND, RECEIVE = (KINDS.index(kind) for kind in KINDS)


@compiled
def _later(now: int, length: int) -> int:
    return now + min(length, LATEST - now)


@compiled
def play_chains(
    program: Any,
    first_chain: Any,
    first_duration: Any,
    group: Any,
    chains_before: Any,
    of_lane: Any,
    kind: Any,
    role: Any,
    ordinal: Any,
    offsets: Any,
    dependencies: Any,
    duration: Any,
    slots_before: Any,
    members: Any,
    members_before: Any,
    slot_count: Any,
    slot_arrive: Any,
    slot_duration: Any,
    slot_end: Any,
    place: Any,
    free: Any,
    turn: Any,
    queued: Any,
    arrive: Any,
    begin: Any,
    end: Any,
    order: Any,
) -> int:
    """Fill the instants of the chains of all units (ranks, or classes of them).

    Args:
        program: of each of U units.
        first_chain, first_duration: of each unit, in `end` and in `duration`.
        group: U x roles communicators.
        chains_before: of each program, in the columns that follow.
        of_lane: programs x (lanes + 1) offsets of the chains of a lane, from the program's first.
        kind, role, ordinal: of the chains of all programs.
        offsets: of the chains of all programs, into `dependencies`.
        dependencies: chains, counted from the program's first.
        duration: picoseconds of chains.
        slots_before: of each communicator: its k-th call is slot `slots_before + k`.
        members, members_before: units of each communicator.
        slot_count, slot_arrive, slot_duration: zeros, one for each slot.
        slot_end: -1 for each slot.
        place: U x lanes: the chain that each lane comes to next, `of_lane` to begin with.
        free: U x lanes zeros: when each lane is free.
        turn, queued: work space: U units, and U booleans.
        arrive, begin, end: instants of the chains of all units, all -1 (filled).
        order: the chains of all units in the order in which they became known (filled).

    Returns:
        How many chains became known.
    """
    units, lanes = free.shape
    done = 0
    waiting = units
    for unit in range(units):
        turn[unit] = units - 1 - unit
        queued[unit] = True
    while waiting > 0:
        waiting -= 1
        unit = turn[waiting]
        queued[unit] = False
        own, base = program[unit], first_chain[unit]
        before = chains_before[own]
        moved = True
        while moved:
            moved = False
            for lane in range(lanes):
                while place[unit, lane] < of_lane[own, lane + 1]:
                    chain = place[unit, lane]
                    here, of = base + chain, before + chain
                    length = duration[first_duration[unit] + chain]
                    what = kind[of]
                    slot, meets = -1, -1
                    if what != TASK:
                        meets = group[unit, role[of]]
                        slot = slots_before[meets] + ordinal[of]
                    wakes = False
                    if arrive[here] < 0:
                        there = free[unit, lane]
                        known = True
                        for index in range(offsets[of], offsets[of + 1]):
                            ended = end[base + dependencies[index]]
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
                                slot_end[slot] = _later(slot_arrive[slot], slot_duration[slot])
                                wakes = True
                        elif what == SEND:
                            slot_end[slot] = _later(there, length)
                            wakes = True
                    if what in (COLLECTIVE, RECEIVE) and slot_end[slot] < 0:
                        break
                    if what == COLLECTIVE:
                        begin[here], end[here] = slot_arrive[slot], slot_end[slot]
                    elif what == RECEIVE:
                        begin[here] = arrive[here]
                        end[here] = max(arrive[here], _later(slot_end[slot], length))
                    else:
                        begin[here] = arrive[here]
                        end[here] = _later(arrive[here], length)
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


@compiled
def fill_tasks(
    program: Any,
    first_chain: Any,
    first_row: Any,
    first_length: Any,
    chains_before: Any,
    rows_before: Any,
    rows: Any,
    first: Any,
    kind: Any,
    length: Any,
    chain_arrive: Any,
    chain_begin: Any,
    chain_end: Any,
    second: float,
    arrive: Any,
    begin: Any,
    end: Any,
) -> None:
    """Fill the instants of all tasks, in seconds, from those of their chains.

    Args:
        program: of each of U units.
        first_chain, first_row, first_length: of each unit, in the chains' instants, in those of
            tasks, and in `length`.
        chains_before, rows_before: of each program, in `kind` and `rows`.
        rows: of the chains of all programs, one chain after the other.
        first: offsets of each chain into `rows`, counted from its program's first; one more than
            chains for each program.
        kind: of the chains of all programs.
        length: picoseconds of tasks.
        chain_arrive, chain_begin, chain_end: picoseconds.
        second: of a picosecond.
        arrive, begin, end: of all tasks (filled).
    """
    for unit in range(program.size):
        own = program[unit]
        chains = chains_before[own + 1] - chains_before[own]
        for chain in range(chains):
            here = first_chain[unit] + chain
            offset = chains_before[own] + own + chain
            now = chain_begin[here]
            for place in range(first[offset], first[offset + 1]):
                row = rows[rows_before[own] + place]
                task = first_row[unit] + row
                arrive[task] = now * second
                begin[task] = now * second
                now += length[first_length[unit] + row]
                end[task] = now * second
            if kind[chains_before[own] + chain] != TASK:
                task = first_row[unit] + rows[rows_before[own] + first[offset]]
                arrive[task] = chain_arrive[here] * second
                end[task] = chain_end[here] * second
