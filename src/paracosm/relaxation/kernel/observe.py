"""What happens to the residual between two instants: looked at, recorded, rolled back."""

from math import sqrt
from typing import Any

import numpy as np

from paracosm.compiled import apart, compiled_whole, inlined, subroutine
from paracosm.compiled_references import call_apart
from paracosm.relaxation.kernel import arrays as k
from paracosm.relaxation.kernel.blocks import fresh_residual
from paracosm.relaxation.kernel.halo import restore

# Below a hundredth of the square (a tenth of the norm) the running sum has lost two digits.
SUM_AGAIN_AT = 1e-2
RAISE_AT_LEAST = 4.0
# Below a millionth of the norm, rounding errors of the residual itself begin to count.
FRESH_AGAIN_AT = 1e-12


@inlined
def nothing_new(s: Any) -> Any:
    """Check quickly, at every instant, whether `observe` has nothing to do."""
    rules, iterate, counters, gauges = s.rules, s.iterate, s.counters, s.gauges
    square = gauges[k.SQUARE]
    if not gauges[k.SUM_AGAIN] <= square <= gauges[k.RAISE_AT]:
        return False
    if counters[k.RELAXATIONS] >= gauges[k.NEXT_SAMPLE]:
        return False
    if rules.alpha > 0.0:
        return False
    if rules.error_limit >= 0.0:
        if rules.infinity or gauges[k.ERROR] < gauges[k.ERROR_AGAIN]:
            return False
        if gauges[k.ERROR] <= rules.error_limit**2:
            return False
    if rules.limit < 0.0:
        return True
    if rules.detect != k.IDEAL and (counters[k.VERDICT] == 1 or gauges[k.REACHED] >= 0.0):
        return counters[k.VERDICT] == 0
    if rules.infinity:
        return abs(iterate.residual[counters[k.WITNESS]]) > rules.limit
    return square > rules.limit**2


@subroutine
def observe(s: Any) -> Any:
    """Look at the residual once, after an instant; return `GO_ON`, or why the loop stops."""
    rules, matrix, iterate, counters, gauges = s.rules, s.matrix, s.iterate, s.counters, s.gauges
    square = gauges[k.SQUARE]
    if square < gauges[k.SUM_AGAIN]:
        square = 0.0
        for row in range(iterate.residual.size):
            square += iterate.residual[row] ** 2
        gauges[k.SUM_AGAIN] = SUM_AGAIN_AT * square
        gauges[k.RAISE_AT] = RAISE_AT_LEAST * square
    if square < gauges[k.FRESH_AGAIN]:
        square = fresh_residual(matrix, iterate)
        set_limits(gauges, square)
    if square > gauges[k.RAISE_AT]:
        # What was lost to rounding is in proportion to the peak: forget the limits before it.
        gauges[k.SUM_AGAIN] = SUM_AGAIN_AT * square
        gauges[k.RAISE_AT] = RAISE_AT_LEAST * square
        gauges[k.FRESH_AGAIN] = max(gauges[k.FRESH_AGAIN], FRESH_AGAIN_AT * square)
    gauges[k.SQUARE] = square
    if rules.alpha > 0.0 and not rules.component:
        if not square <= rules.alpha**2 * gauges[k.KEPT]:
            call_apart(s.apart.rollbacks, (s, np.int64(k.ROLL_BACK), 0.0, 0.0))
            square = gauges[k.SQUARE]
        gauges[k.KEPT] = square
    if counters[k.RELAXATIONS] >= gauges[k.NEXT_SAMPLE]:
        sample(s)
    if not square <= gauges[k.LARGEST]:
        return k.DIVERGED
    if rules.error_limit >= 0.0 and _error_reached(rules, iterate, counters, gauges):
        return k.DETECTED
    if rules.limit < 0.0:
        return k.GO_ON
    if rules.detect == k.IDEAL or gauges[k.REACHED] < 0.0:
        small = square <= rules.limit**2
        if rules.infinity:
            nothing = iterate.residual[:0]
            small = _within(iterate.residual, nothing, rules.limit, counters, k.WITNESS)
        if rules.detect == k.IDEAL:
            return k.DETECTED if small else k.GO_ON
        if small:
            gauges[k.REACHED] = gauges[k.NOW] + gauges[k.SHIFT]
    if counters[k.VERDICT] == 1 and (rules.detect == k.PROCESSOR or _sum_is_small(rules, s.tally)):
        return k.DETECTED
    return k.GO_ON


