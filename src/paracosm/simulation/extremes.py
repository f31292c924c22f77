"""What alike ranks lose by waiting for the slowest of them, when durations vary.

Folded ranks stand for many whose tasks take different times. Every instant is then a mean and a
variance: variances of the tasks on the way add up, and where n ranks join, all go on with the last,

    E[max] = hi - integral of F(x) from lo to hi,    F(x) = product of Phi((x - m_i) / s_i)^n_i

over the members i of the communicator, each of which stands for n_i ranks with mean m_i and
standard deviation s_i (David, Nagaraja, "Order Statistics", 2003, sections 2.1 and 3.1). Ranks that
have joined share what came before: only what varied since they last met makes them arrive at
different times when they meet again. Sums of many tasks are taken to be normal: of single tasks
that vary by a tenth and more, the largest is larger than that. What follows the last join is as
long as in the mean: nobody waits for the rank that ends last.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.compiled import compiled
from paracosm.jobs import KINDS, Job
from paracosm.jobs.expand import PICOSECOND
from paracosm.simulation.static import Played
from paracosm.simulation.static_arrays import chain_sums
from paracosm.simulation.stored_order import CHAIN, JOIN, StoredOrder

__all__ = ["with_extremes"]

Floats = npt.NDArray[np.float64]

POINTS = 96  # of the integral
REACH = 6.0  # standard deviations to either side


def with_extremes(played: Played, order: StoredOrder, duration_cv: float) -> Played:
    """Return the expected instants of a folded job whose ranks' own tasks vary.

    Args:
        played: the job with the mean durations.
        order: its stored order.
        duration_cv: coefficient of variation of every task of kind "task".
    """
    arrays, folding = played.arrays, played.folding
    variance = _chain_variances(played, duration_cv)
    mean = chain_sums(arrays.chains, arrays.program, _lengths(played)) * PICOSECOND
    begin, end = np.zeros((2, len(order)))
    spread, shared = np.zeros((2, len(order)))
    _propagate(
        order.kind,
        order.chain,
        order.offsets,
        order.predecessors,
        order.group,
        mean,
        variance,
        folding.ranks,
        folding.offsets,
        begin,
        end,
        spread,
        shared,
        np.full(len(order), -1, dtype=np.int64),
    )
    collective = order.arrival_of >= 0
    arrive = np.where(collective, end[order.arrival_of], begin[order.end_of])
    picos = [np.rint(each * 1e12).astype(np.int64) for each in (arrive, begin, end)]
    return Played(
        job=played.job,
        folding=folding,
        arrays=arrays,
        arrive=picos[0],
        begin=picos[1][order.end_of],
        end=picos[2][order.end_of],
        order=played.order,
    )


def _lengths(played: Played) -> npt.NDArray[np.int64]:
    """Return the picoseconds of the tasks of all units, one after the other."""
    arrays = played.arrays
    rows = np.diff(arrays.first_row)
    return np.concatenate(
        [
            arrays.lengths[first : first + n]
            for first, n in zip(arrays.first_length, rows, strict=True)
        ]
    )


def _chain_variances(played: Played, duration_cv: float) -> Floats:
    """Return the variance of every chain, in seconds squared; tasks vary independently."""
    own = np.concatenate([_own(played.job, code) for code in played.arrays.program.tolist()])
    lengths = np.where(own, _lengths(played) * PICOSECOND, 0.0)
    return chain_sums(played.arrays.chains, played.arrays.program, (duration_cv * lengths) ** 2)


def _own(job: Job, program: int) -> npt.NDArray[np.bool_]:
    return np.asarray(job.programs[program].kind == KINDS.index("task"), dtype=np.bool_)


@compiled
def _propagate(
    kind: Any,
    chain: Any,
    offsets: Any,
    predecessors: Any,
    group: Any,
    mean: Any,
    variance: Any,
    ranks: Any,
    group_offsets: Any,
    begin: Any,
    end: Any,
    spread: Any,
    shared: Any,
    met: Any,
) -> None:
    """Fill means and variances of all instants.

    Args:
        kind, chain, offsets, predecessors, group: as in `StoredOrder`.
        mean, variance: of the chains' durations.
        ranks, group_offsets: of each member of a communicator how many ranks it stands for.
        begin, end: means, in seconds (filled).
        spread: variance since the last join (filled).
        shared: variance that the ranks of that join have in common (filled).
        met: the communicator of that join; -1 (filled).
    """
    for node in range(kind.size):
        first, last = offsets[node], offsets[node + 1]
        if kind[node] == JOIN:
            entry = group_offsets[group[node]]
            begin[node], shared[node] = _join(
                predecessors[first:last],
                offsets,
                predecessors,
                ranks[entry:],
                end,
                spread,
                shared,
                met,
                group[node],
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
    arrivals: Any,
    offsets: Any,
    predecessors: Any,
    ranks: Any,
    end: Any,
    spread: Any,
    shared: Any,
    met: Any,
    group: Any,
) -> tuple[float, float]:
    """Return mean and variance of the instant at which the last of all ranks has arrived.

    A rank that arrives waits for its own lanes first: each of them is a member of the maximum.
    """
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
