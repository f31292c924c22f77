"""What happens to the residual between two instants: looked at, recorded, rolled back."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from paracosm.relaxation.kernel.blocks import fresh_residual
from paracosm.relaxation.kernel.compiled import compiled, inlined
from paracosm.relaxation.kernel.scalars import (
    CHECKPOINT,
    CHECKPOINTS,
    DETECTED,
    DIVERGED,
    DUE,
    ERROR_WITNESS,
    FRESH_AGAIN,
    GO_ON,
    IDEAL,
    KEPT,
    LARGEST,
    LOCAL_SUM,
    MARKS,
    NEXT_CHECKPOINT,
    NEXT_SAMPLE,
    NOW,
    PROCESSOR,
    RELAXATIONS,
    ROLLBACK,
    ROLLBACKS,
    SAMPLE_EVERY,
    SAMPLES,
    SHIFT,
    SQUARE,
    SUM_AGAIN,
    VERDICT,
    WITNESS,
)

__all__ = ["mark", "norm_of", "nothing_new", "observe", "sample", "save", "watch"]

# Below a hundredth of the square (a tenth of the norm) the running sum has lost two digits.
SUM_AGAIN_AT = 1e-2
# Below a millionth of the norm, rounding errors of the residual itself begin to count.
FRESH_AGAIN_AT = 1e-12


@inlined
def nothing_new(s: Any) -> Any:
    """Say, at every instant and so quickly, that `observe` would find nothing to do."""
    rules, iterate, counters, gauges = s.rules, s.iterate, s.counters, s.gauges
    square = gauges[SQUARE]
    if not gauges[SUM_AGAIN] <= square <= gauges[LARGEST]:
        return False
    if counters[RELAXATIONS] >= gauges[NEXT_SAMPLE]:
        return False
    if rules.alpha > 0.0 or rules.error_limit >= 0.0:
        return False
    if rules.limit < 0.0:
        return True
    if rules.detect == PROCESSOR:
        return counters[VERDICT] == 0
    if rules.detect != IDEAL:
        return gauges[LOCAL_SUM] > rules.limit**2
    if rules.infinity:
        return abs(iterate.residual[counters[WITNESS]]) > rules.limit
    return square > rules.limit**2


@compiled
def observe(s: Any) -> Any:
    """Look at the residual once, after an instant; return `GO_ON`, or why the loop stops."""
    rules, matrix, iterate, flight = s.rules, s.matrix, s.iterate, s.flight
    tally, history, counters, gauges = s.tally, s.history, s.counters, s.gauges
    square = gauges[SQUARE]
    if square < gauges[SUM_AGAIN]:
        square = 0.0
        for row in range(iterate.residual.size):
            square += iterate.residual[row] ** 2
        gauges[SUM_AGAIN] = SUM_AGAIN_AT * square
    if square < gauges[FRESH_AGAIN]:
        square = fresh_residual(matrix, iterate)
        gauges[FRESH_AGAIN] = FRESH_AGAIN_AT * square
    gauges[SQUARE] = square
    if rules.alpha > 0.0 and not rules.component:
        if not square <= rules.alpha**2 * gauges[KEPT]:
            _roll_back(s)
            square = gauges[SQUARE]
        gauges[KEPT] = square
    if counters[RELAXATIONS] >= gauges[NEXT_SAMPLE]:
        sample(rules, iterate, history, counters, gauges)
    if not square <= gauges[LARGEST]:
        return DIVERGED
    if rules.error_limit >= 0.0:
        solution, x = iterate.solution, iterate.x
        if _within(rules.infinity, x, solution, rules.error_limit, counters, ERROR_WITNESS):
            return DETECTED
    if rules.limit < 0.0:
        return GO_ON
    if rules.detect == IDEAL:
        if not rules.infinity:
            return DETECTED if square <= rules.limit**2 else GO_ON
        small = _within(True, iterate.residual, _NOTHING, rules.limit, counters, WITNESS)
        return DETECTED if small else GO_ON
    if rules.detect == PROCESSOR:
        return DETECTED if counters[VERDICT] == 1 else GO_ON
    if gauges[LOCAL_SUM] <= rules.limit**2:
        # Processor 0 checks, whenever it has completed an update, and all have contributed.
        for position in range(counters[DUE]):
            if flight.due[position] == 0 and _all_contributed(rules, tally):
                return DETECTED
    return GO_ON


@compiled
def _all_contributed(rules: Any, tally: Any) -> Any:
    for who in range(rules.processors):  # noqa: SIM110 - which Numba does not compile
        if tally.contribution[who] < 0.0:
            return False
    return True


_NOTHING = np.zeros(0)


@compiled
def _within(
    infinity: Any, values: Any, center: Any, limit: Any, counters: Any, witness: Any
) -> Any:
    """Say whether `values` are within `limit` of `center` (of 0, where it is empty).

    In the maximum norm a single component says no, and goes on saying so for long: it is looked at
    first, and another one is searched only when it is small.
    """
    size = values.size
    if not infinity:
        total = 0.0
        for row in range(size):
            total += (values[row] - center[row]) ** 2
        return total <= limit**2
    start = counters[witness]
    for step in range(size):
        row = start + step
        if row >= size:
            row -= size
        value = values[row] if center.size == 0 else values[row] - center[row]
        if not abs(value) <= limit:
            counters[witness] = row
            return False
    return True


@compiled
def norm_of(rules: Any, residual: Any, square: Any) -> Any:
    """Return the norm that the rules ask for."""
    if not rules.infinity:
        return sqrt(max(square, 0.0))
    largest = 0.0
    for row in range(residual.size):
        if not abs(residual[row]) <= largest:  # which a NaN passes
            largest = abs(residual[row])
    return largest


@compiled
def sample(rules: Any, iterate: Any, history: Any, counters: Any, gauges: Any) -> None:
    """Add a row to the history; when it is full, keep every other one, and sample half as often."""
    rows = history.rows
    if counters[SAMPLES] == rows.shape[0]:
        half = rows.shape[0] // 2
        for row in range(half):
            for column in range(rows.shape[1]):
                rows[row, column] = rows[2 * row, column]
        counters[SAMPLES] = half
        gauges[SAMPLE_EVERY] *= 2.0
    row = counters[SAMPLES]
    rows[row, 0] = gauges[NOW] + gauges[SHIFT]
    rows[row, 1] = counters[RELAXATIONS]
    rows[row, 2] = norm_of(rules, iterate.residual, gauges[SQUARE])
    rows[row, 3] = np.nan
    if iterate.solution.size > 0:
        error = 0.0
        for place in range(iterate.x.size):
            difference = abs(iterate.x[place] - iterate.solution[place])
            error = max(error, difference) if rules.infinity else error + difference**2
        rows[row, 3] = error if rules.infinity else sqrt(error)
    counters[SAMPLES] = row + 1
    gauges[NEXT_SAMPLE] = counters[RELAXATIONS] + gauges[SAMPLE_EVERY]


@compiled
def mark(rules: Any, iterate: Any, history: Any, counters: Any, gauges: Any, what: Any) -> None:
    """Note a fault, a rollback or a checkpoint, and the residual after it, while there is room."""
    row = counters[MARKS]
    if row < history.marks.shape[0]:
        history.marks[row, 0] = gauges[NOW] + gauges[SHIFT]
        history.marks[row, 1] = counters[RELAXATIONS]
        history.marks[row, 2] = what
        history.marks[row, 3] = norm_of(rules, iterate.residual, gauges[SQUARE])
        counters[MARKS] = row + 1


@compiled
def save(
    rules: Any,
    iterate: Any,
    checkpoint: Any,
    history: Any,
    counters: Any,
    gauges: Any,
    instant: Any,
) -> None:
    """Take the checkpoints that were due before `instant`, at which the iterate was as it is."""
    missed = int((instant - gauges[NEXT_CHECKPOINT]) / rules.interval)
    while gauges[NEXT_CHECKPOINT] + (missed + 1) * rules.interval < instant:
        missed += 1
    while missed > 0 and gauges[NEXT_CHECKPOINT] + missed * rules.interval >= instant:
        missed -= 1
    for row in range(iterate.x.size):
        checkpoint.x[row] = iterate.x[row]
    gauges[NOW] = gauges[NEXT_CHECKPOINT] + missed * rules.interval
    counters[CHECKPOINTS] += missed + 1
    gauges[SHIFT] += rules.cost * (missed + 1)
    gauges[NEXT_CHECKPOINT] += (missed + 1) * rules.interval
    mark(rules, iterate, history, counters, gauges, CHECKPOINT)


@compiled
def watch(s: Any) -> None:
    """Let those who are about to read compare the residual of their own rows with the last time.

    Where it grew by more than alpha, and every processor watches (`component`), roll back first.
    """
    rules, blocks, iterate, flight = s.rules, s.blocks, s.iterate, s.flight
    tally, counters = s.tally, s.counters
    alarm = False
    for position in range(counters[DUE]):
        who = flight.due[position]
        if who == rules.processors:
            continue
        now = _own_square(blocks, iterate, flight, who)
        before = tally.local[who]
        tally.local[who] = now
        if rules.component and before >= 0.0 and not now <= rules.alpha**2 * before:
            tally.local[who] = FLAGGED
            alarm = True
    if alarm:
        _roll_back(s)


# In place of a local residual: nothing known yet; the block is to go back.
UNKNOWN, FLAGGED = -1.0, -2.0


@compiled
def _own_square(blocks: Any, iterate: Any, flight: Any, who: Any) -> Any:
    block = flight.block[who]
    square = 0.0
    for place in range(blocks.pointer[block], blocks.pointer[block + 1]):
        square += iterate.residual[blocks.rows[place]] ** 2
    return square


@compiled
def _roll_back(s: Any) -> None:
    """Return to the checkpoint: everything, or the blocks whose own residual grew too much.

    If no block's did, everything. Results in flight survive: their processors write them when they
    are complete.
    """
    rules, matrix, blocks, iterate = s.rules, s.matrix, s.blocks, s.iterate
    flight, tally, checkpoint, history = s.flight, s.tally, s.checkpoint, s.history
    counters, gauges = s.counters, s.gauges
    some = False
    if rules.own_block:
        for who in range(rules.processors):
            before = tally.local[who]
            grew = before == FLAGGED
            if not rules.component and before >= 0.0:
                now = _own_square(blocks, iterate, flight, who)
                grew = not now <= rules.alpha**2 * before
            if grew:
                some = True
                block = flight.block[who]
                for place in range(blocks.pointer[block], blocks.pointer[block + 1]):
                    iterate.x[blocks.rows[place]] = checkpoint.x[blocks.rows[place]]
    if not some:
        for row in range(iterate.x.size):
            iterate.x[row] = checkpoint.x[row]
    for who in range(rules.processors):
        tally.local[who] = UNKNOWN  # what a block had says nothing about what it has now
    gauges[SQUARE] = fresh_residual(matrix, iterate)
    gauges[SUM_AGAIN] = SUM_AGAIN_AT * gauges[SQUARE]
    gauges[FRESH_AGAIN] = FRESH_AGAIN_AT * gauges[SQUARE]
    gauges[SHIFT] += rules.restore
    counters[ROLLBACKS] += 1
    mark(rules, iterate, history, counters, gauges, ROLLBACK)
