"""Run a hybrid simulation: real gradients in virtual time."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from paracosm.cluster import Cluster
from paracosm.cluster.description import describe_cluster, describe_link, link_in_words
from paracosm.engine import Recording, Simulator
from paracosm.results import ThroughputRow, TrainingSummary
from paracosm.simulation.schedule import BusyTimes, Rule, generate_schedule
from paracosm.timeline import Timeline
from paracosm.timing import Distribution, Recorded, Scaled, Slowdown
from paracosm.training.config import MEASURED, TrainConfig
from paracosm.training.job import Diverged, Job, Metrics, MetricSink, Progress
from paracosm.training.numerics import prepare_numerics
from paracosm.training.roles import ParameterServer, TrainingWorker

_SPANS_PER_GRADIENT = 6
_MOST_SPANS = 1_000_000


@dataclass(frozen=True)
class TrainingResult:
    """What a run came to."""

    summary: TrainingSummary  # the key figures by the names that `summary.json` uses
    recording: Recording | None  # the durations that were measured; None when they were modelled
    timeline: Timeline | None  # every span of the run; None when it was not recorded
    metrics: MetricSink  # took the measurements
    # The flat vector that the run ended with (of length zero in timing-only mode)
    parameters: Any = field(repr=False)


def train(
    config: TrainConfig,  # what to train, how, and on which cluster
    seed: int = 0,  # decides everything that is random
    metrics: MetricSink | None = None,  # takes the measurements; by default memory does
    progress: Progress | None = None,  # called after every update
    log: bool = False,  # print a line for every event of the simulation
) -> TrainingResult:
    """Train on a simulated cluster.

    Gradients are really computed, from the parameters that each worker would have read; how long
    they take and when they arrive is virtual time. An interrupt (Ctrl-C) ends the run with what it
    has, as does a loss that explodes, unless `config.keep_going`.

    With changes (`config.what_if`) the result is that of the changed run, beside which the summary
    has that of the unchanged one, "unchanged".

    Raises:
        InputError: if the configuration cannot be used.
        MissingExtraError: if PyTorch or scikit-learn is needed and not installed.
    """
    cluster = config.resolve_cluster()
    config.check(cluster)
    metrics = Metrics() if metrics is None else metrics
    result = _train(config, seed, config.changed(cluster), metrics, progress, log)
    if config.what_if:
        changed = replace(result.summary, what_if=[str(each) for each in config.what_if])
        if changed.status != "interrupted":
            # With a timeline, if the changed run has one: engine and generated schedule differ by
            # rounding, which can decide who comes first at a full port.
            before = _train(config, seed, cluster, Metrics(), None, False).summary
            status = before.status if before.status == "interrupted" else changed.status
            changed = replace(changed, unchanged=before, status=status)
        result = replace(result, summary=changed)
    return result


def _train(
    config: TrainConfig,
    seed: int,
    cluster: Cluster,
    metrics: MetricSink,
    progress: Progress | None,
    log: bool,
) -> TrainingResult:
    servers = len(cluster.servers) if config.resolve_topology() == "server" else 1
    numerics = prepare_numerics(config, seed, len(cluster.workers), servers)
    timeline = Timeline() if _wants_timeline(config, cluster) else None
    sim = Simulator(log=log, network=cluster, timeline=timeline, recording=config.recording)
    job = Job(config, seed, cluster, numerics, sim, metrics, progress)
    # Nobody watches single events: where the rule is value-free, they need not be simulated.
    rule = None if log or timeline is not None else schedule_rule(config, cluster)
    try:
        if rule is None:
            status, end, busy = _simulate(sim, job)
        else:
            status, end, busy = _play(rule, cluster, job)
        wall = job.wall_time
        for name, times in busy.items():
            for resource, seconds in times.items():
                share = seconds / end if end > 0 else 0.0
                metrics.metric(end, wall, name, f"utilisation.{resource}", share, job.updates)
        summary = _summary(config, seed, cluster, job, end, status)
        recording = sim.recording if config.compute == MEASURED else None
        return TrainingResult(summary, recording, timeline, metrics, job.parameters())
    finally:
        numerics.close()


def _simulate(sim: Simulator, job: Job) -> tuple[str, float, BusyTimes]:
    """Run the job on the engine; return status, virtual time and busy times."""
    if job.topology == "server":
        for index, name in enumerate(job.servers):
            store = job.new_store(job.initial[job.numerics.parts[index]])
            sim.add_worker(name, ParameterServer, job, index, store)
    shared = job.new_store(job.initial) if job.topology in ("all-reduce", "local") else None
    for index, name in enumerate(job.workers):
        own = job.new_store(job.initial) if job.topology == "peers" else shared
        worker = sim.add_worker(name, TrainingWorker, job, index, own)
        if job.topology == "peers":
            sim.spawn(job.config.algorithm.listen(worker), name=f"{name}.listen")
    status = _run(sim, job)
    busy = {
        name: {
            "compute": worker.compute_time,
            "send": worker.ports.busy_time("send") + job.all_reduce_busy,
            "receive": worker.ports.busy_time("receive") + job.all_reduce_busy,
        }
        for name, worker in sim.workers.items()
    }
    return status, sim.now, busy


def schedule_rule(config: TrainConfig, cluster: Cluster) -> Rule | None:
    """Return the rule by which a run's schedule can be generated; None where the engine must run.

    That is so where nothing but the schedule is asked for and it depends on no value: workers and
    servers do what a rule can say, and take times that are drawn without end.
    """
    compute = config.compute_distribution()
    if not config.timing_only or compute is None or _can_end(compute):
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


def _play(rule: Rule, cluster: Cluster, job: Job) -> tuple[str, float, BusyTimes]:
    """Generate the job's schedule without the engine; return status, virtual time, busy times."""
    sources = map(job.compute_times, range(len(cluster.workers)))
    times = [source for source in sources if source is not None]  # none is measured
    schedule = generate_schedule(cluster, rule, job.numerics.sizes, job.last_update, times)
    job.adopt(schedule)
    return "done", schedule.end / 1e12, schedule.busy


