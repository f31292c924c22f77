"""The phases of one worker's step as coarse models see them: one after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.prediction.parameter_servers.imagined import ImaginedJob
from paracosm.profiling.jobs import DOWNLINK, UPLINK, WORKER
from paracosm.simulation.simulate import Simulated, simulate

__all__ = ["Phases", "phases_of"]

Floats = npt.NDArray[np.float64]

FIRST = 1e-3
"""Share of a direction's bytes that may pass before its phase begins: a learning rate that is sent
ahead of all gradients is not what anyone sees of an uplink."""


@dataclass(frozen=True)
class Phases:
    """Mean durations of one worker's step, in seconds.

    Attributes:
        downlink: from the first transfer's begin to the last one's end.
        worker: from there to the begin of the uplink; 0 where they overlap.
        uplink: from the first transfer's begin to the last one's end, but not before the
            downlink's end.
        server: from there to the end of the step.
        rest: between the end of a step and the next one's downlink.
        computing: of all ops of the worker.
        carried: bytes of a step by server, the larger of both directions, (servers,).
    """

    downlink: float
    worker: float
    uplink: float
    server: float
    rest: float
    computing: float
    carried: Floats

    @property
    def step(self) -> float:
        """Seconds from step to step."""
        return self.downlink + self.worker + self.uplink + self.server + self.rest


def phases_of(job: ImaginedJob) -> Phases:
    """Return the phases of a worker of speed 1 that has the servers to itself.

    They are those of every profiled step once, simulated on the cluster's links, as somebody sees
    them who watches the network only (Li et al. 2020, section 1).

    Args:
        job: what the worker does, on which cluster; the first worker is meant.
    """
    workload = job.workload
    drawn = np.arange(workload.steps)[None]
    system = job.asynchronous().system(job.settings.ports.only(0))
    simulated = simulate(workload, system, drawn, keep_chunks=True)
    down = _intervals(job, simulated, DOWNLINK)
    up = _intervals(job, simulated, UPLINK)
    begin, end = simulated.step_begin[0], simulated.step_end[0]
    up_begin = np.maximum(up[0], down[1])
    up_end = np.maximum(up[1], up_begin)
    seconds = workload.seconds[:, workload.resource == WORKER].sum(axis=1)
    return Phases(
        downlink=float((down[1] - down[0]).mean()),
        worker=float((up_begin - down[1]).mean()),
        uplink=float((up_end - up_begin).mean()),
        server=float(np.maximum(end - up_end, 0.0).mean()),
        rest=float((down[0] - begin).mean() + workload.gap.mean()),
        computing=float(seconds.mean() / job.settings.ports.speed[0]),
        carried=np.maximum(*(_by_server(job, way) for way in (DOWNLINK, UPLINK))),
    )


def _intervals(job: ImaginedJob, simulated: Simulated, way: int) -> tuple[Floats, Floats]:
    """Return when a direction's phase begins and ends in each step."""
    workload, chunks = job.workload, simulated.chunks
    chosen = chunks[workload.resource[chunks["op"]] == way]
    chosen = chosen[np.lexsort((chosen["begin"], chosen["step"]))]
    step = chosen["step"]
    starts = np.flatnonzero(np.diff(step, prepend=-1))
    passed = np.cumsum(np.where(chosen["turn"] == 0, workload.size[chosen["op"]], 0.0))
    whole = workload.size[workload.resource == way].sum()
    sizes = workload.size[chosen["op"]]
    before = np.repeat(passed[starts] - sizes[starts], np.diff([*starts, len(step)]))
    visible = np.where((passed - before > FIRST * whole) | (whole == 0), chosen["begin"], np.inf)
    return np.minimum.reduceat(visible, starts), np.maximum.reduceat(chosen["end"], starts)


def _by_server(job: ImaginedJob, way: int) -> Floats:
    workload = job.workload
    chosen = workload.resource == way
    return np.bincount(
        workload.server[chosen],
        weights=workload.size[chosen],
        minlength=len(job.settings.ports.server),
    ).astype(np.float64)