@compiled_whole
def set_limits(gauges: Any, square: Any) -> None:
    """Set the squares at which the residual is looked at more closely, `square` being exact."""
    gauges[k.SQUARE] = square
    gauges[k.SUM_AGAIN] = SUM_AGAIN_AT * square
    gauges[k.RAISE_AT] = RAISE_AT_LEAST * square
    gauges[k.FRESH_AGAIN] = FRESH_AGAIN_AT * square


@subroutine
def _sum_is_small(rules: Any, tally: Any) -> Any:
    """Return whether all have contributed and the sum is small enough."""
    if rules.detect >= k.TREE:
        return 0.0 <= tally.contribution[0] <= rules.limit**2
    total = 0.0
    for processor in range(rules.processors):
        if tally.contribution[processor] < 0.0:
            return False
        total += tally.contribution[processor]
    return total <= rules.limit**2


@subroutine
def _error_reached(rules: Any, iterate: Any, counters: Any, gauges: Any) -> Any:
    if rules.infinity:
        limit = rules.error_limit
        return _within(iterate.x, iterate.solution, limit, counters, k.ERROR_WITNESS)
    if gauges[k.ERROR] < gauges[k.ERROR_AGAIN] or gauges[k.ERROR] <= rules.error_limit**2:
        gauges[k.ERROR] = 0.0
        for row in range(iterate.x.size):
            gauges[k.ERROR] += (iterate.x[row] - iterate.solution[row]) ** 2
        gauges[k.ERROR_AGAIN] = SUM_AGAIN_AT * gauges[k.ERROR]
    return gauges[k.ERROR] <= rules.error_limit**2


@subroutine
def _within(values: Any, center: Any, limit: Any, counters: Any, witness: Any) -> Any:
    """Say whether `values` are within `limit` of `center` (or 0), the last witness first."""
    size = values.size
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


@compiled_whole
def norm_of(infinity: Any, residual: Any, square: Any) -> Any:
    """Return the configured norm."""
    if not infinity:
        return sqrt(max(square, 0.0))
    largest = 0.0
    for row in range(residual.size):
        if not abs(residual[row]) <= largest:  # which a NaN passes
            largest = abs(residual[row])
    return largest


@subroutine
def sample(s: Any) -> None:
    """Add a row to the history; when it is full, keep every other one, and sample half as often."""
    rules, iterate, counters, gauges = s.rules, s.iterate, s.counters, s.gauges
    rows = s.history.rows
    if counters[k.SAMPLES] == rows.shape[0]:
        half = rows.shape[0] // 2
        for row in range(half):
            for column in range(rows.shape[1]):
                rows[row, column] = rows[2 * row, column]
        counters[k.SAMPLES] = half
        gauges[k.SAMPLE_EVERY] *= 2.0
    row = counters[k.SAMPLES]
    rows[row, 0] = gauges[k.NOW] + gauges[k.SHIFT]
    rows[row, 1] = counters[k.RELAXATIONS]
    rows[row, 2] = norm_of(rules.infinity, iterate.residual, gauges[k.SQUARE])
    rows[row, 3] = np.nan
    if iterate.solution.size > 0:
        error = 0.0
        for place in range(iterate.x.size):
            difference = abs(iterate.x[place] - iterate.solution[place])
            error = max(error, difference) if rules.infinity else error + difference**2
        rows[row, 3] = error if rules.infinity else sqrt(error)
    counters[k.SAMPLES] = row + 1
    gauges[k.NEXT_SAMPLE] = counters[k.RELAXATIONS] + gauges[k.SAMPLE_EVERY]


@subroutine
def mark(s: Any, what: Any) -> None:
    """Note a fault, a rollback or a checkpoint, and the residual after it, while there is room."""
    marks, counters, gauges = s.history.marks, s.counters, s.gauges
    row = counters[k.MARKS]
    # Checkpoints are many and all alike: they leave half of the room to the others.
    room = marks.shape[0] // 2 if what == k.CHECKPOINT else marks.shape[0]
    if row < room:
        marks[row, 0] = gauges[k.NOW] + gauges[k.SHIFT]
        marks[row, 1] = counters[k.RELAXATIONS]
        marks[row, 2] = what
        marks[row, 3] = norm_of(s.rules.infinity, s.iterate.residual, gauges[k.SQUARE])
        counters[k.MARKS] = row + 1


