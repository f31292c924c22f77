"""What a job profile adds up to."""

from __future__ import annotations

import numpy.typing as npt

from paracosm.profiling.jobs import JobProfile


def moved(profile: JobProfile, resource: int) -> int:
    """Return the bytes of all transfers of a resource."""
    return int(profile.size[profile.resource == resource].sum())


def seconds(profile: JobProfile, resource: int) -> npt.NDArray:
    """Return the seconds of all ops of a resource in each step."""
    return (profile.end - profile.begin)[:, profile.resource == resource].sum(axis=1)
