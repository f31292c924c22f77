"""The step of a data-parallel job on any number of GPUs.

    forward      backward                      one replica computes
    =========== ======================
                   ################------      ring all-reduce of its gradients: hidden, exposed
                                        ~~     the slowest replica of all is waiting for

- *Compute* depends on the replica's batch alone and is taken from the measurement, between two
  measured batches from the line through them.
- *The ring all-reduce* of the gradients moves 2 (p - 1) / p of their bytes over every link
  (Patarasuk and Yuan 2009): within a node, between two nodes, between more. It goes at the pace of
  the slowest of its p processes, whose paces vary.
- *Overlap*: what fits into a share of the compute (most of the backward pass) is hidden; the last
  bucket never is.
- *The slowest replica* is waited for: durations of replicas vary as well. The expected maximum of p
  normal numbers lies so many standard deviations above their mean (Blom 1958).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError

__all__ = ["Scaling", "StepTimes"]

Floats = npt.NDArray[np.float64]
Numbers = npt.ArrayLike


@dataclass(frozen=True, eq=False)
class StepTimes:
    """Seconds of a step, or arrays of them: what the replica computes, and what it waits for.

    Attributes:
        compute: of the replica itself.
        exposed: communication that the computation does not hide, and waiting for the slowest.
    """

    compute: Floats
    exposed: Floats

    @property
    def step(self) -> Floats:
        """Seconds of the whole step."""
        return self.compute + self.exposed


@dataclass(frozen=True)
class Scaling:
    """How the steps of one job depend on its GPUs; `fit_scaling` finds it from measured ones.

    Attributes:
        batches: examples of a replica's step, ascending.
        compute: seconds that a replica computes on each.
        within: seconds in which the gradients' bytes pass once over a link, on one node; NaN where
            no such run was measured.
        pair: the same between two nodes.
        several: the same between three nodes and more.
        jitter: relative standard deviation of the pace of one process of the ring.
        hidden: share of the compute behind which communication hides.
        last: share of the communication that always comes after the compute.
        spread: relative standard deviation of a replica's compute.
    """

    batches: tuple[float, ...]
    compute: tuple[float, ...]
    within: float
    pair: float
    several: float
    jitter: float
    hidden: float
    last: float
    spread: float

    def predict(
        self, nodes: Numbers, replicas: Numbers, batch: Numbers, accumulation: Numbers = 0
    ) -> StepTimes:
        """Return the step of `replicas` GPUs on `nodes` nodes; arrays are taken together.

        Args:
            nodes: how many.
            replicas: GPUs on all of them.
            batch: examples that each replica works on at once.
            accumulation: passes of the same size before, without communication.

        Raises:
            InputError: more nodes than replicas; a kind of placement or a batch about which the
                measurements say nothing.
        """
        n, p, examples, passes = np.broadcast_arrays(
            *(np.asarray(each, dtype=np.float64) for each in (nodes, replicas, batch, accumulation))
        )
        if not bool(((n >= 1) & (p >= n)).all()):
            raise InputError("scaling: give 1 node or more, and a replica or more on each")
        compute = self._compute_of(examples)
        communication = self._communication(n, p)
        exposed = np.maximum(communication - self.hidden * compute, self.last * communication)
        waiting = self.spread * _expected_maximum(p) * compute
        return StepTimes((1 + passes) * compute, exposed + waiting)

    def _compute_of(self, batch: Floats) -> Floats:
        """Return seconds by the line between two measured batches, or beyond the last two."""
        known, seconds = np.array(self.batches), np.array(self.compute)
        if len(known) == 1:
            if not bool((batch == known).all()):
                raise InputError(f"scaling: only a batch of {known[0]:g} was measured")
            return np.full(batch.shape, seconds[0])
        segment = np.clip(np.searchsorted(known, batch) - 1, 0, len(known) - 2)
        slope = np.diff(seconds)[segment] / np.diff(known)[segment]
        line = seconds[segment] + slope * (batch - known[segment])
        return np.asarray(np.maximum(line, 0.0), dtype=np.float64)

    def _communication(self, nodes: Floats, replicas: Floats) -> Floats:
        """Return the seconds of an all-reduce of all gradients with nothing beside it."""
        alone, one, two = replicas == 1, (nodes == 1) & (replicas > 1), nodes == 2
        pair = self.several if math.isnan(self.pair) else self.pair
        several = self.pair if math.isnan(self.several) else self.several
        pace = np.select([alone, one, two], [0.0, self.within, pair], several)
        if bool(np.isnan(pace).any()):
            kind = "several replicas on one node" if math.isnan(self.within) else "several nodes"
            raise InputError(f"scaling: no run on {kind} was measured")
        slowest = 1 + self.jitter * _expected_maximum(replicas)
        return np.asarray(pace * slowest * 2 * (replicas - 1) / replicas)


def _expected_maximum(replicas: Floats) -> Floats:
    """Return by how many standard deviations the largest of p normal numbers exceeds their mean.

    Source: Blom, "Statistical Estimates and Transformed Beta-Variables", 1958; exact for p = 1,
    4.5 % too large for p = 2, less than 2 % from p = 4 on.
    """
    normal = NormalDist()
    values = {p: normal.inv_cdf((p - 0.375) / (p + 0.25)) for p in np.unique(replicas).tolist()}
    return np.array([values[p] for p in replicas.flat]).reshape(replicas.shape)
