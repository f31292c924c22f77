"""Whether a job profile can be believed: what is refused, and which steps are left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.profiling.jobs.dependencies import dependents_of, in_order
from paracosm.profiling.jobs.job_profile import DOWNLINK, RESOURCES, UPLINK, JobProfile

__all__ = ["check_job_profile"]

EARLY = 1e-3
"""Seconds that an op may be noted as begun before its step: clocks are read one after the other."""

Floats = npt.NDArray[np.float64]


def check_job_profile(profile: JobProfile, where: str) -> JobProfile:
    """Return the profile without the steps that cannot be right, which are counted by reason.

    Args:
        profile: as it was read.
        where: its file, for messages.

    Raises:
        InputError: it has no ops, no steps or no transfers; an op's resource, bytes or
            dependencies are wrong; a field has the wrong shape; no step is left.
    """
    _check_shapes(profile, where)
    _check_ops(profile, where)
    _check_dependencies(profile, where)
    kept = np.ones(profile.steps, bool)
    dropped = dict(profile.dropped)
    first = ""
    for reason, bad in _faults(profile):
        new = bad & kept[:, None]
        steps = new.any(axis=1)
        if steps.any():
            step, op = (int(index) for index in np.argwhere(new)[0])
            first = first or f"step {step}, {profile.names[op]}: {reason}"
            dropped[reason] = dropped.get(reason, 0) + int(steps.sum())
            kept &= ~steps
    if not kept.any():
        raise InputError(f"{where}: no step is left of {profile.steps}: {first}")
    if kept.all():
        return profile
    return replace(profile.of_steps(kept), dropped=dropped)


def _check_shapes(profile: JobProfile, where: str) -> None:
    ops, steps = profile.ops, profile.steps
    if not ops:
        raise InputError(f"{where}: no op was profiled")
    if not steps:
        raise InputError(f"{where}: no step was profiled")
    for name in ("kinds", "resource", "server", "size"):
        if len(getattr(profile, name)) != ops:
            raise InputError(
                f"{where}: {name} has {len(getattr(profile, name))} values for {ops} ops"
            )
    for name in ("begin", "end"):
        if getattr(profile, name).shape != (steps, ops):
            raise InputError(
                f"{where}: {name} has the shape {getattr(profile, name).shape}, not {(steps, ops)} "
                "(steps, ops)"
            )
    if profile.step_end.shape != (steps,):
        raise InputError(f"{where}: {len(profile.step_end)} ends of {steps} steps")
    for name in ("batch", "bandwidth"):
        value = getattr(profile, name)
        if value is not None and not (isinstance(value, int | float) and value > 0):
            raise InputError(f"{where}: {name} is {value}, not above 0")


def _check_ops(profile: JobProfile, where: str) -> None:
    (most, times), *_ = Counter(profile.names).most_common(1)
    if times > 1:
        raise InputError(f"{where}: {times} ops are called {most}")
    transfers = (profile.resource == DOWNLINK) | (profile.resource == UPLINK)
    for bad, what in (
        ((profile.resource < 0) | (profile.resource >= len(RESOURCES)), "has no known resource"),
        (profile.server < 0, "has a negative number of a server"),
        (profile.server >= profile.ops, "belongs to a server that has no op"),
        (profile.size < 0, "transfers a negative number of bytes"),
        ((profile.size > 0) & ~transfers, "computes, and yet transfers bytes"),
    ):
        if bad.any():
            raise InputError(f"{where}: {profile.names[int(np.argmax(bad))]} {what}")
    for direction in (DOWNLINK, UPLINK):
        if not (profile.resource == direction).any():
            raise InputError(
                f"{where}: no op of the {RESOURCES[direction]}: a profile needs a worker that gets "
                "parameters from a server and sends gradients to it"
            )


def _check_dependencies(profile: JobProfile, where: str) -> None:
    first, found = profile.first_dependency, profile.dependencies
    if len(first) != profile.ops + 1 or first[0] != 0 or first[-1] != len(found):
        raise InputError(f"{where}: first_dependency does not fit {len(found)} dependencies")
    if (np.diff(first) < 0).any():
        raise InputError(f"{where}: first_dependency is not ascending")
    if len(found) and (found.min() < 0 or found.max() >= profile.ops):
        raise InputError(f"{where}: a dependency on an op that is not there")
    _check_no_cycle(profile, where)


def _check_no_cycle(profile: JobProfile, where: str) -> None:
    """Refuse ops that wait for each other."""
    first, waiting = dependents_of(profile.first_dependency, profile.dependencies)
    done = in_order(np.diff(profile.first_dependency), first, waiting)
    if len(done) < profile.ops:
        left = sorted(set(range(profile.ops)).difference(done))
        names = [profile.names[op] for op in left[:3]]
        raise InputError(f"{where}: ops wait for each other: {', '.join(names)}")


def _faults(profile: JobProfile) -> list[tuple[str, npt.NDArray[np.bool_]]]:
    """Return what can be wrong with an op of a step, and where it is, (steps, ops).

    A transfer that was not traced, with neither begin nor end, is none: its bytes are known.
    """
    transfer = np.isin(profile.resource, (DOWNLINK, UPLINK))
    untraced = transfer & np.isnan(profile.begin) & np.isnan(profile.end)
    begin, end = np.where(untraced, 0.0, profile.begin), np.where(untraced, 0.0, profile.end)
    length = (profile.step_end - profile.step_begin)[:, None]
    with np.errstate(invalid="ignore"):
        return [
            ("its step has no begin or no end", ~np.isfinite(length) & np.ones(profile.ops, bool)),
            ("no begin", ~np.isfinite(begin)),
            ("no end", ~np.isfinite(end)),
            ("ends before it begins", end < begin),
            ("begins before its step", begin < -EARLY),
            ("begins after its step's end", begin > length + EARLY),
        ]
