"""Value iteration for a robot on a slippery floor: G is a maximum, so no linear solver will do.

V(s) = max over moves of -0.04 + 0.95 * sum over s' of P(s' | s, move) V(s'). G is a contraction in
the maximum norm, so it converges asynchronously (Bertsekas, "Distributed dynamic programming", IEEE
Transactions on Automatic Control 27(3), 1982).
"""

from typing import Any

import numba
import numpy as np

from paracosm.relaxation import relax_map

SIDE, DISCOUNT, SLIP, STEP, PROCESSORS = 10, 0.95, 0.1, -0.04, 10
GOAL, PIT = SIDE - 1, 4 * SIDE + 5  # top right corner; a hole in the middle
MOVES = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])  # up, right, down, left


@numba.njit
def land(state: int, move: int) -> int:
    """Where a step ends: walls hold the robot back."""
    row = min(max(state // SIDE + MOVES[move, 0], 0), SIDE - 1)
    column = min(max(state % SIDE + MOVES[move, 1], 0), SIDE - 1)
    return row * SIDE + column


@numba.njit
def worth(V: Any, state: int, move: int) -> float:
    """What a move is worth: it slips to either side with probability SLIP."""
    ahead, left, right = [V[land(state, (move + turn) % 4)] for turn in (0, 3, 1)]
    return STEP + DISCOUNT * ((1 - 2 * SLIP) * ahead + SLIP * (left + right))


@numba.njit
def bellman(V: Any, rows: Any, out: Any) -> None:
    for k, state in enumerate(rows):
        if state in (GOAL, PIT):
            out[k] = 1.0 if state == GOAL else -1.0
        else:
            out[k] = max([worth(V, state, move) for move in range(4)])


found = relax_map(
    bellman, np.zeros(SIDE * SIDE), processors=PROCESSORS, time="gamma(10, 5)", norm=np.inf,
    tolerance=1e-10,
)  # fmt: skip
print(f"{found.status} after {found.virtual_time:.0f} s and {found.sweeps[-1]:.0f} sweeps")
V, V_next = np.zeros(SIDE * SIDE), np.zeros(SIDE * SIDE)
for _ in range(1000):
    bellman(V, np.arange(V.size), V_next)
    V, V_next = V_next, V
print(f"largest difference to synchronous value iteration: {np.abs(found.x - V).max():.1e}")
for state in range(SIDE * SIDE):
    best = int(np.argmax([worth(found.x, state, move) for move in range(4)]))
    sign = "G" if state == GOAL else "#" if state == PIT else "↑→↓←"[best]
    print(sign, end="\n" if state % SIDE == SIDE - 1 else " ")
