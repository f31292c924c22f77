"""One update of one processor: compute new values for its rows, and write them."""

from math import sqrt
from typing import Any

from paracosm.compiled import apart, inlined, subroutine

# How a processor computes new values: all rows from what it read; with a momentum term; one row
# after the other; all of the block at once; by a function of the user's; by mixing its last steps.
JACOBI, MOMENTUM, SWEEP, SOLVE, USER, MIX = range(6)

# A step that is so nearly a combination of newer ones adds rounding errors only.
DEPENDENT = 1e-8


@inlined
def rows_in_flight(blocks: Any, flight: Any, processor: Any) -> Any:
    """Return where the rows in flight begin and end, and whether they are in `flight.chosen`."""
    if flight.size[processor] >= 0:
        first = flight.slot[processor]
        return first, first + flight.size[processor], True
    block = flight.block[processor]
    return blocks.pointer[block], blocks.pointer[block + 1], False


@inlined
def propose(s: Any, processor: Any, residual: Any, rows: Any, first: Any, end: Any) -> None:
    """Compute new values for `rows[first:end]` from the iterate and the residual as read.

    Eq. (8) of the paper, x_i = (b_i - sum over j != i of a_ij x_j) / a_ii, is x_i + r_i / a_ii.
    """
    rules, iterate, values, slot = s.rules, s.iterate, s.flight.values, s.flight.slot[processor]
    x, gain = iterate.x, s.matrix.gain
    if rules.method == JACOBI:
        for place in range(first, end):
            row = rows[place]
            values[slot + place - first] = x[row] + gain[row] * residual[row]
    elif rules.method == MOMENTUM:
        previous = iterate.previous
        for place in range(first, end):
            row = rows[place]
            carried = rules.momentum * (x[row] - previous[row])
            values[slot + place - first] = x[row] + gain[row] * residual[row] + carried


@apart
def propose_by_sweep(s: Any, processor: Any) -> Any:
    """Relax one row after the other, each with what the ones before it came to."""
    residual, rows, first, end = _as_read(s, processor)
    values, slot = s.flight.values, s.flight.slot[processor]
    _sweep(s.matrix, s.iterate, residual, rows, first, end, values, slot)
    return 0


@apart
def propose_by_solving(s: Any, processor: Any) -> Any:
    """Solve the block's own equations exactly, everything outside as it was read."""
    residual, rows, first, end = _as_read(s, processor)
    values, slot, block = s.flight.values, s.flight.slot[processor], s.flight.block[processor]
    _solve(s.factors, s.iterate, residual, s.rules.omega, block, rows, first, end, values, slot)
    return 0


@apart
def propose_by_mixing(s: Any, processor: Any) -> Any:
    """Take a Jacobi step, and at every k-th update replace it by Anderson's mixture."""
    residual, rows, first, end = _as_read(s, processor)
    values, slot, every = s.flight.values, s.flight.slot[processor], s.rules.mix_every
    _mix(s.iterate, s.matrix.gain, every, processor, residual, rows, first, end, values, slot)
    return 0


@inlined
def _as_read(s: Any, processor: Any) -> Any:
    """Return the residual that a processor has read, and its rows in flight."""
    first, end, chosen = rows_in_flight(s.blocks, s.flight, processor)
    rows = s.flight.chosen if chosen else s.blocks.rows
    known = s.rules.distributed and s.halos.data.size > 0
    return s.halos.residual if known else s.iterate.residual, rows, first, end


@subroutine
def _sweep(
    matrix: Any,
    iterate: Any,
    residual: Any,
    rows: Any,
    first: Any,
    end: Any,
    values: Any,
    slot: Any,
) -> None:
    x, work, stamp = iterate.x, iterate.work, iterate.stamp
    pointer, index, data = matrix.pointer, matrix.row, matrix.data
    for place in range(first, end):
        work[rows[place]] = residual[rows[place]]
        stamp[rows[place]] = 1
    for place in range(first, end):
        row = rows[place]
        step = matrix.gain[row] * work[row]
        values[slot + place - first] = x[row] + step
        for entry in range(pointer[row], pointer[row + 1]):
            if stamp[index[entry]] == 1:
                work[index[entry]] -= data[entry] * step
    for place in range(first, end):
        stamp[rows[place]] = 0


@subroutine
def _solve(
    factors: Any,
    iterate: Any,
    residual: Any,
    omega: Any,
    block: Any,
    rows: Any,
    first: Any,
    end: Any,
    values: Any,
    slot: Any,
) -> None:
    x, work = iterate.x, iterate.work
    offset, size = factors.offset[block], end - first
    pointer, index, data = factors.lower_pointer, factors.lower_index, factors.lower_data
    for local in range(size):
        work[factors.row_order[offset + local]] = residual[rows[first + local]]
    for local in range(size):
        for entry in range(pointer[offset + local], pointer[offset + local + 1]):
            work[index[entry]] -= data[entry] * work[local]
    pointer, index, data = factors.upper_pointer, factors.upper_index, factors.upper_data
    for local in range(size - 1, -1, -1):
        work[local] *= factors.inverse_pivot[offset + local]
        for entry in range(pointer[offset + local], pointer[offset + local + 1]):
            work[index[entry]] -= data[entry] * work[local]
    for local in range(size):
        row = rows[first + local]
        values[slot + local] = x[row] + omega * work[factors.column_order[offset + local]]


