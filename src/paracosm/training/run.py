"""Run a hybrid simulation: real gradients in virtual time."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from paracosm.backends import HERE, Backend
from paracosm.cluster import Cluster
from paracosm.cluster.description import describe_link, link_in_words
from paracosm.engine import Simulator
from paracosm.errors import InputError
from paracosm.models.shards import ALL
from paracosm.results.kind import with_unchanged
from paracosm.results.metrics import MetricSink
from paracosm.results.view import ASSUMED
from paracosm.simulation.rules import Rule
from paracosm.simulation.schedule import Schedule
from paracosm.timeline import Timeline
from paracosm.timing.distribution import Distribution, Scaled, Slowdown
from paracosm.timing.families import Recorded
from paracosm.training.config import MEASURED, ScheduleTrainConfig, TrainConfig
from paracosm.training.failures.failing_job import FailingJob
from paracosm.training.job import Job
from paracosm.training.numerics.prepare import prepare_numerics
from paracosm.training.numerics.scheduled import train_over_file
from paracosm.training.numerics.store import Numerics
from paracosm.training.record import Metrics, Progress, TrainingResult, play_to_end, summarise

_SPANS_PER_GRADIENT = 6
_MOST_SPANS, _MOST_SPANS_OF_TIMING = 1_000_000, 100_000
"""Spans up to which runs have a timeline by default, and those that need no engine otherwise."""


def train(
    config: TrainConfig | ScheduleTrainConfig,  # what to train and how, and when
    seed: int = 0,  # of all random streams
    metrics: MetricSink | None = None,  # records the metrics; by default in memory
    progress: Progress | None = None,  # called after every update
    log: bool = False,  # print a line for every event of the simulation
    backend: Backend = HERE,  # a cluster computes the gradients that wait together
) -> TrainingResult:
    """Train on a simulated cluster, or over the schedule in a file.

    Gradients are really computed, from the parameters that each worker would have read; how long
    they take and when they arrive is virtual time. An interrupt (Ctrl-C) ends the run with the
    results so far, as does divergence, unless `config.keep_going`. With changes (`config.what_if`)
    the result is that of the changed run, and the summary's "unchanged" that of the unchanged one.

    Raises:
        InputError: if the configuration cannot be used.
    """
    if isinstance(config, ScheduleTrainConfig):
        if log:
            raise InputError(
                "--log has no effect with a schedule, which simulates no events: leave it out"
            )
        config.check()
        return train_over_file(config, seed, metrics, progress, backend)
    cluster = config.resolve_cluster()
    config.check(cluster)
    metrics = Metrics() if metrics is None else metrics
    result = _train(config, seed, config.changed(cluster), metrics, progress, log, backend)
    summary = with_unchanged(
        result.summary,
        config.what_if,
        # With a timeline, if the changed run has one: engine and generated schedule differ by
        # rounding, which can decide who comes first at a full port.
        lambda: _train(config, seed, cluster, Metrics(), None, False, backend).summary,
    )
    return replace(result, summary=summary)


def _train(
    config: TrainConfig,
    seed: int,
    cluster: Cluster,
    metrics: MetricSink,
    progress: Progress | None,
    log: bool,
    backend: Backend,
) -> TrainingResult:
    servers = len(cluster.servers) if config.resolve_topology() == "server" else 1
    clients = config.clients or len(cluster.workers)
    active = len(cluster.workers)
    numerics = prepare_numerics(config, seed, clients, servers, active=active, backend=backend)
    rule = schedule_rule(config, cluster)
    wants_timeline = _wants_timeline(config, cluster, is_generated=rule is not None)
    timeline = Timeline() if wants_timeline else None
    sim = Simulator(log=log, network=cluster, timeline=timeline, recording=config.recording)
    run = (config, seed, cluster, numerics, sim, metrics, progress)
    failures = config.failures_on(cluster)
    failing = None if failures is None else FailingJob(failures, *run)
    job = Job(*run) if failing is None else failing.job
    player = job if failing is None else failing
    # Without an observer, a value-free rule needs no simulation of single events.
    observed = log or timeline is not None
    try:
        schedule = None if rule is None or observed else _play(rule, cluster, job)
        if schedule is None:
            status = play_to_end(job.record, lambda interrupted: player.play(), player.stop)
            end, busy = player.now, player.busy_times()
        else:
            status, end, busy = "done", schedule.end / 1e12, schedule.busy
        computed = {name: times["compute"] for name, times in busy.items()}
        wall, updates = job.record.wall_time, job.record.updates
        for name, times in busy.items():
            for resource, seconds in times.items():
                share = seconds / end if end > 0 else 0.0
                metrics.metric(end, wall, name, f"utilisation.{resource}", share, updates)
        summary = summarise(
            config,
            seed,
            cluster,
            job.record,
            numerics,
            status=status,
            end=end,
            servers=len(job.state.servers) if job.state.topology == "server" else 0,
            dropped=job.state.dropped,
            durations=_durations(config, cluster, numerics),
        )
        off_times = {} if failing is None else failing.off_times
        summary = replace(summary, energy=cluster.energy(end, computed, off_times))
        if job.state.clients is not None:
            for client, speed in job.state.clients.speeds():
                metrics.metric(end, wall, "client", "client_speed", speed, client)
            for client, turns in job.state.clients.turns():
                metrics.metric(end, wall, "client", "client_participations", turns, client)
            summary = replace(summary, clients=job.state.clients.summary())
        # Sizes of messages that take no time are not asked for in timing-only mode.
        is_sized = any(numerics.sizes) or job.state.topology == "local"
        summary = replace(
            summary,
            bytes_sent=job.state.bytes_sent if is_sized else None,
            compression=job.compression_summary(),
        )
        if failing is not None:
            summary = replace(
                summary,
                failures=failing.failure_summary(end),
                durations={**summary.durations, "failures": f"assumed: {failures}"},
            )
        recording = sim.recording if config.compute == MEASURED else None
        average = None if job.record.average is None else job.record.average.value
        return TrainingResult(
            summary, recording, timeline, metrics, job.parameters(), schedule, average
        )
    finally:
        numerics.close()


def schedule_rule(config: TrainConfig, cluster: Cluster) -> Rule | None:
    """Return the rule by which a run's schedule can be generated; None where the engine must run.

    That is so where nothing but the schedule is asked for and it depends on no value: workers and
    servers do what a rule can say, and take times that are drawn without end.
    """
    compute = config.compute_distribution()
    if not config.timing_only or compute is None or _can_end(compute):
        return None
    if config.clients or config.fails:
        return None
    if config.compress is not None and config.compress.changes:
        return None
    if config.until is not None or config.resolve_topology() != "server":
        return None
    if config.update_time.mean() > 0:
        return None
    return config.algorithm.rule(len(cluster.workers))


def _can_end(distribution: Distribution) -> bool:
    """Whether draws ahead of time could exhaust it."""
    while isinstance(distribution, (Scaled, Slowdown)):
        distribution = distribution.base
    return isinstance(distribution, Recorded)


def _play(rule: Rule, cluster: Cluster, job: Job) -> Schedule:
    from paracosm.simulation.scheduling import generate_schedule  # by Numba

    state = job.state
    sources = map(state.compute_times, range(len(cluster.workers)))
    times = [source for source in sources if source is not None]  # none is measured
    answer, push = state.numerics.sizes, state.push_sizes
    schedule = generate_schedule(cluster, rule, answer, state.last_update, times, push)
    job.record.adopt(schedule, state.workers, state.last_update)
    state.dropped = schedule.dropped
    answers, pushes = (
        np.bincount(rows["tensor"], minlength=len(answer))
        for rows in (schedule.reads, schedule.updates)
    )
    # What is dropped was pushed to the one server that there is then.
    state.bytes_sent = float(answers @ answer + pushes @ push) + schedule.dropped * push[0]
    return schedule


def _wants_timeline(config: TrainConfig, cluster: Cluster, *, is_generated: bool) -> bool:
    """Whether a run records spans: as it says, or else where they are few. To generate a schedule
    takes a fraction of the time of events, so that fewer are few beside it."""
    if config.timeline is not None:
        return config.timeline
    workers, compute = len(cluster.workers), config.compute_distribution()
    gradients: float = config.most_updates * config.algorithm.gradients_per_update(workers)
    if config.until_time is not None and compute is not None and compute.mean() > 0:
        gradients = min(gradients, workers * config.until_time / compute.mean())
    most = _MOST_SPANS_OF_TIMING if is_generated else _MOST_SPANS
    return gradients * _SPANS_PER_GRADIENT <= most


def _durations(config: TrainConfig, cluster: Cluster, numerics: Numerics) -> dict[str, str]:
    compute = config.compute_distribution()
    if compute is not None:
        sources = {"compute": _modelled(compute)}
        if "compute" not in config.model_fields_set:
            sources = {"compute": f"{ASSUMED}{compute} a gradient"}
        if config.batch_of:
            sources["compute"] += f" for {config.batch} examples, in proportion to the batch"
        elif config.batch == ALL:
            sources["compute"] += " for a shard of mean size, in proportion to the examples"
        elif numerics.has_short_minibatches or config.algorithm.counts_examples:
            sources["compute"] += f" for {config.batch} examples, in proportion for fewer"
    elif config.recording is not None:
        sources = {"compute": f"measured before: {config.recording}"}
    else:
        sources = {"compute": "measured: each gradient on this machine"}
    if config.clients is not None:
        sources["population"] = config.clients_in_words(len(cluster.workers))
    topology = config.resolve_topology()
    if topology == "server":
        sources["update"] = _modelled(config.update_time)
    if topology != "local":
        file = f"cluster file {config.cluster}, " if isinstance(config.cluster, Path) else ""
        link = link_in_words(describe_link(cluster.topology.link))
        sources["network"] = f"modelled: {file}links of {link}"
        if config.has_ideal_links:
            sources["network"] = f"{ASSUMED}links that take no time"
        if config.compress is not None:
            timeless = ", which takes no time on these links" if config.costless_messages() else ""
            sources["messages"] = f"compressed by {config.compress}{timeless}"
    return sources


def _modelled(distribution: Distribution) -> str:
    text = str(distribution)
    # A distribution made of samples says all of them; the study file keeps them.
    return f"modelled: {text if len(text) <= 80 else f'{text[:60]}... ({len(text)} characters)'}"