def _wants_timeline(config: TrainConfig, cluster: Cluster) -> bool:
    if config.timeline is not None:
        return config.timeline
    workers, compute = len(cluster.workers), config.compute_distribution()
    gradients: float = config.most_updates * config.algorithm.gradients_per_update(workers)
    if config.until is not None and compute is not None and compute.mean() > 0:
        gradients = min(gradients, workers * config.until / compute.mean())
    return gradients * _SPANS_PER_GRADIENT <= _MOST_SPANS


def _run(sim: Simulator, job: Job) -> str:
    """Run to the end and return the run's status."""
    if job.numerics.real:
        job.evaluate()
    status = "done"
    try:
        with _ended_by_interrupt(sim) as interrupted:
            sim.run(until=job.config.until)
        if interrupted:
            status = "interrupted"
    except KeyboardInterrupt:
        status = "interrupted"
    except Diverged:
        status = "diverged"
    if job.numerics.real:
        job.evaluate()
    return "diverged" if job.divergence is not None else status


@contextmanager
def _ended_by_interrupt(sim: Simulator) -> Iterator[list[bool]]:
    """Let Ctrl-C end the run between two events; a second one interrupts at once.

    Yields a list that is empty until then.
    """
    interrupted: list[bool] = []

    def interrupt(number: int, frame: object) -> None:
        if interrupted:
            raise KeyboardInterrupt
        interrupted.append(True)
        sim.stop()

    usual = signal.default_int_handler
    # Where somebody else handles the signal, or ignores it, or in a thread, it is not ours.
    ours = signal.getsignal(signal.SIGINT) is usual and current_thread() is main_thread()
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        if ours:
            signal.signal(signal.SIGINT, usual)


def _summary(
    config: TrainConfig, seed: int, cluster: Cluster, job: Job, end: float, status: str
) -> TrainingSummary:
    rate = job.examples / job.end if job.end else None
    row = ThroughputRow(
        workers=len(cluster.workers),
        steps_per_second=job.contributions / job.end if job.end else None,
        examples_per_second=rate,
    )
    return TrainingSummary(
        status=status,
        algorithm=str(config.algorithm),
        workers=len(cluster.workers),
        servers=len(job.servers) if job.topology == "server" else 0,
        topology=job.topology,
        cluster=describe_cluster(cluster),
        model=config.model,
        data=config.data,
        seed=seed,
        updates=job.updates,
        examples=job.examples,
        dropped=job.dropped,
        final_loss=job.final.get("loss"),
        final_test_loss=job.final.get("test_loss"),
        final_accuracy=job.final.get("accuracy"),
        mean_staleness=job.staleness_total / job.contributions if job.contributions else None,
        virtual_time=end,
        examples_per_second=rate,
        throughput=[row],
        wall_time=job.wall_time,
        lookahead=job.numerics.describe(),
        durations=_durations(config, cluster, job),
        divergence=None if job.divergence is None else asdict(job.divergence),
    )


def _durations(config: TrainConfig, cluster: Cluster, job: Job) -> dict[str, str]:
    """Say of every kind of time where it comes from."""
    compute = config.compute_distribution()
    if compute is not None:
        sources = {"compute": _modelled(compute)}
    elif config.recording is not None:
        sources = {"compute": f"measured before: {config.recording}"}
    else:
        sources = {"compute": "measured: each gradient on this machine"}
    if job.topology == "server":
        sources["update"] = _modelled(config.update_time)
    if job.topology != "local":
        file = f"cluster file {config.cluster}, " if isinstance(config.cluster, Path) else ""
        link = link_in_words(describe_link(cluster.topology.link))
        sources["network"] = f"modelled: {file}links of {link}"
    sources["gradients"] = "computed" if job.numerics.real else "none (timing only)"
    return sources


def _modelled(distribution: Distribution) -> str:
    text = str(distribution)
    # A distribution made of samples says all of them; the study file keeps them.
    return f"modelled: {text if len(text) <= 80 else f'{text[:60]}... ({len(text)} characters)'}"
