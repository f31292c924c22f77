"""Synchronized workers: what it costs, whether it lasts, and how it shows in a run.

Workers that begin their steps together ask for the network together, and leave it idle while all of
them compute. Under max-min sharing a lead of one over another hardly changes by itself, so that
effects of a millisecond decide whether workers stay synchronized or spread, and on real links the
queue and TCP have a say as well. A prediction that depends on it is a band.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.arrays import Bools, Floats, Ints
from paracosm.prediction.parameter_servers.target import TargetJob
from paracosm.prediction.parameter_servers.throughput import (
    DROPPED,
    OF_EACH,
    REPLICAS,
    rates_after_start,
)
from paracosm.simulation.simulate import simulate

LEAD = 0.02
"""Of a step: so far ahead workers begin to see what becomes of a lead. What they pull beside the
tensors that they wait for is shorter on a link that matters, and their transfers are longer."""


@dataclass(frozen=True)
class Band:
    """What the throughput of several asynchronous workers is between."""

    synchronized: float  # steps/s of all together, at first after a common start
    spread: float  # steps/s of all together, where they begin evenly spread over a step
    drift: float  # seconds by which a small lead of one half over the other grows in a step


def find_band(job: TargetJob, workers: int, seed: int, steps_per_second: float) -> Band | None:
    """Simulate steps of synchronized and of spread workers; None where they wait, or of one.

    A step of each worker takes `workers / steps_per_second` in the steady state. Rates are of
    `OF_EACH` such steps after the first `DROPPED`.
    """
    if workers == 1 or job.settings.backup is not None:
        return None
    step = workers / steps_per_second

    def rate(start: Floats) -> float:
        seconds = (DROPPED + OF_EACH) * step
        return float(np.mean(rates_after_start(job, start, seconds, REPLICAS, seed)))

    return Band(
        synchronized=rate(np.zeros(workers)),
        spread=rate(np.linspace(0.0, step, workers, endpoint=False)),
        drift=_drift(job, workers, seed, LEAD * step),
    )


def _drift(job: TargetJob, workers: int, seed: int, lead: float) -> float:
    """Return by how many seconds a step the lead of a half of the workers over the other grows.

    Halves, since sharing alone lets the lead of few over many grow, and that of many over few
    shrink, as the number of those behind over that of those ahead; of an odd number one is left
    out. All take the same profiled steps and even shares, so that nothing but the lead sets them
    apart; by what unlike workers come apart without one is taken off.
    """
    half, drifts = workers // 2, []
    follows = np.arange(2 * half) >= half
    for replica in range(REPLICAS):
        drawn = np.tile(job.drawn(1, OF_EACH, [seed, replica]), (2 * half, 1))
        with_lead, without = (
            _last_lead(job, np.where(follows, ahead, 0.0), drawn, follows) for ahead in (lead, 0.0)
        )
        drifts.append((with_lead - without - lead) / OF_EACH)
    return float(np.mean(drifts))


def _last_lead(job: TargetJob, start: Floats, drawn: Ints, follows: Bools) -> float:
    system = job.system(job.settings.ports.first(len(start)), start)
    ended = simulate(job.workload, system, drawn).step_end[:, -1]
    return float(ended[follows].mean() - ended[~follows].mean())


def coherence(begins: Sequence[Floats], ends: Sequence[Floats], times: Floats) -> Floats:
    """Return how synchronized workers are at some times: 1 if all are at one point of a step.

    The length of the mean of exp(2 pi i f), where f is the part of its step that a worker has done
    (Kuramoto's order parameter); about 0.89 / sqrt(workers) if they have nothing to do with each
    other (0.64 of two).

    Args:
        begins, ends: of each worker's steps, in seconds, ascending; NaN of steps that did not end.
        times: in seconds.
    """
    points = np.zeros(len(times), complex)
    for begin, end in zip(begins, ends, strict=True):
        done = ~np.isnan(end)
        first, last = begin[done], end[done]
        place = np.clip(np.searchsorted(first, times, side="right") - 1, 0, len(first) - 1)
        part = np.clip((times - first[place]) / (last[place] - first[place]), 0, 1)
        points += np.exp(2j * np.pi * part)
    return np.asarray(np.abs(points) / len(begins))
