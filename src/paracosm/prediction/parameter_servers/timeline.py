"""The synthetic trace: what simulated workers do in their first steps, chunk by chunk."""

from __future__ import annotations

import numpy as np

from paracosm.prediction.parameter_servers.target import TargetJob
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER
from paracosm.simulation.simulate import simulate
from paracosm.timeline import Labels, Timeline

STEPS = 5  # of each worker that are shown at most
WORKERS = 16  # that are shown at most, the first ones
# A trace has at most these spans, or one step of each worker: a viewer holds some million.
SPANS = 300_000
# Of all workers, shown or not, at most these are kept, or one step of each worker.
CHUNKS = 5_000_000

LANES = {DOWNLINK: "downlink", WORKER: "compute", UPLINK: "uplink", SERVER: "server"}


def first_steps(job: TargetJob, workers: int, seed: int) -> Timeline:
    """Return the first steps of some workers of a job (Li et al. 2020, figure 7).

    Each worker has a lane for each resource: downlink, compute, uplink and server; where there are
    several servers, "downlink 0", "downlink 1", ... A stream that is sent in two turns is two
    spans. What takes no time is left out.

    Args:
        job: what the workers do, on which cluster.
        workers: how many work, all from the same time on.
        seed: of the steps that they draw.
    """
    workload = job.workload
    shown = min(workers, WORKERS)
    ops = workload.ops
    steps = max(1, min(STEPS, SPANS // (shown * ops), CHUNKS // (workers * ops)))
    system = job.with_shares(job.system(job.settings.ports.first(workers)), steps, [seed])
    drawn = job.drawn(workers, steps, seed)
    chunks = simulate(workload, system, drawn, keep_chunks=True).chunks
    chunks = chunks[(chunks["worker"] < shown) & (chunks["end"] > chunks["begin"])]
    chunks = chunks[np.lexsort((chunks["end"], chunks["begin"]))]
    lanes = [
        LANES[resource]
        if resource == WORKER or system.servers == 1
        else f"{LANES[resource]} {server}"
        for resource, server in zip(
            workload.resource.tolist(), workload.server.tolist(), strict=True
        )
    ]
    timeline = Timeline()
    timeline.extend(
        Labels(chunks["worker"], [f"worker{number}" for number in range(shown)]),
        Labels(chunks["op"], lanes),
        Labels(chunks["op"], job.names),
        chunks["begin"],
        chunks["end"],
    )
    return timeline
