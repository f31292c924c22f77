"""The time that equal ranks lose by waiting for the slowest of them when durations vary.

Folded ranks stand for many whose tasks take different times. Every instant is then a mean and a
variance: variances of the tasks on the way add up, and where n ranks join, all continue with the
last,

    E[max] = hi - integral of F(x) from lo to hi,    F(x) = product of Phi((x - m_i) / s_i)^n_i

over the members i of the communicator, each of which stands for n_i ranks with mean m_i and
standard deviation s_i (David, Nagaraja, "Order Statistics", 2003, sections 2.1 and 3.1). Ranks that
have joined share their past: only variation since then makes them arrive at different times at the
next join. Sums of many tasks are taken to be normal: for single tasks that vary by a tenth and
more, the real maximum is larger. What follows the last join counts with its mean: nobody waits for
the rank that ends last.

All of this is one pass over the order in which the job became known (`StoredOrder`).
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from paracosm.arrays import Codes, Floats, Ints
from paracosm.compiled import compiled, shaped
from paracosm.jobs.expand import PICOSECOND
from paracosm.jobs.job import KINDS
from paracosm.simulation.folding import offsets_of
from paracosm.simulation.static import Played, chain_sums

CHAIN, ARRIVAL, JOIN = 0, 1, 2
COLLECTIVE, SEND, RECEIVE = (KINDS.index(kind) for kind in ("collective", "send", "receive"))

POINTS = 96  # of the integral
REACH = 6.0  # standard deviations to either side


def with_straggler_penalty(played: Played, order: "StoredOrder", duration_cv: float) -> Played:
    """Return the expected instants of a folded job whose ranks' own tasks vary."""
    arrays, folding = played.arrays, played.folding
    variance = _chain_variances(played, duration_cv)
    mean = chain_sums(arrays.chains, arrays.program, played.lengths) * PICOSECOND
    begin, end = np.zeros((2, len(order.kind)))
    spread, shared = np.zeros((2, len(order.kind)))
    met = np.full(len(order.kind), -1, dtype=np.int64)
    _propagate(order, folding, mean, variance, begin, end, spread, shared, met)
    collective = order.arrival_of >= 0
    arrive = np.where(collective, end[order.arrival_of], begin[order.end_of])
    picos = [np.rint(seconds * 1e12).astype(np.int64) for seconds in (arrive, begin, end)]
    return replace(
        played, arrive=picos[0], begin=picos[1][order.end_of], end=picos[2][order.end_of]
    )


def _chain_variances(played: Played, duration_cv: float) -> Floats:
    """Return the variance of every chain, in seconds squared; tasks vary independently."""
    programs = played.job.programs
    variances = np.concatenate(
        [programs[code].kind == KINDS.index("task") for code in played.arrays.program.tolist()]
    )
    lengths = np.where(variances, played.lengths * PICOSECOND, 0.0)
    return chain_sums(played.arrays.chains, played.arrays.program, (duration_cv * lengths) ** 2)


@shaped("chains: mean variance; k: begin end spread shared met")
@compiled
def _propagate(
    order: Any,
    folding: Any,
    mean: Any,
    variance: Any,
    begin: Any,
    end: Any,
    spread: Any,
    shared: Any,
    met: Any,
) -> None:
    """Fill means and variances of all instants, from the last join `met` (-1: none)."""
    kind, chain, group = order.kind, order.chain, order.group
    offsets, predecessors = order.offsets, order.predecessors
    for node in range(kind.size):
        first, last = offsets[node], offsets[node + 1]
        if kind[node] == JOIN:
            arrivals = predecessors[first:last]
            ranks = folding.ranks[folding.offsets[group[node]] :]
            begin[node], shared[node] = _join(
                arrivals, order, ranks, end, spread, shared, met, group[node]
            )
            met[node] = group[node]
            end[node] = begin[node] + mean[chain[node]]
            continue
        latest = -1
        is_receive = kind[node] == CHAIN and chain[node] < 0
        for place in range(first, last - 1 if is_receive else last):
            if latest < 0 or end[predecessors[place]] > end[latest]:
                latest = predecessors[place]
        if latest >= 0:
            begin[node], spread[node] = end[latest], spread[latest]
            shared[node], met[node] = shared[latest], met[latest]
        end[node] = begin[node]
        if is_receive:
            sent = predecessors[last - 1]
            if end[sent] > end[node]:
                end[node], spread[node] = end[sent], spread[sent]
                shared[node], met[node] = shared[sent], met[sent]
        if kind[node] == CHAIN and chain[node] >= 0:
            end[node] += mean[chain[node]]
            spread[node] += variance[chain[node]]


@compiled
def _join(
    arrivals: Any, order: Any, ranks: Any, end: Any, spread: Any, shared: Any, met: Any, group: Any
) -> tuple[float, float]:
    """Return mean and variance of the last arrival of all ranks, over all their lanes."""
    offsets, predecessors = order.offsets, order.predecessors
    most = 0
    for arrival in arrivals:
        most += offsets[arrival + 1] - offsets[arrival]
    mean, deviation, number = np.empty(most), np.empty(most), np.empty(most)
    count, top, low, high = 0, 0.0, -math.inf, -math.inf
    for index in range(arrivals.size):
        for place in range(offsets[arrivals[index]], offsets[arrivals[index] + 1]):
            node = predecessors[place]
            varied = spread[node] + (shared[node] if met[node] != group else 0.0)
            mean[count], deviation[count] = end[node], math.sqrt(varied)
            number[count] = ranks[index] if varied > 0 else 1
            low = max(low, mean[count] - REACH * deviation[count])
            high = max(high, mean[count] + REACH * deviation[count])
            top = max(top, mean[count])
            count += 1
    if high <= low:
        return top, 0.0
    step = (high - low) / POINTS
    first, second = 0.0, 0.0
    for point in range(POINTS + 1):
        x = low + point * step
        log_below = 0.0
        for index in range(count):
            away = x - mean[index]
            if deviation[index] > 0:
                if away < REACH * deviation[index]:
                    below = 0.5 * math.erfc(-away / deviation[index] / math.sqrt(2.0))
                    log_below += number[index] * math.log(max(below, 1e-300))
            elif away < 0:
                log_below = -math.inf
        weight = step * (0.5 if point in (0, POINTS) else 1.0)
        first += weight * math.exp(log_below)
        second += weight * math.exp(log_below) * 2.0 * (high - x)
    # With y = high - max: E[y] = integral of F, E[y^2] = integral of 2 (high - x) F.
    return max(high - first, top), max(second - first * first, 0.0)


