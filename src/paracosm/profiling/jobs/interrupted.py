"""Steps of a profile in which the machine did something else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paracosm.profiling.jobs.job_profile import WORKER, JobProfile

__all__ = ["INTERRUPTED", "without_interrupted"]

INTERRUPTED = "interrupted: its computing took far longer than that of other steps"
"""The reason, in `JobProfile.dropped`."""

FAR = 3.0
"""Interquartile ranges above the upper quartile: what Tukey ("Exploratory Data Analysis", 1977)
calls far out."""

LONGER = 1.1
"""Times the median: where all steps last alike, next to nothing would be far out."""


def without_interrupted(profile: JobProfile) -> JobProfile:
    """Return the profile without steps whose computing on the worker is far out, which are counted.

    What stopped the machine for a second while it was profiled would be drawn again and again.
    Steps that are slow once in a while belong to the job only if they are not that far out, or a
    quarter of all: no more than a quarter is ever left out.

    Args:
        profile: any.
    """
    own = profile.resource == WORKER
    computing = (profile.end[:, own] - profile.begin[:, own]).sum(axis=1)
    low, median, high = np.percentile(computing, [25, 50, 75])
    kept: npt.NDArray[np.bool_] = computing <= max(high + FAR * (high - low), LONGER * median)
    if kept.all():
        return profile
    dropped = {**profile.dropped, INTERRUPTED: int((~kept).sum())}
    return replace(profile.of_steps(kept), dropped=dropped)
