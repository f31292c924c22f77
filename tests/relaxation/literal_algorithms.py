"""Algorithms 2 and 5 of the paper, line by line in NumPy: slow, and easy to hold against the text.

Coleman, Jensen, Sosonkina, "Simulation framework for asynchronous iterative methods", sections 4
and 6. The compiled loop is tested against these functions, and timed against them.

Time is counted in ticks, t = 1, 2, ...; at every one of them all processors are asked whether
their update is due, and the residual is computed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["LiteralRun", "algorithm_2", "algorithm_2_read_at_start", "algorithm_5"]

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

Duration = Callable[[int, int], int]
"""(processor, number of its update, from 0) -> ticks, 1 or more."""

Choose = Callable[[int, int], int]
"""(processor, number of its update, from 0) -> the block that it updates."""

Inject = Callable[[int, Array], None]
"""(t, x): injects a fault into x if t is the time for it."""


@dataclass(frozen=True)
class LiteralRun:
    """The outcome.

    Attributes:
        x: the iterate at the end, shape (n,).
        ticks: t at the end.
        converged: whether the residual is within the tolerance; otherwise t is at its limit.
        residual: 2-norm of b - A x.
        updates: (processor, t) of each update in order, shape (k, 2).
        relaxations: of single components.
        rollbacks: of Algorithm 5.
    """

    x: Array
    ticks: int
    converged: bool
    residual: float
    updates: NDArray[np.int64]
    relaxations: int
    rollbacks: int = 0


def algorithm_2(
    A: csr_array,
    b: Array,
    x0: Array,
    blocks: Sequence[Rows],
    duration: Duration,
    *,
    processors: int | None = None,
    choose: Choose | None = None,
    read: Literal["completion", "gauss-seidel"] = "completion",
    tolerance: float = 1e-6,
    most: float = inf,
) -> LiteralRun:
    """Algorithm 2: asynchronous Jacobi on processors that read x when their update is complete.

    Args:
        A: shape (n, n), with a diagonal without zeros.
        b, x0: shape (n,).
        blocks: the rows of each block.
        duration: how many ticks an update takes.
        processors: how many there are; as many as blocks unless given.
        choose: which block a processor updates; by default always the one of its number.
        read: "completion": the rows of a block all from x as it is, one block product in NumPy;
            "gauss-seidel": row after row in place, which is what the paper's text says.
        tolerance: 2-norm of the residual at which it has converged.
        most: stop at this t.
    """
    x, parts = x0.copy(), [_part(A, b, rows) for rows in blocks]
    state = _State(len(blocks) if processors is None else processors, duration, choose)
    relax = _relax_together if read == "completion" else _relax_in_order
    residual, t = inf, 0
    while not residual <= tolerance and t < most:
        t += 1
        for processor in np.flatnonzero(state.tau == t):
            relax(parts[state.block[processor]], x)
            state.next_update(processor, t)
        residual = float(np.linalg.norm(b - A @ x))
    return _result(x, t, residual, tolerance, state, parts)


def algorithm_2_read_at_start(
    A: csr_array,
    b: Array,
    x0: Array,
    blocks: Sequence[Rows],
    duration: Duration,
    *,
    processors: int | None = None,
    choose: Choose | None = None,
    tolerance: float = 1e-6,
    most: float = inf,
) -> LiteralRun:
    """Algorithm 2 with the reads of Definition 1: from what was there when the update began.

    At one t, all who are due write first, and then all of them read. Arguments: `algorithm_2`.
    """
    x, parts = x0.copy(), [_part(A, b, rows) for rows in blocks]
    state = _State(len(blocks) if processors is None else processors, duration, choose)
    written = list(state.block)
    pending = [_new_values(parts[block], x) for block in written]
    residual, t = inf, 0
    while not residual <= tolerance and t < most:
        t += 1
        due = np.flatnonzero(state.tau == t)
        for processor in due:
            x[parts[written[processor]].rows] = pending[processor]
            state.next_update(processor, t)
        for processor in due:
            written[processor] = state.block[processor]
            pending[processor] = _new_values(parts[written[processor]], x)
        residual = float(np.linalg.norm(b - A @ x))
    return _result(x, t, residual, tolerance, state, parts)


def algorithm_5(
    A: csr_array,
    b: Array,
    x0: Array,
    blocks: Sequence[Rows],
    duration: Duration,
    *,
    alpha: float,
    omega: int,
    inject: Inject | None = None,
    as_printed: bool = False,
    tolerance: float = 1e-6,
    most: float = inf,
) -> LiteralRun:
    """Algorithm 5: Algorithm 2 with a checkpoint every omega ticks.

    When the residual grows by more than the factor alpha, the checkpoint is put back; until the
    first one is taken, it is the initial guess.

    Args:
        inject: the fault.
        as_printed: r_old stays what it was at first, so that nothing is ever put back; otherwise
            r_old <- r_new at every t (of the x put back, if it was), which gives figure 11.

    The other arguments: `algorithm_2`.
    """
    x, parts = x0.copy(), [_part(A, b, rows) for rows in blocks]
    state = _State(len(blocks), duration, None)
    r_old, r_new, x_cp, rollbacks, t = inf, inf, x0.copy(), 0, 0
    while not r_new <= tolerance and t < most:
        t += 1
        for processor in np.flatnonzero(state.tau == t):
            _relax_together(parts[state.block[processor]], x)
            state.next_update(processor, t)
        if inject is not None:
            inject(t, x)
        r_new = float(np.linalg.norm(b - A @ x))
        if not r_new <= alpha * r_old:  # a NaN grows, too
            x[:] = x_cp
            r_new = float(np.linalg.norm(b - A @ x))
            rollbacks += 1
        if t % omega == 0:
            x_cp[:] = x
        if not as_printed:
            r_old = r_new
    return _result(x, t, r_new, tolerance, state, parts, rollbacks)


class _State:
    """tau, the processors' update times, and what they update then."""

    def __init__(self, processors: int, duration: Duration, choose: Choose | None) -> None:
        self._duration = duration
        self._choose: Choose = (lambda processor, _: processor) if choose is None else choose
        self._count = [0] * processors
        self.block = [self._choose(processor, 0) for processor in range(processors)]
        self.tau = np.array([duration(processor, 0) for processor in range(processors)], np.int64)
        self.updates: list[tuple[int, int, int]] = []

    def next_update(self, processor: Any, t: int) -> None:
        """Let a processor that updated at t begin its next update."""
        self.updates.append((int(processor), t, self.block[processor]))
        self._count[processor] += 1
        number = self._count[processor]
        self.block[processor] = self._choose(int(processor), number)
        ticks = self._duration(int(processor), number)
        assert ticks > 0, "an update takes at least one tick"
        self.tau[processor] = t + ticks


