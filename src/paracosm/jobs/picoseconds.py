"""Durations as whole picoseconds: sums of them are exact in whatever order they are made."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.jobs.program import KINDS, Program

__all__ = ["LONGEST", "PICOSECOND", "picoseconds"]

PICOSECOND = 1e-12
"""Seconds."""

LONGEST = 9e6
"""Seconds that a job may take: 104 days; 2**63 picoseconds are 106."""


def picoseconds(program: Program, speed: float, names: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """Return the n durations of a program on a rank of this speed, rounded.

    Only tasks of the rank alone (kind "task") depend on its speed.

    Args:
        program: whose tasks.
        speed: relative.
        names: of the job's tasks, for messages.

    Raises:
        InputError: a duration is missing, negative or endless, or all of them last too long.
    """
    own = program.kind == KINDS.index("task")
    seconds = np.where(own, program.duration / speed, program.duration)
    wrong = np.flatnonzero(~(np.isfinite(seconds) & (seconds >= 0)))
    if len(wrong):
        row = int(wrong[0])
        name = names[program.name[row]]
        raise InputError(f"task {row} ({name}): its duration is {program.duration[row]} s")
    if seconds.sum() > LONGEST:
        raise InputError(
            f"the tasks of one rank take {seconds.sum():.3g} s: at most {LONGEST:.3g} are replayed"
        )
    return np.rint(seconds * 1e12).astype(np.int64)