class StoredOrder(NamedTuple):
    """k instants of a job that matter, each after those that it waits for.

    They are the end of every chain of tasks and of every message, each rank's arrival at a
    collective, and the join, at which its ranks continue together.
    """

    kind: Codes  # k of `CHAIN`, `ARRIVAL`, `JOIN`
    # k chains, whose duration (of a join: of whose collective) is added; -1 at arrivals and at
    # receives, which are preceded by the instant at which the message has come
    chain: Ints
    # offsets, predecessors: CSR of instants; those of a join are the arrivals of its members, in
    # the order of `Folding.members`
    offsets: Ints
    predecessors: Ints
    group: Codes  # k communicators of joins; -1 elsewhere
    end_of: Ints  # of every chain, the instant at which it ends
    # of every chain, the instant at which it arrives at a collective; -1 elsewhere
    arrival_of: Ints


def store_order(played: Played) -> StoredOrder:
    """Return the instants of a job that has been played, in an order that holds for any durations.

    The duration of a collective is that of the member with the longest.
    """
    arrays, folding = played.arrays, played.folding
    total = len(played.order)
    most = total + _count(played, COLLECTIVE) + _count(played, RECEIVE)
    edges = 2 * total + _dependencies(played) + most
    order = StoredOrder(
        kind=np.zeros(most, dtype=np.int32),
        chain=np.full(most, -1, dtype=np.int64),
        offsets=np.zeros(most + 1, dtype=np.int64),
        predecessors=np.empty(edges, dtype=np.int64),
        group=np.full(most, -1, dtype=np.int32),
        end_of=np.full(total, -1, dtype=np.int64),
        arrival_of=np.full(total, -1, dtype=np.int64),
    )
    unit = np.repeat(np.arange(len(arrays.program)), np.diff(arrays.first_chain)).astype(np.int32)
    seats = offsets_of(np.repeat(np.diff(folding.offsets), np.diff(arrays.slots_before)))
    count, links = _store(played.order, unit, arrays, folding, _lane_of(played), seats, order)
    return order._replace(
        kind=order.kind[:count],
        chain=order.chain[:count],
        offsets=order.offsets[: count + 1],
        predecessors=order.predecessors[:links],
        group=order.group[:count],
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
    of_lane = played.arrays.chains.of_lane
    lanes = np.arange(of_lane.shape[1] - 1)
    columns = [np.repeat(lanes, np.diff(row)) for row in of_lane]
    return np.concatenate(columns).astype(np.int32)


@compiled
def _store(
    order: Any, unit: Any, arrays: Any, folding: Any, lane: Any, seats: Any, stored: Any
) -> tuple[int, int]:
    """Fill `stored`, which has room for all; return the number of instants and predecessors."""
    chains = arrays.chains
    program, first_chain, slots_before = arrays.program, arrays.first_chain, arrays.slots_before
    chains_before, kind, role = chains.chains_before, chains.kind, chains.role
    ordinal, group = chains.ordinal, folding.group
    offsets, predecessors, end_of = stored.offsets, stored.predecessors, stored.end_of
    # The collective chain of every member of every slot, and the instant at which a slot is over.
    seated = np.full(seats[-1], -1, dtype=np.int64)
    slot_node = np.full(slots_before[-1], -1, dtype=np.int64)
    for here in range(order.size):
        own_program = program[unit[here]]
        of = chains_before[own_program] + here - first_chain[unit[here]]
        if kind[of] == COLLECTIVE:
            meets = group[unit[here], role[of]]
            slot = slots_before[meets] + ordinal[of]
            seat = folding.entry[unit[here], role[of]] - folding.offsets[meets]
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
            stored.kind[count], stored.chain[count] = CHAIN, chain
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
            for place in range(chains.offsets[row], chains.offsets[row + 1]):
                predecessors[links] = end_of[first + chains.dependencies[place]]
                links += 1
            if what == RECEIVE:
                predecessors[links] = slot_node[slot]
                links += 1
            stored.kind[count] = ARRIVAL if what == COLLECTIVE else CHAIN
            if what == COLLECTIVE:
                stored.arrival_of[one] = count
                taken = arrays.durations[arrays.first_duration[other] + one - first]
                if taken > length:
                    longest, length = one, taken
            count += 1
            offsets[count] = links
        if what == COLLECTIVE:
            for seat in range(arrivals):
                predecessors[links] = count - arrivals + seat
                links += 1
            stored.kind[count] = JOIN
            stored.group[count] = meets
            count += 1
            offsets[count] = links
            slot_node[slot] = count - 1
        if what != RECEIVE:
            stored.chain[count - 1] = longest
        if what == SEND:
            slot_node[slot] = count - 1
        end_of[chain] = count - 1
    return count, links
