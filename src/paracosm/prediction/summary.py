"""The key figures of a prediction, by the names that `summary.json` uses."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from paracosm.cluster.description import describe_cluster
from paracosm.graphs.graph import PHASES
from paracosm.graphs.summary import step_of
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.iteration import LAUNCHING, NOTHING, WAITS, Prediction, longest_op
from paracosm.prediction.job import EqualRanks, JobPrediction
from paracosm.prediction.measured_runs import measured_like
from paracosm.price import WORKER_HOURS
from paracosm.profiling.durations import SOURCES
from paracosm.profiling.samples import IterationTiming
from paracosm.results import Interval, IterationSummary, JobSummary, ThroughputRow
from paracosm.results.summaries import DeviceMemory, Measured, OneReplica
from paracosm.simulation.breakdown import ON_HOST
from paracosm.timeline.analysis import largest_share
from paracosm.units import format_duration, format_size

S = TypeVar("S", IterationSummary, JobSummary)

PLACES = 30  # of the model that a summary lists


def summarise(
    prediction: Prediction,
    measured: IterationTiming | None,
    probe: float,
    facts: Mapping[str, Any],
    memory: DeviceMemory | None = None,
) -> IterationSummary:
    """Summarise a prediction; `probe` is its seconds next to the ops' timings, 0 without one."""
    return IterationSummary(
        status="done",
        **of_graph(prediction),
        **facts,
        iteration_time=prediction.iteration_time,
        interval=interval(prediction.interval),
        examples=prediction.examples,
        examples_per_second=prediction.examples_per_second,
        throughput=[
            ThroughputRow(
                workers=1,
                steps_per_second=per_step(prediction.examples_per_second, prediction.examples),
                examples_per_second=prediction.examples_per_second,
                bottleneck=prediction.bottleneck,
            )
        ],
        breakdown={**of_ops(prediction), "lane": dict(prediction.lanes)},
        phases=_phases(prediction),
        peak_memory=prediction.peak_memory,
        bottleneck=" ".join(
            filter(None, [prediction.bottleneck, memory.sentence if memory else ""])
        ),
        memory=memory,
        measured=None if measured is None else _compared(prediction, measured, probe),
    )


def of_graph(prediction: Prediction) -> dict[str, Any]:
    return {
        **step_of(prediction.graph),
        "batch": prediction.examples,
        "resident": dict(prediction.graph.resident),
        "coverage": dict(prediction.coverage),
        "estimated_ops": _estimated(prediction),
        "baselines": dict(prediction.baselines),
        "largest": [asdict(contribution) for contribution in prediction.largest],
        "nodes": len(prediction.graph),
        "distinct_ops": len(prediction.graph.ops),
        "untimed": list(prediction.untimed),
    }


def of_ops(prediction: Prediction) -> dict[str, dict[str, float]]:
    return {
        "phase": dict(prediction.by_phase),
        "op": dict(prediction.by_op),
        "place": dict(islice(prediction.by_place.items(), PLACES)),
    }


def interval(bounds: tuple[float, float]) -> Interval:
    return Interval(low=bounds[0], high=bounds[1])


def per_step(examples: float | None, batch: int | None) -> float | None:
    return None if examples is None or not batch else examples / batch


def _estimated(prediction: Prediction) -> int:
    codes = [
        SOURCES.index(source) for source in SOURCES if source not in ("exact", "recorded", "none")
    ]
    return len(np.unique(prediction.graph.op[np.isin(prediction.source, codes)]))


def _phases(prediction: Prediction) -> dict[str, dict[str, float]]:
    phase, schedule = prediction.graph.phase, prediction.schedule
    phases = {}
    for code in np.unique(phase).tolist():
        chosen = phase == code
        phases[PHASES[code]] = {
            "begin": float(schedule.begin[chosen].min()),
            "end": float(schedule.end[chosen].max()),
        }
    return phases


