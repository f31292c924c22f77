"""The key figures of a job on a cluster, by the names that `summary.json` uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paracosm.cluster.description import describe_cluster
from paracosm.prediction.jobs.bottleneck import job_bottleneck, misfits
from paracosm.prediction.jobs.prediction import AlikeRanks, JobPrediction
from paracosm.prediction.prediction import Prediction
from paracosm.prediction.summary import summarise

__all__ = ["OF_JOB", "summarise_jobs"]

ALONE = ("coverage", "estimated_ops", "baselines", "largest", "nodes", "distinct_ops", "untimed")
"""What is said of the graph of one replica, whatever the cluster."""


def summarise_jobs(
    jobs: Sequence[JobPrediction], alone: Prediction, split: int = 1
) -> dict[str, Any]:
    """Return the summary of predictions of one job for several numbers of workers.

    Args:
        jobs: one for each number; the last one is what the summary is about.
        alone: the captured graph on one device, without communication.
        split: ranks that the graph is split between; it is that of one of them.
    """
    of_graph, last = summarise(alone, None), jobs[-1]
    breakdown = {part: of_graph["breakdown"][part] for part in ("phase", "op", "place")}
    rows = [_row(job, alone) for job in jobs]
    return {
        "workers": last.workers,
        "strategy": str(last.strategy),
        "servers": len(last.cluster.servers) if last.strategy.servers else 0,
        "cluster": describe_cluster(last.cluster),
        **{key: rows[-1][key] for key in _SAID},
        "examples": last.examples,
        "throughput": {
            str(job.workers): job.throughput for job in jobs if job.throughput is not None
        },
        "breakdown": breakdown
        | {"mean": last.parts, "ranks": [_alike(each) for each in last.alike]},
        "resident": of_graph["resident"],
        "replica": {
            "iteration_time": alone.iteration_time,
            "examples_per_second": None if split > 1 else alone.examples_per_second,
            "peak_memory": alone.peak_memory,
            "split": split,
        },
        "scaling": rows,
        "ranks": last.schedule.job.ranks,
        "tasks": last.schedule.job.tasks,
        "classes": len(last.schedule.representative),
        "provenance": dict(last.schedule.job.provenance),
        **{key: of_graph[key] for key in ALONE},
        "measured": None,
    }


_SAID = (
    *("iteration_time", "interval", "examples_per_second", "ideal", "efficiency", "peak_memory"),
    *("fits", "misfits", "bottleneck"),
)

OF_JOB = (*("workers", "strategy", "servers", "cluster", *_SAID), *("throughput", "scaling"))
"""What of the summary a change of the job or its cluster can alter."""


def _row(job: JobPrediction, alone: Prediction) -> dict[str, Any]:
    too_large = misfits(job)
    known = job.peak_memory is not None and all(
        job.cluster.node(name).memory is not None for name in job.schedule.job.labels
    )
    return {
        "workers": job.workers,
        "iteration_time": job.iteration_time,
        "interval": dict(zip(("low", "high"), job.interval, strict=True)),
        "examples_per_second": job.throughput,
        "ideal": job.ideal,
        "efficiency": job.efficiency,
        "breakdown": job.parts,
        "peak_memory": job.peak_memory,
        "fits": False if too_large else True if known else None,
        "misfits": too_large,
        "bottleneck": job_bottleneck(job, alone.by_op),
    }


def _alike(alike: AlikeRanks) -> dict[str, Any]:
    return {
        "first": alike.label,
        "ranks": len(alike.ranks),
        "is_worker": alike.is_worker,
        **alike.parts,
        "peak_memory": alike.peak_memory,
    }
