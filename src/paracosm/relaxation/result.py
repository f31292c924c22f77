"""What a simulated asynchronous iteration came to."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from paracosm.relaxation.spec import RunSpec

if TYPE_CHECKING:
    from paracosm.relaxation.spectrum import SpectralRadius


Status = Literal["converged", "diverged", "stopped", "interrupted"]
What = Literal["fault", "rollback", "checkpoint"]
Array = NDArray[np.float64]


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
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class Spans:
    """The first updates of a run, in the order in which they began."""

    # who, shape (k,); the number of processors stands for the residual processor
    processor: NDArray[np.int32]
    # virtual time, shape (k,); without phases, `copied` and `computed` are equal to `begin`
    begin: Array
    copied: Array
    computed: Array
    end: Array


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
        growth_rate: factor by which the residual grows each sweep, where it diverged; else NaN.
        messages, bytes_sent: in distributed memory.
        spec: what was asked for.
        fault_free_time: virtual time of the same iteration without faults, where it was run; NaN.
        last_update: virtual time of each processor's last update, shape (p,).
        spans: for the timeline.
    """

    status: Status
    reason: str
    x: Array = field(repr=False)
    residual: float
    initial_residual: float
    tolerance: float
    error: float
    virtual_time: float
    wall_time: float
    relaxations: int
    updates: NDArray[np.int64] = field(repr=False)
    times: Array = field(repr=False)
    sweeps: Array = field(repr=False)
    residuals: Array = field(repr=False)
    errors: Array = field(repr=False)
    staleness: Staleness = field(repr=False)
    marks: tuple[Mark, ...] = field(repr=False)
    checkpoints: int
    rollbacks: int
    faults: int
    false_detections: int
    growth_rate: float
    messages: int
    bytes_sent: int
    last_update: Array = field(repr=False)
    spans: Spans = field(repr=False)
    fault_free_time: float = float("nan")
    spec: RunSpec | None = field(default=None, repr=False)

    @cached_property
    def spectral_radius(self) -> SpectralRadius | None:
        """rho(|C|) of the iteration matrix, computed or bounded (Theorem 1); None for a map."""
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


_LONG = 10  # updates of a processor, on average, before anything can be told


def definition_1(spec: RunSpec, result: RelaxationResult) -> Definition1:
    """Hold a run against Definition 1."""
    total = int(result.updates.sum())
    half = result.virtual_time / 2
    silent = np.flatnonzero(result.last_update < half)
    newest = result.staleness.most < max(total / 2, spec.processors)
    if total < _LONG * spec.processors:
        return Definition1(True, True, True, "too short a run to tell whether Definition 1 held")
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
