"""The key figures of a job on a cluster, by the names that `summary.json` uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paracosm.cluster.description import describe_cluster
from paracosm.prediction.jobs.bottleneck import job_bottleneck, misfits
from paracosm.prediction.jobs.prediction import AlikeRanks, JobPrediction
from paracosm.prediction.prediction import Prediction
from paracosm.prediction.summary import interval, of_graph, of_ops, per_step
from paracosm.results import JobSummary, ThroughputRow
from paracosm.results.summaries import OneReplica

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
