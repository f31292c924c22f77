"""A recorded run of real threads, played again: does the simulation see what the threads saw?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError
from paracosm.relaxation.recorded.player import Player

if TYPE_CHECKING:
    from paracosm.relaxation.problems.problem import Problem
    from paracosm.relaxation.threads.recording import Recording

__all__ = ["ReadAt", "Replay", "replay"]

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
    from paracosm.relaxation.recorded.replay_kernel import CHECK, COMMIT, READ

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