@apart
def rollbacks(s: Any, opcode: Any, instant: Any, until: Any) -> Any:
    """Take checkpoints, compare residuals, or roll back: what runs with checkpoints do besides."""
    if opcode == k.SAVE:
        _save(s, instant, until)
    elif opcode == k.WATCH:
        _watch(s)
    else:
        _roll_back(s)
    return 0


@subroutine
def _save(s: Any, instant: Any, until: Any) -> None:
    """Take the checkpoints due before `instant` and, with costs, `until`: the last one counts."""
    rules, counters, gauges = s.rules, s.counters, s.gauges
    span = (instant - gauges[k.NEXT_CHECKPOINT]) / rules.interval
    left = until - gauges[k.SHIFT] - gauges[k.NEXT_CHECKPOINT]
    missed = np.floor(min(span, left / (rules.interval + rules.cost)))
    if missed > 0.0 and gauges[k.NEXT_CHECKPOINT] + missed * rules.interval >= instant:
        missed -= 1.0
    for row in range(s.iterate.x.size):
        s.checkpoint.x[row] = s.iterate.x[row]
    for row in range(s.checkpoint.residual.size):
        s.checkpoint.residual[row] = s.iterate.residual[row]
    gauges[k.NOW] = gauges[k.NEXT_CHECKPOINT] + missed * rules.interval
    counters[k.CHECKPOINTS] += int(min(missed + 1.0, 2.0**53))
    gauges[k.SHIFT] += rules.cost * (missed + 1)
    gauges[k.NEXT_CHECKPOINT] += (missed + 1) * rules.interval
    mark(s, k.CHECKPOINT)


@subroutine
def _watch(s: Any) -> None:
    """Compare residuals of the rows of those who read with the last time; roll back if one grew."""
    rules, blocks, iterate, flight = s.rules, s.blocks, s.iterate, s.flight
    tally, counters = s.tally, s.counters
    alarm = False
    for position in range(counters[k.DUE]):
        processor = flight.due[position]
        if processor == rules.processors:
            continue
        now = _own_square(blocks, iterate, flight, processor)
        before = tally.local[processor]
        tally.local[processor] = now
        if rules.component and before >= 0.0 and not now <= rules.alpha**2 * before:
            tally.local[processor] = FLAGGED
            alarm = True
    if alarm:
        _roll_back(s)


# In place of a local residual: nothing known yet; the block is to go back.
UNKNOWN, FLAGGED = -1.0, -2.0


@subroutine
def _own_square(blocks: Any, iterate: Any, flight: Any, processor: Any) -> Any:
    block = flight.block[processor]
    square = 0.0
    for place in range(blocks.pointer[block], blocks.pointer[block + 1]):
        square += iterate.residual[blocks.rows[place]] ** 2
    return square


@subroutine
def _roll_back(s: Any) -> None:
    """Restore everything, or the blocks whose residual grew too much; results in flight survive.

    With everything go the values that processors have received, and those under way to them.
    """
    rules, matrix, blocks, iterate = s.rules, s.matrix, s.blocks, s.iterate
    flight, tally, checkpoint, gauges = s.flight, s.tally, s.checkpoint, s.gauges
    some = False
    if rules.own_block:
        for processor in range(rules.processors):
            before = tally.local[processor]
            grew = before == FLAGGED
            if not rules.component and before >= 0.0:
                now = _own_square(blocks, iterate, flight, processor)
                grew = not now <= rules.alpha**2 * before
            if grew:
                some = True
                tally.local[processor] = UNKNOWN  # what it had says nothing about what it gets
                block = flight.block[processor]
                for place in range(blocks.pointer[block], blocks.pointer[block + 1]):
                    _restore(iterate, checkpoint, blocks.rows[place])
    if not some:
        for row in range(iterate.x.size):
            _restore(iterate, checkpoint, row)
        restore(s.halos, checkpoint.x)
        for processor in range(rules.processors):
            tally.local[processor] = UNKNOWN
    set_limits(gauges, fresh_residual(matrix, iterate))
    gauges[k.ERROR_AGAIN] = np.inf
    gauges[k.SHIFT] += rules.restore
    s.counters[k.ROLLBACKS] += 1
    mark(s, k.ROLLBACK)


@subroutine
def _restore(iterate: Any, checkpoint: Any, row: Any) -> None:
    iterate.x[row] = checkpoint.x[row]
    if checkpoint.residual.size > 0:
        iterate.residual[row] = checkpoint.residual[row]
