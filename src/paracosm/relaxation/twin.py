"""The synchronous twin of an asynchronous iteration: the same, with a barrier after each update."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite

import numpy as np

from paracosm.errors import InputError
from paracosm.relaxation.config import Detection
from paracosm.relaxation.result import RelaxationResult
from paracosm.relaxation.spec import RunSpec, check_spec
from paracosm.results.summaries import RelaxationTwin

SWEEPS, TIMES = 100.0, 4.0  # that a twin may make: so many, or times those of the run if more
MOST = 1e9  # nonzeros that it may pass over, which takes some seconds


def twin_spec(spec: RunSpec, result: RelaxationResult) -> RunSpec | None:
    """Return the synchronous iteration to compare a run with; None where there is none.

    It has the same problem, durations and faults (at the same instants). All processors read at
    the start of an update, and an observer notices convergence where a residual processor did.
    Functions of the user's own are not called for it, and nothing is known of threads that wait for
    both a barrier and a core. It is bounded: see `SWEEPS` and `MOST`.
    """
    config = spec.config
    own = (spec.update, spec.choose, spec.times.function, spec.problem.map, config.cores)
    if not config.twin or config.synchronous or any(each is not None for each in own):
        return None
    sweeps = max(SWEEPS, TIMES * float(result.sweeps[-1]))
    affordable = max(1.0, MOST / max(1, spec.problem.A.nnz))
    is_observed = config.detect.by == "processor"
    twin = spec.changed(
        synchronous=True,
        read="start",
        method=spec.method,
        detect=Detection() if is_observed else config.detect,
        max_sweeps=min(config.max_sweeps, sweeps, affordable),
        timeline=0,
    )
    if isfinite(result.fault_free_time):
        twin = replace(twin, horizon=result.fault_free_time)
    try:
        check_spec(twin)
    except InputError:
        return None
    return twin


def compare(run: RelaxationResult, twin: RelaxationResult) -> RelaxationTwin:
    """Return when each reaches the end's residual, or the lowest that both reach."""
    level: float | None = None
    times: tuple[float, float] | tuple[None, None] = (None, None)
    if run.status == twin.status == "converged":
        times = run.virtual_time, twin.virtual_time
    elif "diverged" not in (run.status, twin.status):
        level = max(float(np.nanmin(each.residuals)) for each in (run, twin))
        times = _passage(run, level), _passage(twin, level)
    return RelaxationTwin(
        status=twin.status,
        residual=twin.residual,
        sweeps=float(twin.sweeps[-1]),
        virtual_time=twin.virtual_time,
        level=level,
        run_time=times[0],
        twin_time=times[1],
        energy=twin.energy,
    )


def _passage(result: RelaxationResult, level: float) -> float:
    return float(result.times[np.argmax(result.residuals <= level)])
