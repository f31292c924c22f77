"""A profiled job on a target cluster: the workload and the simulated systems."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.errors import InputError
from paracosm.prediction.parameter_servers.config import (
    Ports,
    Settings,
    background_changes,
    parameters_on,
)
from paracosm.prediction.parameter_servers.orders import transfer_order
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile
from paracosm.profiling.jobs.job_profile import dependents_of, in_order, smallest_first
from paracosm.rng import ServerStream, generator
from paracosm.simulation.simulate import simulate
from paracosm.simulation.system import System, Workload
from paracosm.timeline import Labels, Timeline

LEADING = 50  # steps of each worker that belong to the start (Li et al. 2020, section 4.1)

FEWEST, MOST, OPS = 1000, 4000, 10_000_000
"""Default number of simulated steps of each worker: Li et al. (2020, section 4.1)
found 1,000 to be enough; more where that costs less than so many ops, half a second, in all."""

OF_ALL, OF_EACH = 20_000, 160
"""Steps that are enough of all workers together where they are many, and of each of these."""


@dataclass(frozen=True, eq=False)
class TargetJob:
    """The common part of the simulations of all numbers of workers."""

    names: tuple[str, ...]  # of the ops of the workload
    workload: Workload  # steps to draw from
    priority: Floats | None  # of transfers, as in `System`
    settings: Settings  # the cluster and the options of its workers

    def system(
        self, ports: Ports, start: Floats | None = None, until: float | None = None
    ) -> System:
        """Background traffic is made for `until` seconds: by default, all that steps may take."""
        settings = self.settings
        system = System(
            routes=ports.routes,
            speed=ports.speed,
            start=np.zeros(ports.workers) if start is None else start,
            window=settings.window,
            priority=self.priority,
            cores=settings.cores,
            backup=settings.backup,
        )
        if settings.background is None:
            return system
        if until is None:
            steps = max(self.steps(ports.workers) + LEADING, self.workload.steps)
            until = float(system.start.max()) + steps * float(self.longest_steps(ports).max())
        times, flows = background_changes(settings.background, until)
        return replace(system, background_times=times, background_down=flows, background_up=flows)

    def by_server(self, resource: int, amounts: Floats) -> Floats:
        chosen = self.workload.resource == resource
        servers = len(self.settings.ports.server)
        held = self.workload.server[chosen]
        return np.bincount(held, amounts[chosen], servers).astype(np.float64)

    def asynchronous(self) -> "TargetJob":
        return replace(self, settings=replace(self.settings, backup=None))

    def with_shares(self, system: System, steps: int, seed: Sequence[int]) -> System:
        """Draw uneven shares: log-normal, anew each step, as of TCP connections in one queue."""
        if self.settings.share_sigma == 0:
            return system
        sigma = self.settings.share_sigma
        drawn = [
            generator(seed, ServerStream.SHARES, worker).normal(0.0, sigma, steps)
            for worker in range(system.workers)
        ]
        return replace(system, weight=np.exp(np.stack(drawn)))

    def steps(self, workers: int) -> int:
        if self.settings.steps is not None:
            return self.settings.steps
        affordable = OPS // (workers * self.workload.ops)
        enough = min(FEWEST, max(OF_ALL // workers, OF_EACH))
        return min(max(affordable, enough), MOST)

    def drawn(self, workers: int, steps: int, seed: int | Sequence[int]) -> Ints:
        """The first steps of the first workers, (workers, steps), depend on no number of either."""
        streams = [generator(seed, ServerStream.STEPS, worker) for worker in range(workers)]
        return np.stack([stream.integers(self.workload.steps, size=steps) for stream in streams])

    def longest_steps(self, ports: Ports) -> Floats:
        """Return seconds that no step of each worker takes longer than, (workers,).

        Nothing overlaps, and all share evenly with all. Only where servers have so many cores do
        workers wait for each other's updates.
        """
        workload, background = self.workload, self.settings.background
        flows = ports.workers + (0 if background is None else background.flows)
        rate = np.minimum(ports.server.min() / flows, ports.worker / len(ports.server))
        if ports.routes.is_half_duplex:  # both directions share
            rate /= 2
        on = [
            workload.seconds[:, workload.resource == resource].sum(axis=1)
            for resource in (WORKER, SERVER)
        ]
        turns = ports.workers if self.settings.cores else 1
        rest = workload.gap.max() + workload.release.max(initial=0.0)
        delays = ports.latency * _transfers_in_a_row(workload) if ports.latency.any() else 0.0
        transfers = np.count_nonzero(np.isin(workload.resource, (DOWNLINK, UPLINK)))
        delays += ports.routes.held.max(axis=(0, 2)) * (flows * transfers)
        longest = workload.size.sum() / rate + on[0].max() / ports.speed + delays + rest
        return np.asarray(longest + on[1].max() * turns)

    def most_steps(self, ports: Ports, seconds: float) -> int:
        """Bound how many steps any worker does in so many seconds.

        Each takes a worker's own resources for as long as the quickest profiled step does.
        """
        workload = self.workload
        computing = workload.seconds[:, workload.resource == WORKER].sum(axis=1)
        quickest = float((computing / float(ports.speed.max()) + workload.gap).min())
        carried = max(
            float(workload.size[workload.resource == way].sum()) for way in (DOWNLINK, UPLINK)
        )
        shortest = max(quickest, carried / float(ports.worker.max()))
        return ceil(seconds / shortest) + 1 if shortest > 0 else self.steps(ports.workers)


def target_job(profile: JobProfile, settings: Settings, seed: int) -> TargetJob:
    """Other servers than the profile's share its parameters anew; `seed` is of a random order."""
    servers = len(settings.ports.server)
    if servers != profile.servers:
        profile = shared_by(profile, servers)
    profile = with_parsing(profile, settings.alpha, settings.beta)
    workload = prepare(profile)
    if not any(column.any() for column in (workload.size, workload.seconds, workload.gap)):
        raise InputError("profile: its steps take no time: no byte, no computing, no pause")
    updates = workload.resource == SERVER
    speed = np.where(updates, settings.ports.server_speed[workload.server], 1.0)
    workload = replace(workload, seconds=workload.seconds / speed)
    bandwidth = float(settings.ports.server.min())
    priority = transfer_order(
        settings.order, workload, profile.names, bandwidth=bandwidth, seed=seed
    )
    return TargetJob(profile.names, workload, priority, settings)


