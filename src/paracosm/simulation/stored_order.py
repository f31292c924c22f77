"""The order in which a static job became known, kept: every replay is then one pass over it.

The graph holds the instants that matter: the end of every chain of tasks and of every message, each
rank's arrival at a collective, and the join, at which its ranks go on together. They stand in an
order in which each comes after those that it waits for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.compiled import compiled
from paracosm.jobs import KINDS
from paracosm.simulation.static import Played

__all__ = ["ARRIVAL", "CHAIN", "JOIN", "StoredOrder", "store_order"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

CHAIN, ARRIVAL, JOIN = 0, 1, 2
COLLECTIVE, SEND, RECEIVE = (KINDS.index(kind) for kind in ("collective", "send", "receive"))


@dataclass(frozen=True, eq=False)
class StoredOrder:
    """k instants of a job and what they wait for.

    Attributes:
        kind: k of `CHAIN`, `ARRIVAL`, `JOIN`.
        chain: k chains, whose duration (of a join: of whose collective) is added; -1 where nothing
            is: at arrivals and receives, which are preceded by the instant at which the message
            has come.
        offsets, predecessors: CSR of instants; those of a join are the arrivals of its members, in
            the order of `Folding.members`.
        group: k communicators of joins; -1 elsewhere.
        end_of: of every chain, the instant at which it ends.
        arrival_of: of every chain, the instant at which it arrives at a collective; -1 elsewhere.
    """

    kind: Codes
    chain: Ints
    offsets: Ints
    predecessors: Ints
    group: Codes
    end_of: Ints
    arrival_of: Ints

    def __len__(self) -> int:
        return len(self.kind)


def store_order(played: Played) -> StoredOrder:
    """Return the instants of a job that has been played, in an order that holds for any durations.

    The duration of a collective is the longest of its members': that of the member that has it.
    """
    arrays, folding = played.arrays, played.folding
    chains, total = arrays.chains, len(played.order)
    most = total + _count(played, COLLECTIVE) + _count(played, RECEIVE)
    edges = 2 * total + _dependencies(played) + most
    kind, group = np.zeros(most, dtype=np.int32), np.full(most, -1, dtype=np.int32)
    chain, offsets = np.full(most, -1, dtype=np.int64), np.zeros(most + 1, dtype=np.int64)
    predecessors = np.empty(edges, dtype=np.int64)
    end_of, arrival_of = np.full((2, total), -1, dtype=np.int64)
    unit = np.repeat(np.arange(len(arrays.program)), np.diff(arrays.first_chain)).astype(np.int32)
    slots = int(arrays.slots_before[-1])
    sizes = np.diff(folding.offsets)
    seats = np.zeros(slots + 1, dtype=np.int64)
    np.cumsum(np.repeat(sizes, np.diff(arrays.slots_before)), out=seats[1:])
    count, links = _store(
        played.order,
        unit,
        arrays.program,
        arrays.first_chain,
        arrays.first_duration,
        chains.chains_before,
        _lane_of(played),
        chains.kind,
        chains.role,
        chains.ordinal,
        chains.offsets,
        chains.dependencies,
        arrays.durations,
        folding.group,
        folding.entry,
        folding.offsets,
        arrays.slots_before,
        seats,
        np.full(int(seats[-1]), -1, dtype=np.int64),
        np.full(slots, -1, dtype=np.int64),
        kind,
        chain,
        offsets,
        predecessors,
        group,
        end_of,
        arrival_of,
    )
    return StoredOrder(
        kind=kind[:count],
        chain=chain[:count],
        offsets=offsets[: count + 1],
        predecessors=predecessors[:links],
        group=group[:count],
        end_of=end_of,
        arrival_of=arrival_of,
    )


def _count(played: Played, kind: int) -> int:
    """Return how many chains of a kind all units have."""
    chains = played.arrays.chains
    per_program = np.add.reduceat(np.append(chains.kind == kind, False), chains.chains_before[:-1])
    return int(per_program[played.arrays.program].sum())


def _dependencies(played: Played) -> int:
    chains = played.arrays.chains
    per_program = np.diff(chains.offsets[chains.chains_before])
    return int(per_program[played.arrays.program].sum())


def _lane_of(played: Played) -> Codes:
    """Return the lane of every chain of every program."""
    of_lane = played.arrays.chains.of_lane
    lanes = np.arange(of_lane.shape[1] - 1)
    columns = [np.repeat(lanes, np.diff(row)) for row in of_lane]
    return np.concatenate(columns).astype(np.int32)


@compiled
def _store(
    order: Any,
    unit: Any,
    program: Any,
    first_chain: Any,
    first_duration: Any,
    chains_before: Any,
    lane: Any,
    kind: Any,
    role: Any,
    ordinal: Any,
    chain_offsets: Any,
    dependencies: Any,
    duration: Any,
    group: Any,
    entry: Any,
    group_offsets: Any,
    slots_before: Any,
    seats: Any,
    seated: Any,
    slot_node: Any,
    node_kind: Any,
    node_chain: Any,
    offsets: Any,
    predecessors: Any,
    node_group: Any,
    end_of: Any,
    arrival_of: Any,
) -> tuple[int, int]:
    """Fill the columns of `StoredOrder`; return how many instants and predecessors there are.

    `seated` holds the collective chain of every member of every slot, from `seats[slot]` on;
    `slot_node` the instant at which a slot is over. Both are -1.
    """
    for here in range(order.size):
        own = program[unit[here]]
        of = chains_before[own] + here - first_chain[unit[here]]
        if kind[of] == COLLECTIVE:
            meets = group[unit[here], role[of]]
            slot = slots_before[meets] + ordinal[of]
            seat = entry[unit[here], role[of]] - group_offsets[meets]
            seated[seats[slot] + seat] = here
    count, links = 0, 0
    for index in range(order.size):
        chain = order[index]
        mine = unit[chain]
        of = chains_before[program[mine]] + chain - first_chain[mine]
        what = kind[of]
        slot, meets = -1, -1
        if role[of] >= 0:
            meets = group[mine, role[of]]
            slot = slots_before[meets] + ordinal[of]
        arrivals = 1
        if what == COLLECTIVE:
            if slot_node[slot] >= 0:
                end_of[chain] = slot_node[slot]
                continue
            arrivals = seats[slot + 1] - seats[slot]
        if what == RECEIVE:  # the message, on its way
            predecessors[links] = slot_node[slot]
            links += 1
            node_kind[count], node_chain[count] = CHAIN, chain
            slot_node[slot] = count
            count += 1
            offsets[count] = links
        longest, length = chain, -1
        for seat in range(arrivals):
            one = chain
            if what == COLLECTIVE:
                one = seated[seats[slot] + seat]
            other = unit[one]
            first, before = first_chain[other], chains_before[program[other]]
            row = before + one - first
            if one > first and lane[row - 1] == lane[row]:
                predecessors[links] = end_of[one - 1]
                links += 1
            for place in range(chain_offsets[row], chain_offsets[row + 1]):
                predecessors[links] = end_of[first + dependencies[place]]
                links += 1
            if what == RECEIVE:
                predecessors[links] = slot_node[slot]
                links += 1
            node_kind[count] = ARRIVAL if what == COLLECTIVE else CHAIN
            if what == COLLECTIVE:
                arrival_of[one] = count
                taken = duration[first_duration[other] + one - first]
                if taken > length:
                    longest, length = one, taken
            count += 1
            offsets[count] = links
        if what == COLLECTIVE:
            for seat in range(arrivals):
                predecessors[links] = count - arrivals + seat
                links += 1
            node_kind[count] = JOIN
            node_group[count] = meets
            count += 1
            offsets[count] = links
            slot_node[slot] = count - 1
        if what != RECEIVE:
            node_chain[count - 1] = longest
        if what == SEND:
            slot_node[slot] = count - 1
        end_of[chain] = count - 1
    return count, links