class _Part(NamedTuple):
    """What the relaxation of a block needs: its rows of A without the diagonal, and the rest."""

    rows: Rows
    off_diagonal: csr_array
    factor: Array  # -1 / a_ii
    b: Array


def _part(A: csr_array, b: Array, rows: Rows) -> _Part:
    from scipy.sparse import csr_array, diags_array

    diagonal = A.diagonal()
    off_diagonal = csr_array(A - diags_array(diagonal))
    off_diagonal.eliminate_zeros()
    return _Part(rows, off_diagonal[rows], -1 / diagonal[rows], b[rows])


def _new_values(part: _Part, x: Array) -> Array:
    """Algorithm 2, line 9, for all rows of a block."""
    values: Array = part.factor * (part.off_diagonal @ x - part.b)
    return values


def _relax_together(part: _Part, x: Array) -> None:
    x[part.rows] = _new_values(part, x)


def _relax_in_order(part: _Part, x: Array) -> None:
    """Algorithm 2, lines 8 to 10."""
    pointer, columns, values = (
        part.off_diagonal.indptr,
        part.off_diagonal.indices,
        part.off_diagonal.data,
    )
    for k, row in enumerate(part.rows):
        entries = slice(pointer[k], pointer[k + 1])
        others = values[entries] @ x[columns[entries]]
        x[row] = part.factor[k] * (others - part.b[k])


def _result(
    x: Array,
    t: int,
    residual: float,
    tolerance: float,
    state: _State,
    parts: list[_Part],
    rollbacks: int = 0,
) -> LiteralRun:
    updates = np.array(state.updates, np.int64).reshape(-1, 3)
    relaxations = sum(parts[block].rows.size for block in updates[:, 2].tolist())
    return LiteralRun(x, t, residual <= tolerance, residual, updates[:, :2], relaxations, rollbacks)
