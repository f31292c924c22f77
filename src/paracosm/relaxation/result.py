"""The result of a simulated asynchronous iteration."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from paracosm.arrays import Codes, Floats, Ints
from paracosm.cluster.description import describe_cluster
from paracosm.faults.checkpoint import (
    CheckpointPolicy,
    advice,
    daly_interval,
    score,
    young_interval,
)
from paracosm.faults.fault import mean_time_between_faults
from paracosm.relaxation.spec import RunSpec
from paracosm.results import RelaxationSummary, summaries

if TYPE_CHECKING:
    from paracosm.relaxation.spectrum import SpectralRadius

Status = Literal["converged", "diverged", "stopped", "interrupted"]
What = Literal["fault", "rollback", "checkpoint"]


@dataclass(frozen=True)
class Mark:
    """Something that happened besides relaxations."""

    time: float  # virtual time, seconds
    relaxations: int  # how many there had been
    what: What  # "fault", "rollback" or "checkpoint"
    residual: float  # norm of the residual after it
    fault: str = ""  # which fault it was, in words; empty for the others
    before: float = float("nan")  # norm of the residual before a fault
    data: bool = False  # whether the fault struck data, which nobody is told


@dataclass(frozen=True)
class Staleness:
    """Staleness of updates: how many others were written between an update's read and its write.

    In the words of Definition 1 (Coleman, Jensen, Sosonkina): k - 1 - s(k), the largest over the
    components that update k read.
    """

    mean: float  # over all updates
    most: int
    width: int  # staleness values in one bin
    # updates in each bin, shape (bins,); the last one holds everything beyond
    counts: Ints


@dataclass(frozen=True)
class Spans:
    """The first updates of a run, in the order in which they began."""

    # who, shape (k,); the number of processors stands for the residual processor
    processor: Codes
    # virtual time, shape (k,); without phases, `copied` and `computed` are equal to `begin`
    begin: Floats
    copied: Floats
    computed: Floats
    end: Floats


@dataclass(frozen=True)
class RelaxationResult:
    """The outcome.

    Attributes:
        status: "converged": confirmed with a freshly computed residual; "diverged": the residual
            grew beyond all bounds; "stopped": at a limit, or nobody computes any more;
            "interrupted": by the user.
        reason: the same in a sentence.
        x: the iterate at the end, shape (n,).
        residual: norm of b - A x, computed anew at the end.
        initial_residual: the same at the beginning.
        tolerance: norm that was to be reached; NaN without one.
        error: norm of x - solution; NaN where the solution is not known.
        virtual_time, wall_time: seconds.
        relaxations: of single components.
        updates: of each processor, shape (p,).
        times, sweeps, residuals, errors: the history, shape (k,); a sweep is n relaxations.
        staleness: of the values read.
        marks: the first 10,000 faults, rollbacks and checkpoints (of these fewer), in order.
        checkpoints, rollbacks, faults: how many there were.
        false_detections: how often the residual test said converged and a fresh residual did not.
        first_within: virtual time at which an ideal observer would have stopped; NaN if it did.
        growth_rate: factor by which the residual grows each sweep, where it diverged; else NaN.
        messages, bytes_sent: in distributed memory; `detection_messages` of them are those of the
            residual test.
        snapshots: how many of them have had their residual added up.
        recorded: the newest record of each row, shape (n,), or empty without snapshots: where one
            has just found convergence, the vector whose residual it is.
        recorded_residual: norm of the residual of the last one; NaN without any.
        spec: the specification of the run.
        fault_free_time: virtual time of the same iteration without faults, where it was run; NaN.
        last_update: virtual time of each processor's last update, shape (p,).
        spans: for the timeline.
        busy, off: seconds that each processor computed, and was stopped, shape (p,).
    """

    status: Status
    reason: str
    x: Floats = field(repr=False)
    residual: float
    initial_residual: float
    tolerance: float
    error: float
    virtual_time: float
    wall_time: float
    relaxations: int
    updates: Ints = field(repr=False)
    times: Floats = field(repr=False)
    sweeps: Floats = field(repr=False)
    residuals: Floats = field(repr=False)
    errors: Floats = field(repr=False)
    staleness: Staleness = field(repr=False)
    marks: tuple[Mark, ...] = field(repr=False)
    checkpoints: int
    rollbacks: int
    faults: int
    false_detections: int
    first_within: float
    growth_rate: float
    messages: int
    detection_messages: int
    bytes_sent: int
    snapshots: int
    recorded: Floats = field(repr=False)
    recorded_residual: float
    last_update: Floats = field(repr=False)
    spans: Spans = field(repr=False)
    busy: Floats = field(repr=False)
    off: Floats = field(repr=False)
    fault_free_time: float = float("nan")
    spec: RunSpec | None = field(default=None, repr=False)

    @property
    def norm(self) -> Literal["2", "inf"]:
        """The norm of residuals and errors."""
        return "inf" if self.spec is not None and self.spec.config.norm == "inf" else "2"

    @cached_property
    def energy(self) -> float | None:
        """Joules that all processors took; None where the cluster file has no `power`."""
        if self.spec is None:
            return None
        cluster = self.spec.config.target_cluster
        busy, off = (
            dict(zip(cluster.workers, seconds.tolist(), strict=True))
            for seconds in (self.busy, self.off)
        )
        return cluster.energy(self.virtual_time, busy, off)

    @cached_property
    def spectral_radius(self) -> SpectralRadius | None:
        """`rho(|C|)` of the iteration matrix, computed or bounded (Theorem 1); None for a map."""
        from paracosm.relaxation.spectrum import spectrum_of

        return None if self.spec is None else spectrum_of(self.spec)

    @cached_property
    def definition(self) -> Definition1 | None:
        """Whether the conditions of Definition 1 held, as far as a finite run can show."""
        return None if self.spec is None else definition_1(self.spec, self)


@dataclass(frozen=True)
class Definition1:
    """The three conditions of Definition 1 (Coleman, Jensen, Sosonkina, section 3)."""

    finished_only: bool  # s_i(k) <= k - 1: by construction, a value is read after it is written
    # s_i(k) grows: none used is older than half of all updates, and none is stale
    newest_used: bool
    all_updated: bool  # every processor updated in the last half of the run
    sentence: str


_LONG = 10  # average updates of a processor needed for a verdict


def definition_1(spec: RunSpec, result: RelaxationResult) -> Definition1:
    """Check a run against Definition 1."""
    total = int(result.updates.sum())
    half = result.virtual_time / 2
    silent = np.flatnonzero(result.last_update < half)
    newest = result.staleness.most < max(total / 2, spec.processors)
    if total < _LONG * spec.processors:
        return Definition1(True, True, True, "the run is too short to check Definition 1")
    if silent.size == 0 and newest:
        held = "the three conditions of Definition 1 held, as far as a finite run can show"
    else:
        reasons = []
        if not newest:
            reasons.append(
                f"an update used values that were {result.staleness.most} updates old (condition 2)"
            )
        if silent.size:
            who = ", ".join(str(processor) for processor in silent[:5])
            more = f" and {silent.size - 5} others" if silent.size > 5 else ""
            reasons.append(f"processor {who}{more} stopped updating (condition 3)")
        held = "Definition 1 did not hold: " + "; ".join(reasons)
    return Definition1(True, newest, silent.size == 0, held)


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
        norm=result.norm,
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
        detection=_detection(spec, result),
        durations=_durations(spec),
        messages={"count": result.messages, "bytes": result.bytes_sent} if clustered else None,
        cluster=None if spec.cluster is None else describe_cluster(spec.cluster),
        faults=_faults(spec, result) if config.fault else None,
        checkpoints=None if policy is None else _checkpoints(spec, policy, result),
        growth_rate=_number(result.growth_rate) if result.status == "diverged" else None,
        energy=result.energy,
    )


def _number(value: float) -> float | None:
    return value if isfinite(value) else None


def _detection(spec: RunSpec, result: RelaxationResult) -> dict[str, Any]:
    """Return what the residual test cost: its false detections, and how late it was."""
    late = result.virtual_time - result.first_within
    return {
        "by": str(spec.config.detect),
        "false_detections": result.false_detections,
        "late_by": _number(late) if result.status == "converged" else None,
        "messages": result.detection_messages,
        "snapshots": result.snapshots,
    }


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
        # A fault is detected at the latest when every processor has read its effect.
        window = 2 * spec.times.mean(spec.processors)
        policy = spec.config.checkpoint
        blocks = policy.scope == "block" or policy.monitor == "component"
        scores = score(
            [m.time for m in struck if m.data],
            _first_of_each(rollbacks, window),
            window,
            allow_repeats=blocks,
        )
        summary |= asdict(scores)
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
    mtbf, alone = between or 0.0, result.fault_free_time
    return {
        "policy": str(policy),
        "taken": result.checkpoints,
        "rollbacks": result.rollbacks,
        "cost": result.checkpoints * policy.cost + result.rollbacks * policy.restore,
        "advice": advice(policy, alone if isfinite(alone) else result.virtual_time),
        "suggested_interval_young": young_interval(policy.cost, mtbf) if suggested else None,
        "suggested_interval_daly": daly_interval(policy.cost, mtbf) if suggested else None,
    }
