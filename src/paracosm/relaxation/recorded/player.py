"""The state of an iteration that is driven by a given sequence of events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError

if TYPE_CHECKING:
    from paracosm.relaxation.problems.problem import Problem

__all__ = ["Player"]

Array = NDArray[np.float64]


class Player:
    """Jacobi relaxation of `problem`, processor k on the rows from `pointer[k]` to `pointer[k+1]`.

    `x` is the iterate, `threshold` the residual norm at which a completed check ends the play.

    Raises:
        InputError: the blocks do not cover the problem's rows, or a diagonal element is zero.
    """

    def __init__(self, problem: Problem, pointer: NDArray[np.int64], threshold: float) -> None:
        from paracosm.relaxation.recorded.replay_kernel import STATE, refresh

        if pointer[0] != 0 or pointer[-1] != problem.n or np.any(np.diff(pointer) < 1):
            raise InputError(
                f"{problem.name}: blocks end at row {int(pointer[-1])}, not at {problem.n}: "
                "it is another problem's recording"
            )
        self._diagonal = problem.A.diagonal()
        if not self._diagonal.all():
            row = int(np.argmin(self._diagonal != 0))
            raise InputError(f"{problem.name}: zero on the diagonal in row {row}")
        self._pointer, self._b, self._threshold = pointer, problem.b, threshold
        columns = problem.A.tocsc()
        self._columns = columns.indptr, columns.indices, columns.data
        self.x = problem.x0.astype(np.float64, copy=True)
        self._r, self._pending = np.empty(problem.n), np.zeros(problem.n)
        self._state = np.zeros(STATE, np.int64)
        refresh(*self._columns, self._b, self.x, self._r, self._state)

    @property
    def checks(self) -> int:
        """How many times the residual was checked so far."""
        from paracosm.relaxation.recorded.replay_kernel import CHECKS

        return int(self._state[CHECKS])

    @property
    def found(self) -> bool:
        """Whether the newest check found a norm that ends the play."""
        from paracosm.relaxation.recorded.replay_kernel import FOUND

        return bool(self._state[FOUND])

    @property
    def residual(self) -> float:
        """||b - Ax||."""
        return float(np.linalg.norm(self._r))

    def play(
        self, kinds: NDArray[np.int8], who: NDArray[np.int32], norms: Array, first: int = 0
    ) -> int:
        """Play events from number `first`, in order; see `play_events`, whose result it returns."""
        from paracosm.relaxation.recorded.replay_kernel import play_events

        return int(
            play_events(
                kinds, who, first, self._pointer, *self._columns, self._diagonal, self._b, self.x,
                self._r, self._pending, self._threshold, norms, self._state,
            )
        )  # fmt: skip
