"""A profiled job's parameters, divided between another number of servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.profiling.jobs import DOWNLINK, UPLINK, WORKER, JobProfile
from paracosm.profiling.jobs.job_profile import dependents_of, in_order, smallest_first

__all__ = ["shared_by"]

Ints = npt.NDArray[np.int64]
Labels = list[frozenset[int]]

NONE: frozenset[int] = frozenset()


def shared_by(profile: JobProfile, servers: int) -> JobProfile:
    """Return the profile of the same job with its parameters on so many servers.

    A parameter is what a downlink carries. It takes with it the ops of the server that only it
    waits for, those that update it, and its gradient: the uplink that these wait for, or where the
    profile joins no uplink to a parameter, the last one of the same size that is left. What
    concerns several parameters stays on the first server.

    Args:
        profile: of one worker.
        servers: how many.

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
