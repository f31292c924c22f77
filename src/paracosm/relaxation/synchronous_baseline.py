"""The synchronous baseline of an asynchronous iteration: the same iteration with a barrier after
each update.
"""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import numpy as np

from paracosm.errors import InputError
from paracosm.relaxation.config import Detection
from paracosm.relaxation.result import RelaxationResult
from paracosm.relaxation.spec import RunSpec, check_spec
from paracosm.results.summaries import RelaxationTwin

SWEEPS, TIMES = 100.0, 4.0  # that a baseline may make: so many, or times those of the run if more
MOST = 1e9  # nonzeros that it may pass over, which takes some seconds


def baseline_spec(spec: RunSpec, result: RelaxationResult) -> RunSpec | None:
    """Return the synchronous iteration to compare a run with; None where there is none.

    It has the same problem, durations and faults (at the same instants). All processors read at
    the start of an update, and an observer notices convergence where a residual processor did.
    Functions of the user's own are not called for it, and nothing is known of threads that wait for
    both a barrier and a core. It is bounded: see `SWEEPS` and `MOST`.
    """
    config = spec.config
    if not config.baseline or config.synchronous or config.cores is not None:
        return None
    of_the_user = (spec.update, spec.choose, spec.times.function, spec.problem.map)
    if any(function is not None for function in of_the_user):
        return None
    sweeps = max(SWEEPS, TIMES * float(result.sweeps[-1]))
    affordable = max(1.0, MOST / max(1, spec.problem.A.nnz))
    is_observed = config.detect.by == "processor"
    baseline = spec.changed(
        synchronous=True,
        read="start",
        method=spec.method,
        detect=Detection() if is_observed else config.detect,
        max_sweeps=min(config.max_sweeps, sweeps, affordable),
        timeline=0,
    )
    if isfinite(result.fault_free_time):
        baseline = replace(baseline, horizon=result.fault_free_time)
    try:
        check_spec(baseline)
    except InputError:
        return None
    return baseline


def compare(run: RelaxationResult, baseline: RelaxationResult) -> RelaxationTwin:
    """Return when each reaches the end's residual, or the lowest that both reach."""
    level: float | None = None
    times: tuple[float, float] | tuple[None, None] = (None, None)
    if run.status == baseline.status == "converged":
        times = run.virtual_time, baseline.virtual_time
    elif "diverged" not in (run.status, baseline.status):
        level = max(float(np.nanmin(result.residuals)) for result in (run, baseline))
        times = _passage(run, level), _passage(baseline, level)
    return RelaxationTwin(
        status=baseline.status,
        residual=baseline.residual,
        sweeps=float(baseline.sweeps[-1]),
        virtual_time=baseline.virtual_time,
        level=level,
        run_time=times[0],
        twin_time=times[1],
        energy=baseline.energy,
    )


def _passage(result: RelaxationResult, level: float) -> float:
    return float(result.times[np.argmax(result.residuals <= level)])
