"""From a profile to steps that can be simulated: what the profiled link did is taken out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile
from paracosm.profiling.jobs.job_profile import dependents_of, in_order, smallest_first
from paracosm.simulation.system import Workload

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

DECIDES = 0.5
"""Share of the time until a transfer is asked for: where what it waits for computes for more, that
decides."""


def prepare(profile: JobProfile) -> Workload:
    """Return what a worker's steps are made of, whatever link carries them.

    A recorded transfer lasts from its request until its data is parsed, and says little of when it
    was on its way (Li et al. 2020, section 2); all that is kept of it are its bytes, and its place
    among those that were asked for. What parsing costs is added before, by `with_parsing`.
    """
    gap = _gaps(profile)
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
        gap=gap,
    )


def with_parsing(profile: JobProfile, alpha: float, beta: float) -> JobProfile:
    """Return the profile with an op behind each transfer in which the receiver parses its data.

    It takes alpha * size + beta seconds (Li et al. 2020, section 3.2.1), and those that waited for
    the transfer wait for it. These ops, at the end, are called "w/read parsed"; there are none if
    both numbers are 0.
    """
    if not (alpha or beta):
        return profile
    transfers = np.flatnonzero(np.isin(profile.resource, (DOWNLINK, UPLINK)))
    ops, extra = profile.ops, len(transfers)
    parser = np.arange(ops)
    parser[transfers] = ops + np.arange(extra)
    receiver = np.where(profile.resource[transfers] == DOWNLINK, WORKER, SERVER)
    begin = _asked(profile)[:, transfers]  # known of transfers that were not traced, too
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


def _without_requests(profile: JobProfile) -> JobProfile:
    """Return the profile with transfers that wait for nothing, where neither another transfer nor
    computing decides when they are asked for: they are at the same moment of the step on any link,
    and of any worker and server."""
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
    bound |= _computed_for(profile) > DECIDES * _asked(profile).mean(axis=0)
    kept = ~(transfer & ~bound)[waiting]
    waits = np.bincount(waiting[kept], minlength=profile.ops)
    return replace(
        profile,
        first_dependency=np.concatenate([[0], np.cumsum(waits)]),
        dependencies=profile.dependencies[kept],
    )


def _computed_for(profile: JobProfile) -> Floats:
    """Return the mean seconds of computing, one op behind the other, that each op waits for."""
    took = np.nan_to_num(profile.end - profile.begin).mean(axis=0)
    first, waiting = dependents_of(profile.first_dependency, profile.dependencies)
    before = np.zeros(profile.ops)
    for op in in_order(np.diff(profile.first_dependency), first, waiting):
        after = waiting[first[op] : first[op + 1]]
        before[after] = np.maximum(before[after], before[op] + took[op])
    return before


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
    near = np.sort(between[between >= 0])
    # Steps that were left out ran in as many of the pauses, the longest ones.
    with_steps = min(sum(profile.dropped.values()), int((near >= lengths.min()).sum()))
    near = near[: len(near) - with_steps]
    pause = np.median(near) if len(near) else 0.0
    return np.asarray(np.maximum(lengths - last, 0.0) + pause)


Labels = list[frozenset[int]]

NONE: frozenset[int] = frozenset()


def shared_by(profile: JobProfile, servers: int) -> JobProfile:
    """Return the profile of the same job with its parameters on so many servers.

    A parameter is what a downlink carries. It takes with it the ops of the server that only it
    waits for, those that update it, and its gradient: the uplink that these wait for, or where the
    profile joins no uplink to a parameter, the last one of the same size that is left. What
    concerns several parameters stays on the first server.

    Raises:
        InputError: there are fewer parameters than servers.
    """
    parameters = np.flatnonzero((profile.resource == DOWNLINK) & (profile.size > 0))
    if len(parameters) < servers:
        raise InputError(
            f"servers: {servers} servers for {len(parameters)} parameters: some would have none"
        )
    labels = _labels(profile, parameters)
    holder = smallest_first(profile.size[parameters].tolist(), servers)
    place = dict(zip(parameters.tolist(), holder, strict=True))
    server = np.zeros(profile.ops, np.int64)
    for op, found in enumerate(labels):
        if len(found) == 1:
            (parameter,) = found
            server[op] = place[parameter]
    return replace(profile, server=server)


def _labels(profile: JobProfile, parameters: Ints) -> Labels:
    """Return the parameters that each op concerns, by their downlinks; none of a worker's op."""
    elsewhere = profile.resource != WORKER
    waits = [
        [op for op in profile.waits_for(each).tolist() if elsewhere[op]] if elsewhere[each] else []
        for each in range(profile.ops)
    ]
    dependents = dependents_of(profile.first_dependency, profile.dependencies)
    order = in_order(np.diff(profile.first_dependency), *dependents)
    labels: Labels = [NONE] * profile.ops
    for parameter in parameters.tolist():
        labels[parameter] = frozenset([parameter])
    for op in reversed(order):
        for before in waits[op]:
            labels[before] |= labels[op]
    for op in order:
        if not labels[op]:
            labels[op] = NONE.union(*(labels[before] for before in waits[op]))
    uplinks = np.flatnonzero(profile.resource == UPLINK).tolist()
    for uplink in uplinks:
        labels[uplink] = NONE
    for op in order:
        for before in waits[op]:
            if profile.resource[before] == UPLINK:
                labels[before] |= labels[op]
    _match_by_size(profile, parameters, [op for op in uplinks if not labels[op]], labels)
    for op in order:
        if not labels[op]:
            labels[op] = NONE.union(*(labels[before] for before in waits[op]))
    return labels


def _match_by_size(
    profile: JobProfile, parameters: Ints, uplinks: Sequence[int], labels: Labels
) -> None:
    """Give gradients that nothing joins to a parameter the last one of their size that is left."""
    left: dict[int, list[int]] = {}
    for parameter in parameters.tolist():
        left.setdefault(int(profile.size[parameter]), []).append(parameter)
    for op in uplinks:
        if same := left.get(int(profile.size[op])):
            labels[op] = frozenset([same.pop()])
