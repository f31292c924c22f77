"""Workers that have the servers to themselves: the ideal that several are held against."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paracosm.prediction.parameter_servers.imagined import ImaginedJob
from paracosm.prediction.parameter_servers.windows import rates_of_windows, steady_period
from paracosm.simulation.simulate import simulate

__all__ = ["rates_alone"]

Floats = npt.NDArray[np.float64]


def rates_alone(job: ImaginedJob, seed: int) -> Floats:
    """Return the steps/s of each worker where it is the only one, (workers,).

    Args:
        job: what they do, on which cluster.
        seed: of the steps that they draw.
    """
    ports = job.settings.ports
    said = np.column_stack([ports.ways.by_worker(), ports.speed])
    _, first, number = np.unique(said, axis=0, return_index=True, return_inverse=True)
    one = job.asynchronous()
    drawn = one.drawn(1, one.steps(1), seed)
    found = np.zeros(len(first))
    for place, worker in enumerate(first.tolist()):
        ended = simulate(one.workload, one.system(ports.only(worker)), drawn).step_end
        found[place] = rates_of_windows(ended, *steady_period(ended), 1)[0]
    return found[number.ravel()]
