"""The key figures of a job on a cluster, by the names that `summary.json` uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paracosm.cluster.description import describe_cluster
from paracosm.prediction.jobs.prediction import AlikeRanks, JobPrediction
from paracosm.prediction.predict import LAUNCHING, NOTHING, WAITS, Prediction, longest_op
from paracosm.prediction.summary import interval, of_graph, of_ops, per_step
from paracosm.results import JobSummary, ThroughputRow
from paracosm.results.summaries import OneReplica
from paracosm.timeline import largest_share
from paracosm.units import format_duration, format_size

__all__ = ["OF_JOB", "summarise_jobs"]


OF_JOB = (
    *("workers", "strategy", "servers", "cluster", "iteration_time", "interval"),
    *("examples_per_second", "ideal", "efficiency", "peak_memory", "fits", "misfits"),
    *("bottleneck", "throughput"),
)
"""What of the summary a change of the job or its cluster can alter."""


def summarise_jobs(
    jobs: Sequence[JobPrediction],
    alone: Prediction,
    split: int,
    facts: Mapping[str, Any],
    *,
    devices: Mapping[str, str],
    measured: float | None,
    status: str,
) -> JobSummary:
    """Return the summary of predictions of one job for several numbers of workers.

    Args:
        jobs: one for each number; the last one is what the summary is about.
        alone: the captured graph on one device, without communication.
        split: ranks that the graph is split between; it is that of one of them.
        facts: where the durations come from, as `TimedReplica.facts` says.
        devices: how the speed of each device is known.
        measured: seconds of an iteration of one replica, where it was measured.
        status: of the run.
    """
    rows, last = [_row(job, alone) for job in jobs], jobs[-1]
    return JobSummary(
        status=status,
        **of_graph(alone),
        **facts,
        workers=last.workers,
        strategy=str(last.strategy),
        servers=len(last.cluster.servers) if last.strategy.servers else 0,
        cluster=describe_cluster(last.cluster),
        iteration_time=last.iteration_time,
        interval=interval(last.interval),
        examples=last.examples,
        examples_per_second=last.throughput,
        ideal=last.ideal,
        efficiency=last.efficiency,
        peak_memory=last.peak_memory,
        fits=rows[-1].fits,
        misfits=rows[-1].misfits or [],
        bottleneck=rows[-1].bottleneck or "",
        throughput=rows,
        breakdown={
            **of_ops(alone),
            "mean": last.parts,
            "ranks": [_alike(each) for each in last.alike],
        },
        replica=OneReplica(
            iteration_time=alone.iteration_time,
            examples_per_second=None if split > 1 else alone.examples_per_second,
            peak_memory=alone.peak_memory,
            split=split,
            measured=measured,
        ),
        ranks=last.schedule.job.ranks,
        tasks=last.schedule.job.tasks,
        classes=len(last.schedule.representative),
        provenance=dict(last.schedule.job.provenance),
        devices=devices,
        measured=None,
    )


def _row(job: JobPrediction, alone: Prediction) -> ThroughputRow:
    too_large = misfits(job)
    known = job.peak_memory is not None and all(
        job.cluster.node(name).memory is not None for name in job.schedule.job.labels
    )
    return ThroughputRow(
        workers=job.workers,
        steps_per_second=per_step(job.throughput, alone.examples),
        examples_per_second=job.throughput,
        ideal=per_step(job.ideal, alone.examples),
        efficiency=job.efficiency,
        bottleneck=job_bottleneck(job, alone.by_op),
        iteration_time=job.iteration_time,
        interval=interval(job.interval),
        breakdown=job.parts,
        peak_memory=job.peak_memory,
        fits=False if too_large else True if known else None,
        misfits=too_large,
    )


def _alike(alike: AlikeRanks) -> dict[str, Any]:
    return {
        "first": alike.label,
        "ranks": len(alike.ranks),
        "is_worker": alike.is_worker,
        **alike.parts,
        "peak_memory": alike.peak_memory,
    }


def job_bottleneck(job: JobPrediction, ops: Mapping[str, float]) -> str:
    """Return what decides the iteration's time, and whether the job fits into memory at all.

    `ops` are seconds by op name of one replica, the largest first.
    """
    sentences = [_time(job, ops), *misfits(job)[:1]]
    return " ".join(sentences)


def misfits(job: JobPrediction) -> list[str]:
    """Return a sentence for each kind of ranks whose node has too little memory."""
    found = []
    labels = job.schedule.job.labels
    for alike in job.alike:
        names = [labels[rank] for rank in alike.ranks]
        known = [
            (memory, name)
            for name in names
            if (memory := job.cluster.node(name).memory) is not None
        ]
        if not known or alike.peak_memory is None:
            continue
        least, where = min(known, key=lambda each: each[0])
        if alike.peak_memory > least:
            found.append(
                f"Does not fit: needs {format_size(alike.peak_memory)} of {format_size(least)} on "
                f"{where}."
            )
    return found


def _time(job: JobPrediction, ops: Mapping[str, float]) -> str:
    parts, whole = job.parts, job.iteration_time
    if not whole > 0 or not ops:
        return NOTHING
    lost = {part: time for part, time in parts.items() if part not in ("compute", "idle")}
    worst, share = largest_share(lost, whole)
    if share <= WAITS:
        computing = f"{parts['compute'] / whole:.0%} of the iteration"
        return f"Computing: {computing}; {longest_op(ops)}."
    if worst == "bubble":
        return f"Pipeline bubble: workers are idle {share:.0%} of the iteration; {_bubble(job)}."
    sentence = _SENTENCES[worst].format(share=share, whom=_whom(job))
    by_servers = worst in ("exposed_communication", "waiting") and job.strategy.servers
    return f"{sentence} {_servers(job)}" if by_servers else sentence


def _slowest(job: JobPrediction) -> AlikeRanks:
    workers = [each for each in job.alike if each.is_worker]
    return max(workers, key=lambda each: (each.parts["compute"], -each.ranks[0]))


def _bubble(job: JobPrediction) -> str:
    """Return why a pipeline is idle: its stages differ, or it fills and drains."""
    slowest, mean = _slowest(job), job.parts["compute"]
    more = slowest.parts["compute"] - mean
    if more > job.parts["bubble"] / 2:
        return (
            f"its stages are unequal: {slowest.label} computes "
            f"{format_duration(slowest.parts['compute'])}, workers in the mean "
            f"{format_duration(mean)}"
        )
    strategy = job.strategy
    return (
        f"it has {strategy.pipeline} stages and {strategy.microbatches} micro-batches, more of "
        "which make that smaller"
    )


def _servers(job: JobPrediction) -> str:
    """Return what the busiest server does: it exchanges messages, or it updates parameters."""
    servers = [each for each in job.alike if not each.is_worker]
    does = {"exposed_communication": "nothing but send and receive", "compute": "updates"}
    busiest, part = max(
        ((each, part) for each in servers for part in does),
        key=lambda pair: pair[0].parts[pair[1]],
    )
    share = busiest.parts[part] / job.iteration_time
    return f"{busiest.label} does {does[part]} for {share:.0%} of it."


def _whom(job: JobPrediction) -> str:
    if job.strategy.servers:
        return "the servers"
    workers = [each for each in job.alike if each.is_worker]
    return _slowest(job).label if len(workers) > 1 else "each other"


_SENTENCES = {
    "copies": "Copies: the device waits {share:.0%} of the iteration for them.",
    "exposed_communication": (
        "Communication: workers compute nothing for {share:.0%} of the iteration while data is on "
        "the way."
    ),
    "waiting": "Waiting: workers wait {share:.0%} of the iteration for {whom}.",
    "launch": f"{LAUNCHING}.",
}
