"""From a profile to steps that can be simulated: what the profiled link did is taken out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paracosm.prediction.parameter_servers.workload import Workload
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile

__all__ = ["prepare"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def prepare(profile: JobProfile, *, alpha: float = 0.0, beta: float = 0.0) -> Workload:
    """Return what a worker's steps are made of, whatever link carries them.

    A recorded transfer lasts from its request until its data is parsed, and says little of when it
    was on its way (Li et al. 2020, section 2); all that is kept of it are its bytes, and its place
    among those that were asked for. Its parsing, alpha * size + beta (section 3.2.1), becomes a
    computation of the receiver, which those that waited for the transfer wait for.

    Args:
        profile: of one worker.
        alpha: seconds a byte of parsing what was received.
        beta: seconds of parsing anything received.
    """
    if alpha or beta:
        profile = _with_parsing(profile, alpha, beta)
    profile = _without_requests(profile)
    transfers = np.isin(profile.resource, (DOWNLINK, UPLINK))
    seconds = np.where(transfers, 0.0, profile.end - profile.begin)
    waits = np.diff(profile.first_dependency)
    roots = np.flatnonzero(waits == 0)
    asked = _asked(profile)
    waiting = np.repeat(np.arange(profile.ops), waits)
    order = np.lexsort((asked.mean(axis=0)[waiting], profile.dependencies))
    edges = profile.dependencies[order]
    first = np.argsort(asked[:, roots], axis=1, kind="stable")
    return Workload(
        resource=profile.resource,
        server=profile.server,
        size=np.where(transfers, profile.size, 0).astype(float),
        seconds=np.maximum(seconds, 0.0),
        waits=waits.astype(np.int64),
        first_dependent=np.searchsorted(edges, np.arange(profile.ops + 1)),
        dependents=waiting[order],
        roots=roots[first],
        release=np.maximum(np.take_along_axis(asked[:, roots], first, axis=1), 0.0),
        gap=_gaps(profile),
    )


def _without_requests(profile: JobProfile) -> JobProfile:
    """Return the profile with transfers that wait for nothing, where no other transfer decides when
    they are asked for: they are at the same moment of the step on any link."""
    transfer = np.isin(profile.resource, (DOWNLINK, UPLINK))
    moved = transfer.copy()
    waiting = np.repeat(np.arange(profile.ops), np.diff(profile.first_dependency))
    while True:
        before = moved.sum()
        moved[waiting[moved[profile.dependencies]]] = True
        if moved.sum() == before:
            break
    # Every transfer is in `moved`: it is free if none of what it waits for is.
    bound = np.zeros(profile.ops, bool)
    bound[waiting[moved[profile.dependencies]]] = True
    kept = ~(transfer & ~bound)[waiting]
    waits = np.bincount(waiting[kept], minlength=profile.ops)
    return replace(
        profile,
        first_dependency=np.concatenate([[0], np.cumsum(waits)]),
        dependencies=profile.dependencies[kept],
    )


def _asked(profile: JobProfile) -> Floats:
    """Return when each op of each step was begun; of transfers not traced in a step, the mean."""
    traced = ~np.isnan(profile.begin)
    mean = np.where(traced, profile.begin, 0.0).sum(axis=0) / np.maximum(traced.sum(axis=0), 1)
    return np.where(traced, profile.begin, mean)


def _gaps(profile: JobProfile) -> Floats:
    """Return the seconds between the last op of each step and the begin of the next one."""
    last = np.nanmax(profile.end, axis=1)
    lengths = profile.step_end - profile.step_begin
    between = profile.step_begin[1:] - profile.step_end[:-1]
    # Steps that were left out stand between some of the others.
    pause = np.median(between[between >= 0]) if (between >= 0).any() else 0.0
    return np.asarray(np.maximum(lengths - last, 0.0) + pause)


def _with_parsing(profile: JobProfile, alpha: float, beta: float) -> JobProfile:
    """Return the profile with an op behind each transfer in which the receiver parses its data."""
    transfers = np.flatnonzero(np.isin(profile.resource, (DOWNLINK, UPLINK)))
    ops, extra = profile.ops, len(transfers)
    parser = np.arange(ops)
    parser[transfers] = ops + np.arange(extra)
    receiver = np.where(profile.resource[transfers] == DOWNLINK, WORKER, SERVER)
    steps = profile.steps
    begin, end = profile.end[:, transfers], np.zeros((steps, extra))
    end = begin + alpha * profile.size[transfers] + beta
    return replace(
        profile,
        names=(*profile.names, *(f"{profile.names[op]} parsed" for op in transfers)),
        kinds=(*profile.kinds, *("Parsing" for _ in transfers)),
        resource=np.concatenate([profile.resource, receiver.astype(np.int8)]),
        server=np.concatenate(
            [profile.server, np.where(receiver == SERVER, profile.server[transfers], 0)]
        ),
        size=np.concatenate([profile.size, np.zeros(extra, np.int64)]),
        first_dependency=np.concatenate(
            [profile.first_dependency, profile.first_dependency[-1] + 1 + np.arange(extra)]
        ),
        dependencies=np.concatenate([parser[profile.dependencies], transfers]),
        begin=np.concatenate([profile.begin, begin], axis=1),
        end=np.concatenate([profile.end, end], axis=1),
    )
