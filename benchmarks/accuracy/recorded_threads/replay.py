"""A recorded run of real threads, played again: does the simulation see what the threads saw?

The residual r = b - Ax is kept with x: a commit scatters each change through the columns of A. A
relaxation is then x_i + r_i / a_ii, and the norm that the residual processor finds at an instant is
the norm of r.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paracosm.compiled import compiled
from paracosm.errors import InputError
from paracosm.relaxation.problems import Problem
from paracosm.relaxation.threads.measurement import Recording

Array = NDArray[np.float64]

# Kinds of events; at one instant, commits come first. A check reads x and has its norm later.
COMMIT, READ, CHECK, CHECKED = range(4)
# Places in the loop's scalars: checks so far; relaxations since r was computed afresh; whether the
# newest check found a norm that ends the play.
CHECKS, RELAXATIONS, FOUND, STATE = range(4)

_FRESH_AFTER = 1000  # sweeps; rounding errors of r grow by far less than the tolerance in that time


ReadAt = Literal["start", "middle", "copied"]


@dataclass(frozen=True, eq=False)
class Replay:
    """What the simulation found in a recorded run.

    Args:
        detecting: the first check whose norm is at most the threshold; None if there was none.
        recorded: the check that detected convergence in the real run; -1 if none did.
        time: seconds from the common start to the end of the detecting check; None without one.
        recorded_time: likewise of the real run.
        norms: the residual norm at every check's read, shape (checks,).
        x: the iterate when all was played, shape (n,).
        residual: its ||b - Ax||.
    """

    detecting: int | None
    recorded: int
    time: float | None
    recorded_time: float | None
    norms: NDArray[np.float64]
    x: NDArray[np.float64]
    residual: float

    @property
    def late_by(self) -> int | None:
        """How many checks later (or, below 0, earlier) than in reality convergence was found.

        None if either did not find it: of a replay that is late by more checks than were recorded
        after the real detection (see `lingering` of `run_threads`) no more is known.
        """
        if self.detecting is None or self.recorded < 0:
            return None
        return self.detecting - self.recorded


def replay(
    problem: Problem,
    recording: Recording,
    threshold: float,
    read_at: ReadAt = "copied",
) -> Replay:
    """Play the events of `recording`: blocks are computed from what x is when they read it.

    Definition 1 of the paper: a relaxation uses the x of its read; its values enter x when its
    update ends. At one instant, commits come before reads.

    Args:
        threshold: the residual norm that the real run had to reach.
        read_at: the instant that stands for the copy of x, which takes a while: its start, its
            middle, its end. The end is when the copy is whole; under SAFE it is in the lock, while
            a copy's start may wait for it.

    Raises:
        InputError: the recording is not complete, or of another problem.
    """
    if not recording.complete:
        raise InputError(
            f"{problem.name}: the run made more iterations than were recorded, so it cannot be "
            "replayed: raise the number that is recorded, or the tolerance"
        )
    kinds, who = _events(recording, read_at)
    player = Player(problem, recording.pointer, threshold)
    norms = np.full(len(recording.checks), np.nan)
    player.play(kinds, who, norms)
    below = np.flatnonzero(norms <= threshold)
    detecting = int(below[0]) if below.size else None
    return Replay(
        detecting,
        recording.detecting,
        _checked(recording, detecting),
        _checked(recording, recording.detecting),
        norms,
        player.x,
        float(np.linalg.norm(problem.b - problem.A @ player.x)),
    )


def _checked(recording: Recording, check: int | None) -> float | None:
    """Return when the check ended, in seconds."""
    if check is None or check < 0:
        return None
    return 1e-9 * float(recording.checks[check, 2])


def _events(recording: Recording, read_at: ReadAt) -> tuple[NDArray[np.int8], NDArray[np.int32]]:
    """Return kind and processor of every event, in order of time."""
    pieces = []
    for thread, stamps in enumerate(recording.workers):
        pieces.append((_read(stamps, read_at), READ, thread))
        pieces.append((stamps[:, 3], COMMIT, thread))
    pieces.append((_read(recording.checks, read_at), CHECK, 0))
    times = np.concatenate([instants for instants, _, _ in pieces])
    lengths = [len(instants) for instants, _, _ in pieces]
    kinds = np.repeat(np.array([kind for _, kind, _ in pieces], np.int8), lengths)
    who = np.repeat(np.array([thread for _, _, thread in pieces], np.int32), lengths)
    order = np.lexsort((kinds, times))
    return kinds[order], who[order]


def _read(stamps: NDArray[np.int64], read_at: ReadAt) -> NDArray[np.int64]:
    start, copied = stamps[:, 0], stamps[:, 1]
    if read_at == "middle":
        return start + (copied - start) // 2
    return start if read_at == "start" else copied


class Player:
    """Jacobi relaxation of `problem`, processor k on the rows from `pointer[k]` to `pointer[k+1]`.

    `x` is the iterate, `threshold` the residual norm at which a completed check ends the play.

    Raises:
        InputError: the blocks do not cover the problem's rows, or a diagonal element is zero.
    """

    def __init__(self, problem: Problem, pointer: NDArray[np.int64], threshold: float) -> None:
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
        return int(self._state[CHECKS])

    @property
    def found(self) -> bool:
        """Whether the newest check found a norm that ends the play."""
        return bool(self._state[FOUND])

    @property
    def residual(self) -> float:
        """||b - Ax||."""
        return float(np.linalg.norm(self._r))

    def play(
        self, kinds: NDArray[np.int8], who: NDArray[np.int32], norms: Array, first: int = 0
    ) -> int:
        """Play events from number `first`, in order; see `play_events`, whose result it returns."""
        return int(
            play_events(
                kinds, who, first, self._pointer, *self._columns, self._diagonal, self._b, self.x,
                self._r, self._pending, self._threshold, norms, self._state,
            )
        )  # fmt: skip


@compiled
def play_events(
    kinds: Any,
    who: Any,
    first: Any,
    pointer: Any,
    column_pointer: Any,
    rows: Any,
    values: Any,
    diagonal: Any,
    b: Any,
    x: Any,
    r: Any,
    pending: Any,
    threshold: Any,
    norms: Any,
    state: Any,
) -> int:
    """Play events from number `first`; return the number of the event that ended it, or of events.

    It ends when a check is done that found a norm of at most `threshold`, or one that is no number.

    Args:
        kinds, who: what happens, and to which processor, in order of time, shape (events,).
        pointer: processor k has the rows from `pointer[k]` to `pointer[k + 1]`.
        column_pointer, rows, values: A in CSC.
        diagonal, b: the rest of the system, shape (n,).
        x, r: iterate and residual b - Ax, shape (n,).
        pending: the change of x that each processor has computed and not committed, shape (n,).
        norms: the norm that each check found, as far as it has room.
        state: the scalars, shape (STATE,).
    """
    for event in range(first, kinds.size):
        kind, processor = kinds[event], who[event]
        if kind == CHECK:
            norm = _norm(r)
            if norm <= threshold:  # nothing is decided on rounding errors
                refresh(column_pointer, rows, values, b, x, r, state)
                norm = _norm(r)
            if state[CHECKS] < norms.size:
                norms[state[CHECKS]] = norm
            state[CHECKS] += 1
            state[FOUND] = norm <= threshold or not norm < np.inf
            continue
        if kind == CHECKED:
            if state[FOUND]:
                return int(event)
            continue
        begin, end = pointer[processor], pointer[processor + 1]
        if kind == READ:
            for i in range(begin, end):
                pending[i] = r[i] / diagonal[i]
            continue
        for i in range(begin, end):
            change = pending[i]
            x[i] += change
            for k in range(column_pointer[i], column_pointer[i + 1]):
                r[rows[k]] -= values[k] * change
        state[RELAXATIONS] += end - begin
        if state[RELAXATIONS] >= _FRESH_AFTER * x.size:
            refresh(column_pointer, rows, values, b, x, r, state)
    return int(kinds.size)


@compiled
def refresh(
    column_pointer: Any, rows: Any, values: Any, b: Any, x: Any, r: Any, state: Any
) -> None:
    """Compute r = b - Ax afresh."""
    r[:] = b
    for i in range(x.size):
        for k in range(column_pointer[i], column_pointer[i + 1]):
            r[rows[k]] -= values[k] * x[i]
    state[RELAXATIONS] = 0


@compiled
def _norm(r: Any) -> Any:
    square = 0.0
    for i in range(r.size):
        square += r[i] * r[i]
    return np.sqrt(square)