def _transfers_in_a_row(workload: Workload) -> int:
    is_transfer = np.isin(workload.resource, (DOWNLINK, UPLINK)).astype(np.int64)
    most = is_transfer.copy()
    for op in in_order(workload.waits, workload.first_dependent, workload.dependents):
        first, last = workload.first_dependent[op : op + 2]
        after = workload.dependents[first:last]
        most[after] = np.maximum(most[after], most[op] + is_transfer[after])
    return int(most.max())


STEPS = 5  # of each worker that are shown at most
WORKERS = 16  # that are shown at most, the first ones
# A trace has at most these spans, or one step of each worker: a viewer holds some million.
SPANS = 300_000
# Of all workers, shown or not, at most these are kept, or one step of each worker.
CHUNKS = 5_000_000

LANES = {DOWNLINK: "downlink", WORKER: "compute", UPLINK: "uplink", SERVER: "server"}


def first_steps(job: TargetJob, workers: int, seed: int) -> Timeline:
    """Return the first steps of some workers of a job (Li et al. 2020, figure 7).

    Each worker has a lane for each resource: downlink, compute, uplink and server; where there are
    several servers, "downlink 0", "downlink 1", ... A stream that is sent in two turns is two
    spans. What takes no time is left out. All workers begin at the same time.
    """
    workload = job.workload
    shown = min(workers, WORKERS)
    ops = workload.ops
    steps = max(1, min(STEPS, SPANS // (shown * ops), CHUNKS // (workers * ops)))
    system = job.with_shares(job.system(job.settings.ports.first(workers)), steps, [seed])
    drawn = job.drawn(workers, steps, seed)
    chunks = simulate(workload, system, drawn, keep_chunks=True).chunks
    chunks = chunks[(chunks["worker"] < shown) & (chunks["end"] > chunks["begin"])]
    chunks = chunks[np.lexsort((chunks["end"], chunks["begin"]))]
    lanes = [
        LANES[resource]
        if resource == WORKER or system.servers == 1
        else f"{LANES[resource]} {server}"
        for resource, server in zip(
            workload.resource.tolist(), workload.server.tolist(), strict=True
        )
    ]
    timeline = Timeline()
    timeline.extend(
        Labels(chunks["worker"], [f"worker{number}" for number in range(shown)]),
        Labels(chunks["op"], lanes),
        Labels(chunks["op"], job.names),
        chunks["begin"],
        chunks["end"],
    )
    return timeline


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
    asked = _request_times(profile)
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
    begin = _request_times(profile)[:, transfers]  # known of transfers that were not traced, too
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
    """Return the profile with transfers whose request time depends on no other op."""
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
    bound |= _computed_for(profile) > DECIDES * _request_times(profile).mean(axis=0)
    kept = ~(transfer & ~bound)[waiting]
    waits = np.bincount(waiting[kept], minlength=profile.ops)
    return replace(
        profile,
        first_dependency=np.concatenate([[0], np.cumsum(waits)]),
        dependencies=profile.dependencies[kept],
    )


def _computed_for(profile: JobProfile) -> Floats:
    took = np.nan_to_num(profile.end - profile.begin).mean(axis=0)
    first, waiting = dependents_of(profile.first_dependency, profile.dependencies)
    before = np.zeros(profile.ops)
    for op in in_order(np.diff(profile.first_dependency), first, waiting):
        after = waiting[first[op] : first[op + 1]]
        before[after] = np.maximum(before[after], before[op] + took[op])
    return before


def _request_times(profile: JobProfile) -> Floats:
    """Return when each op of each step was begun; of transfers not traced in a step, the mean."""
    traced = ~np.isnan(profile.begin)
    mean = np.where(traced, profile.begin, 0.0).sum(axis=0) / np.maximum(traced.sum(axis=0), 1)
    return np.where(traced, profile.begin, mean)


def _gaps(profile: JobProfile) -> Floats:
    """Seconds between the last op of each step and the begin of the next one."""
    last = np.nanmax(profile.end, axis=1)
    lengths = profile.step_end - profile.step_begin
    between = profile.step_begin[1:] - profile.step_end[:-1]
    near = np.sort(between[between >= 0])
    # Steps that were left out ran in as many of the pauses, the longest ones.
    with_steps = min(sum(profile.dropped.values()), int((near >= lengths.min()).sum()))
    near = near[: len(near) - with_steps]
    pause = np.median(near) if len(near) else 0.0
    return np.asarray(np.maximum(lengths - last, 0.0) + pause)


_Holders = list[frozenset[int]]

NONE: frozenset[int] = frozenset()


def shared_by(profile: JobProfile, servers: int) -> JobProfile:
    """Return the profile of the same job with its parameters on so many servers.

    A parameter is what a downlink carries. It takes with it the ops of the server that only it
    waits for, those that update it, and its gradient: the uplink that these wait for, or where the
    profile joins no uplink to a parameter, the last one of the same size that is left. What
    concerns several parameters stays on the first server.
    """
    parameters = parameters_on(profile, servers)
    labels = _labels(profile, parameters)
    holder = smallest_first(profile.size[parameters].tolist(), servers)
    place = dict(zip(parameters.tolist(), holder, strict=True))
    server = np.zeros(profile.ops, np.int64)
    for op, label in enumerate(labels):
        if len(label) == 1:
            (parameter,) = label
            server[op] = place[parameter]
    return replace(profile, server=server)


def _labels(profile: JobProfile, parameters: Ints) -> _Holders:
    """Return the parameters that each op concerns, by their downlinks; none of a worker's op."""
    elsewhere = profile.resource != WORKER
    waits = [
        [op for op in profile.waits_for(each).tolist() if elsewhere[op]] if elsewhere[each] else []
        for each in range(profile.ops)
    ]
    dependents = dependents_of(profile.first_dependency, profile.dependencies)
    order = in_order(np.diff(profile.first_dependency), *dependents)
    labels: _Holders = [NONE] * profile.ops
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
    profile: JobProfile, parameters: Ints, uplinks: Sequence[int], labels: _Holders
) -> None:
    """Give gradients that nothing joins to a parameter the last one of their size that is left."""
    left: dict[int, list[int]] = {}
    for parameter in parameters.tolist():
        left.setdefault(int(profile.size[parameter]), []).append(parameter)
    for op in uplinks:
        if same := left.get(int(profile.size[op])):
            labels[op] = frozenset([same.pop()])