@subroutine
def _mix(
    iterate: Any,
    gain: Any,
    every: Any,
    processor: Any,
    residual: Any,
    rows: Any,
    first: Any,
    end: Any,
    values: Any,
    slot: Any,
) -> None:
    """Mix the newest steps of a processor.

    Differences of steps are orthogonalised, the newest first, and those of values with them: what
    the step has along each of them is exchanged for its own value and step.
    """
    x, past, basis, left = iterate.x, iterate.past, iterate.basis, iterate.work
    window, size, count = basis.shape[1], end - first, iterate.pairs[processor]
    newest = count % (window + 1)
    for place in range(size):
        row = rows[first + place]
        left[place] = gain[row] * residual[row]
        past[0, newest, row] = x[row]
        past[1, newest, row] = left[place]
        values[slot + place] = x[row] + left[place]
    iterate.pairs[processor] = count + 1
    if (count + 1) % every != 0:
        return
    kept = 0
    for age in range(min(window, count)):
        now, before = (count - age) % (window + 1), (count - age - 1) % (window + 1)
        for place in range(size):
            row = rows[first + place]
            basis[0, kept, place] = past[0, now, row] - past[0, before, row]
            basis[1, kept, place] = past[1, now, row] - past[1, before, row]
        length = _dot(basis[1, kept], basis[1, kept], size)
        for other in range(kept):
            share = _dot(basis[1, other], basis[1, kept], size)
            for place in range(size):
                basis[0, kept, place] -= share * basis[0, other, place]
                basis[1, kept, place] -= share * basis[1, other, place]
        square = _dot(basis[1, kept], basis[1, kept], size)
        if not square > DEPENDENT**2 * length:
            continue
        scale = 1.0 / sqrt(square)
        for place in range(size):
            basis[0, kept, place] *= scale
            basis[1, kept, place] *= scale
        share = _dot(basis[1, kept], left, size)
        for place in range(size):
            left[place] -= share * basis[1, kept, place]
            values[slot + place] -= share * (basis[0, kept, place] + basis[1, kept, place])
        kept += 1


@inlined
def _dot(a: Any, b: Any, size: Any) -> Any:
    total = 0.0
    for place in range(size):
        total += a[place] * b[place]
    return total


@inlined
def commit(s: Any, processor: Any, rows: Any, first: Any, end: Any) -> Any:
    """Write new values, and what they do to the residual; return the change of its square."""
    x, residual, values, slot = (
        s.iterate.x,
        s.iterate.residual,
        s.flight.values,
        s.flight.slot[processor],
    )
    if s.rules.method == MOMENTUM:
        for place in range(first, end):
            s.iterate.previous[rows[place]] = x[rows[place]]
    pointer, index, data = s.matrix.pointer, s.matrix.row, s.matrix.data
    if pointer.size == 0:
        if s.matrix.coefficients.size == 0:
            return _commit_map(s.iterate, rows, first, end, values, slot)
        return _commit_stencil(s.matrix, s.iterate, rows, first, end, values, slot)
    change = 0.0
    for place in range(first, end):
        row = rows[place]
        step = values[slot + place - first] - x[row]
        x[row] = values[slot + place - first]
        for entry in range(pointer[row], pointer[row + 1]):
            old = residual[index[entry]]
            new = old - data[entry] * step
            residual[index[entry]] = new
            change += (new - old) * (new + old)
    return change


@subroutine
def _commit_map(iterate: Any, rows: Any, first: Any, end: Any, values: Any, slot: Any) -> Any:
    """Write values of a map without a matrix: the residual of a row is the step it last took."""
    x, residual = iterate.x, iterate.residual
    change = 0.0
    for place in range(first, end):
        row = rows[place]
        step = values[slot + place - first] - x[row]
        x[row] = values[slot + place - first]
        change += step * step - residual[row] * residual[row]
        residual[row] = step
    return change


@subroutine
def _commit_stencil(
    matrix: Any, iterate: Any, rows: Any, first: Any, end: Any, values: Any, slot: Any
) -> Any:
    x, residual = iterate.x, iterate.residual
    _, ny, nx = matrix.shape
    change = 0.0
    for place in range(first, end):
        row = rows[place]
        step = values[slot + place - first] - x[row]
        x[row] = values[slot + place - first]
        plane, left = divmod(row, ny * nx)
        line, column = divmod(left, nx)
        change += _scatter(matrix, residual, plane, line, column, step)
    return change


@subroutine
def _scatter(matrix: Any, residual: Any, plane: Any, line: Any, column: Any, step: Any) -> Any:
    """Take a step at one point into the residuals of all points whose stencil has it."""
    nz, ny, nx = matrix.shape
    change = 0.0
    for point in range(matrix.coefficients.size):
        z = plane - matrix.offsets[point, 0]
        y = line - matrix.offsets[point, 1]
        at = column - matrix.offsets[point, 2]
        if 0 <= z < nz and 0 <= y < ny and 0 <= at < nx:
            target = (z * ny + y) * nx + at
            old = residual[target]
            new = old - matrix.coefficients[point] * step
            residual[target] = new
            change += (new - old) * (new + old)
    return change


@subroutine
def fresh_residual(matrix: Any, iterate: Any) -> Any:
    """Compute b - A x anew, and return its square."""
    x, residual = iterate.x, iterate.residual
    if matrix.pointer.size == 0 and matrix.coefficients.size == 0:
        return _square(residual)  # a map: only the caller can compute it anew
    for row in range(x.size):
        residual[row] = matrix.b[row]
    if matrix.coefficients.size > 0:
        _, ny, nx = matrix.shape
        for row in range(x.size):
            plane, left = divmod(row, ny * nx)
            line, column = divmod(left, nx)
            _scatter(matrix, residual, plane, line, column, x[row])
    else:
        for row in range(x.size):
            for entry in range(matrix.pointer[row], matrix.pointer[row + 1]):
                residual[matrix.row[entry]] -= matrix.data[entry] * x[row]
    return _square(residual)


@subroutine
def _square(residual: Any) -> Any:
    total = 0.0
    for row in range(residual.size):
        total += residual[row] * residual[row]
    return total
