"""What the iteration of a job waits for, in a sentence or two."""

from __future__ import annotations

from collections.abc import Mapping

from paracosm.prediction.breakdown import LAUNCHING, NOTHING, WAITS, longest_op
from paracosm.prediction.jobs.prediction import AlikeRanks, JobPrediction
from paracosm.timeline import largest_share
from paracosm.units import format_duration, format_size


def job_bottleneck(job: JobPrediction, ops: Mapping[str, float]) -> str:
    """Return what decides the iteration's time, and whether the job fits into memory at all.

    Args:
        job: of which all is known.
        ops: seconds by op name of one replica, the largest first.
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
    """Return the workers that compute longest; of several, the first."""
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