def _compared(prediction: Prediction, measured: IterationTiming, probe: float) -> Measured:
    time = measured.time
    probed = probe > 0 and measured.probe > 0
    slower = measured.probe / probe - 1 if probed else None
    then = prediction.iteration_time * (1 + (slower or 0.0))
    return Measured(
        iteration_time=measured.duration,
        p10=time.p10,
        p90=time.p90,
        samples=time.count,
        error=prediction.iteration_time / measured.duration - 1,
        slower=slower,
        error_at_its_speed=then / measured.duration - 1 if probed else None,
        baseline_errors={
            name: seconds / measured.duration - 1 for name, seconds in prediction.baselines.items()
        },
    )


OF_JOB = (
    *("workers", "strategy", "servers", "cluster", "iteration_time", "interval"),
    *("examples_per_second", "ideal", "efficiency", "peak_memory", "fits", "misfits"),
    *("bottleneck", "throughput"),
)
"""Fields of the summary that a change of the job or its cluster can affect."""


def summarise_jobs(
    predictions: Sequence[tuple[JobPrediction, float | None]],
    alone: Prediction,
    split: int,
    facts: Mapping[str, Any],
    *,
    devices: Mapping[str, str],
    measured: float | None,
    status: str,
) -> JobSummary:
    """`alone` is the captured graph on one device without communication, as one of `split` ranks;
    `measured` are seconds of an iteration of one replica. Beside each job stands by how much it is
    faster with faster links, where that is known.
    """
    rows, last = [_row(job, alone, gain) for job, gain in predictions], predictions[-1][0]
    return JobSummary(
        status=status,
        **of_graph(alone),
        **facts,
        workers=last.workers,
        strategy=str(last.strategy),
        strategy_defaults=last.strategy.by_default(),
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
        memory=last.memory,
        throughput=rows,
        breakdown={
            **of_ops(alone),
            "mean": last.parts,
            "ranks": [_row_of(equal_rank) for equal_rank in last.equal_ranks],
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


def _row(job: JobPrediction, alone: Prediction, gain: float | None) -> ThroughputRow:
    too_large, memory = misfits(job), job.memory
    fits = not too_large if memory is None else memory.verdict != "does not fit"
    known = job.peak_memory is not None and all(
        job.cluster.node(name).memory is not None for name in job.schedule.job.labels
    )
    labels = job.schedule.job.labels
    computed = {
        labels[rank]: equal_rank.parts["compute"]
        for equal_rank in job.equal_ranks
        for rank in equal_rank.ranks
    }
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
        fits=fits if known or not fits else None,
        misfits=too_large,
        if_twice_as_fast=None if gain is None else {"links": gain},
        energy=job.cluster.energy(job.iteration_time, computed),
    )


def _row_of(ranks: EqualRanks) -> dict[str, Any]:
    return {
        "first": ranks.label,
        "ranks": len(ranks.ranks),
        "is_worker": ranks.is_worker,
        **ranks.parts,
        "peak_memory": ranks.peak_memory,
    }


def job_bottleneck(job: JobPrediction, ops: Mapping[str, float]) -> str:
    """Name the bottleneck of the iteration, and whether the job fits into memory."""
    return " ".join([_time(job, ops), *misfits(job)[:1]])


def misfits(job: JobPrediction) -> list[str]:
    """Return a sentence for each kind of ranks whose node has too little memory, or hardly enough.

    Where the device is known, that counts what its allocator, CUDA and NCCL hold as well.
    """
    if job.memory is not None:
        return [job.memory.sentence] if job.memory.sentence else []
    too_large = []
    labels = job.schedule.job.labels
    for group in job.equal_ranks:
        known = [
            (memory, labels[rank])
            for rank in group.ranks
            if (memory := job.cluster.node(labels[rank]).memory) is not None
        ]
        if not known or group.peak_memory is None:
            continue
        least, where = min(known, key=lambda each: each[0])
        if group.peak_memory > least:
            too_large.append(
                f"Does not fit: needs {format_size(group.peak_memory)} of {format_size(least)} on "
                f"{where}."
            )
    return too_large


def _time(job: JobPrediction, ops: Mapping[str, float]) -> str:
    parts, whole = job.parts, job.iteration_time
    if not whole > 0 or not ops:
        return NOTHING
    lost = {part: time for part, time in parts.items() if part not in ("compute", "idle")}
    worst, share = largest_share(lost, whole)
    if share <= WAITS:
        return f"Computing: {parts['compute'] / whole:.0%} of the iteration; {longest_op(ops)}."
    if worst == "bubble":
        return f"Pipeline bubble: workers are idle {share:.0%} of the iteration; {_bubble(job)}."
    if job.causes.get(ON_HOST, 0.0) > share * whole / 2:
        return f"Updates on the host: the device waits {share:.0%} of the iteration for them."
    whom = "the servers" if job.strategy.servers else "each other"
    if not job.strategy.servers and sum(equal_rank.is_worker for equal_rank in job.equal_ranks) > 1:
        whom = _slowest(job).label
    sentence = _SENTENCES[worst].format(share=share, whom=whom)
    by_servers = worst in ("exposed_communication", "waiting") and job.strategy.servers
    return f"{sentence} {_servers(job)}" if by_servers else sentence


def _slowest(job: JobPrediction) -> EqualRanks:
    workers = [equal_rank for equal_rank in job.equal_ranks if equal_rank.is_worker]
    return max(workers, key=lambda each: (each.parts["compute"], -each.ranks[0]))


def _bubble(job: JobPrediction) -> str:
    """Explain why a pipeline is idle: its stages differ, or it fills and drains."""
    slowest, mean = _slowest(job), job.parts["compute"]
    more = slowest.parts["compute"] - mean
    if more > job.parts["bubble"] / 2:
        return (
            f"its stages are unequal: {slowest.label} computes "
            f"{format_duration(slowest.parts['compute'])}, workers on average "
            f"{format_duration(mean)}"
        )
    strategy = job.strategy
    return (
        f"it has {strategy.pipeline} stages and {strategy.microbatches} micro-batches; more "
        "micro-batches shrink it"
    )


def _servers(job: JobPrediction) -> str:
    servers = [equal_rank for equal_rank in job.equal_ranks if not equal_rank.is_worker]
    does = {"exposed_communication": "nothing but send and receive", "compute": "updates"}
    busiest, part = max(
        ((server, part) for server in servers for part in does),
        key=lambda pair: pair[0].parts[pair[1]],
    )
    share = busiest.parts[part] / job.iteration_time
    return f"{busiest.label} does {does[part]} for {share:.0%} of it."


_SENTENCES = {
    "copies": "Copies: the device waits {share:.0%} of the iteration for them.",
    "exposed_communication": (
        "Communication: workers compute nothing for {share:.0%} of the iteration while data is on "
        "the way."
    ),
    "waiting": "Waiting: workers wait {share:.0%} of the iteration for {whom}.",
    "launch": f"{LAUNCHING}.",
}


def comparable(summary: S, config: PredictConfig) -> S:
    """Return the summary of a prediction with what compares it to that of other hardware.

    The cost is that of a million tokens, or examples where they are no sequences: in the money of
    the price, and without one in hours of a device. Unchanged where ops were timed.
    """
    if config.catalogued is None:
        return summary
    workers = getattr(summary, "workers", 1)
    examples, model = summary.examples_per_second, config.architecture
    tokens = None if model is None or examples is None else examples * model.sequence
    rate, price = tokens or examples, config.price or WORKER_HOURS
    return replace(
        summary,
        hardware=config.hardware,
        tokens_per_second=tokens,
        price=None if config.price is None else str(config.price),
        currency=price.currency,
        cost=price.of(workers, 1e6 / rate) if rate else None,
        nearest=measured_like(config, workers),
    )
