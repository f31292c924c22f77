"""The key figures of a run, by the names that `summary.json` uses."""

from __future__ import annotations

from dataclasses import asdict
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.cluster.description import describe_cluster
from paracosm.faults import (
    CheckpointPolicy,
    advice,
    daly_interval,
    mean_time_between_faults,
    score,
    young_interval,
)
from paracosm.relaxation.result import RelaxationResult, definition_1
from paracosm.relaxation.spec import RunSpec
from paracosm.results import RelaxationSummary, summaries

if TYPE_CHECKING:
    from paracosm.relaxation.spectrum import SpectralRadius


def summarise(
    spec: RunSpec, result: RelaxationResult, radius: SpectralRadius | None
) -> RelaxationSummary:
    problem, config = spec.problem, spec.config
    clustered, policy = spec.cluster is not None, config.checkpoint
    return RelaxationSummary(
        status=result.status,
        problem=problem.name,
        method="user" if spec.method is None else str(spec.method),
        read="copy" if spec.reads_after_copy else spec.read,
        synchronous=spec.barrier is not None,
        pattern="; ".join(pattern.name for _, pattern in spec.patterns),
        memory="distributed" if clustered else "shared",
        processors=spec.processors,
        unknowns=problem.n,
        nonzeros=int(problem.A.nnz),
        reason=result.reason,
        residual=result.residual,
        initial_residual=result.initial_residual,
        norm="2" if config.norm == 2 else "inf",
        tolerance=_number(result.tolerance),
        error=_number(result.error),
        relaxations=result.relaxations,
        updates=int(result.updates.sum()),
        sweeps=result.relaxations / problem.n,
        virtual_time=result.virtual_time,
        wall_time=result.wall_time,
        spectral_radius=None if radius is None else _radius(radius),
        staleness=_staleness(result),
        definition=asdict(definition_1(spec, result)),
        updates_per_processor={
            "least": int(result.updates.min()),
            "median": float(np.median(result.updates)),
            "most": int(result.updates.max()),
        },
        detection={
            "by": str(config.detect),
            "false_detections": result.false_detections,
        },
        durations=_durations(spec),
        messages={"count": result.messages, "bytes": result.bytes_sent} if clustered else None,
        cluster=None if spec.cluster is None else describe_cluster(spec.cluster),
        faults=_faults(spec, result) if config.fault else None,
        checkpoints=None if policy is None else _checkpoints(spec, policy, result),
        growth_rate=_number(result.growth_rate) if result.status == "diverged" else None,
    )


def _number(value: float) -> float | None:
    return value if isfinite(value) else None


def _radius(radius: SpectralRadius) -> summaries.SpectralRadius:
    return summaries.SpectralRadius(
        value=radius.value, lower=radius.lower, upper=radius.upper, sentence=radius.sentence
    )


def _staleness(result: RelaxationResult) -> summaries.Staleness:
    staleness = result.staleness
    used = np.flatnonzero(staleness.counts)
    counts = staleness.counts[: used[-1] + 1].tolist() if used.size else []
    return summaries.Staleness(
        mean=staleness.mean, max=staleness.most, width=staleness.width, counts=counts
    )


def _durations(spec: RunSpec) -> dict[str, str]:
    kind = spec.times.source
    if not kind.startswith("measured"):
        kind = f"modelled: {kind}"
    if spec.config.scale_factor:
        kind += f", rounded to ticks of {1 / spec.ticks:g} s"
    known = {"update": kind}
    if spec.times.caution:
        known["caution"] = spec.times.caution
    if spec.config.detect.by == "processor" and spec.config.detect.time is None:
        measured = spec.times.residual is not None
        known["residual test"] = "measured" if measured else "assumed as long as an update"
    if spec.cluster is not None:
        sharing = spec.cluster.sharing
        known["halo messages"] = f"modelled: latency, bandwidth, {sharing} sharing of ports"
    if spec.barrier is not None:
        known["barrier"] = f"assumed: {spec.barrier:g} s"
    return known


def _faults(spec: RunSpec, result: RelaxationResult) -> dict[str, Any]:
    struck = [mark for mark in result.marks if mark.what == "fault"]
    rollbacks = [mark.time for mark in result.marks if mark.what == "rollback"]
    summary: dict[str, Any] = {
        "injected": result.faults,
        "events": [
            {
                "time": mark.time,
                "what": mark.fault,
                "residual_before": _number(mark.before),
                "residual_after": _number(mark.residual),
            }
            for mark in struck[:100]
        ],
        "fault_free_time": _number(result.fault_free_time),
    }
    if spec.config.checkpoint is not None:
        # A fault is noticed at the latest when every processor has read what it did.
        window = 2 * spec.times.mean(spec.processors)
        policy = spec.config.checkpoint
        blocks = policy.scope == "block" or policy.monitor == "component"
        found = score(
            [m.time for m in struck if m.data],
            _first_of_each(rollbacks, window),
            window,
            allow_repeats=blocks,
        )
        summary |= asdict(found)
    return summary


def _first_of_each(rollbacks: list[float], window: float) -> list[float]:
    """Return the rollbacks that follow no other: results in flight may cause the next one."""
    earlier = [-inf, *rollbacks]
    return [now for before, now in zip(earlier, rollbacks, strict=False) if now - before > window]


def _checkpoints(
    spec: RunSpec, policy: CheckpointPolicy, result: RelaxationResult
) -> dict[str, Any]:
    between = mean_time_between_faults(spec.config.fault)
    if between is None and spec.config.fault and result.virtual_time > 0:
        between = result.virtual_time / result.faults if result.faults else None
    suggested = policy.cost > 0 and between is not None
    mtbf = between or 0.0
    return {
        "policy": str(policy),
        "taken": result.checkpoints,
        "rollbacks": result.rollbacks,
        "cost": result.checkpoints * policy.cost + result.rollbacks * policy.restore,
        "advice": advice(policy),
        "suggested_interval_young": young_interval(policy.cost, mtbf) if suggested else None,
        "suggested_interval_daly": daly_interval(policy.cost, mtbf) if suggested else None,
    }
