"""The estimators of one device: an estimate for any op."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from paracosm.graphs.op import Op
from paracosm.profiling.environment import Environment
from paracosm.profiling.estimators.crossvalidate import Score
from paracosm.profiling.estimators.describe import Description, describe
from paracosm.profiling.estimators.device import Device
from paracosm.profiling.estimators.estimate import Estimate, estimate_around
from paracosm.profiling.estimators.exact import Exact, Key
from paracosm.profiling.estimators.features import Seen
from paracosm.profiling.estimators.methods import Fitted
from paracosm.profiling.estimators.nearest import Cells
from paracosm.profiling.estimators.roofline import Roofline

__all__ = ["Estimators", "Neighbourhood", "TypeEstimator"]

_ROOM = math.log(2.0)  # beyond the ratios to the roofline that were measured


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """When the nearest timed op is believed, on this device.

    Attributes:
        radius: greatest distance; 0 where neighbours err more than the chosen estimators.
        half_width: of the interval (logarithm) over `softening` plus the distance; 0 where too few
            neighbours were held out to know: then it is the chosen estimator's.
        softening: distance that is added for the noise of timings.
    """

    radius: float
    half_width: float
    softening: float


@dataclass(frozen=True, eq=False)
class TypeEstimator:
    """What is known of one op type.

    Attributes:
        method: name of the chosen estimator.
        fitted: it.
        half_width: of its interval (logarithm) over the scale that it predicts.
        roofline: of this type; what an op of an unseen category gets.
        lowest, highest: logarithm of time over roofline among the samples.
        seen: the range of the samples.
        cells: the samples, for the nearest of them.
    """

    method: str
    fitted: Fitted
    half_width: float
    roofline: Roofline
    lowest: float
    highest: float
    seen: Seen
    cells: Cells


@dataclass(frozen=True, eq=False)
class Estimators:
    """Estimators of the ops of one environment and cache state; `fit_estimators` makes them.

    An op is looked up among the timed ones, then scaled from its nearest neighbour, then given to
    the estimator that cross-validation chose for its type, or to the type's roofline if one of its
    categories (a dtype, an order of strides) was never seen; an op of a type that was never timed
    gets the roofline of the device. `Estimate.source` and `method` say which.

    Attributes:
        environment, cache: of the timings.
        exact: the ops that were timed.
        types: by op type.
        neighbourhood: how far the nearest is believed.
        device: roofline of the whole device.
        scores: cross-validation of every op type.
    """

    environment: Environment
    cache: str
    exact: Exact
    types: Mapping[str, TypeEstimator]
    neighbourhood: Neighbourhood
    device: Device
    scores: tuple[Score, ...]

    def estimate(self, op: Op) -> Estimate:
        """Return the estimate of `op`; always positive and finite.

        Raises:
            InputError: the arguments of `op` are not of the form that `graphs.op` describes.
        """
        row = self._rows.get((op.name, op.arguments))
        if row is not None:
            return self.exact.estimate(row)
        described = describe(op)
        known = self.types.get(op.name)
        if known is None:
            log_time = float(self.device.roofline.log_time([described])[0])
            return estimate_around(log_time, self.device.unknown, "unknown", "roofline")
        return self._interpolated(described, known) or self._estimated(described, known)

    def estimate_all(self, ops: Iterable[Op]) -> list[Estimate]:
        """Return the estimates of `ops` in their order; equal ops are estimated once.

        Each is what `estimate` returns, to the bit, whatever else is among `ops`.

        Raises:
            InputError: as `estimate`.
        """
        found: dict[Op, Estimate] = {}
        estimates = []
        for op in ops:
            if op not in found:
                found[op] = self.estimate(op)
            estimates.append(found[op])
        return estimates

    def save(self, path: str | Path) -> None:
        """Write everything to one .npz file at `path`: arrays and JSON, no pickles.

        A file that is there is replaced, once the new one is whole.
        """
        from paracosm.profiling.estimators.storage import save_estimators

        save_estimators(self, path)

    @cached_property
    def _rows(self) -> dict[Key, int]:
        return self.exact.rows()

    def _interpolated(self, op: Description, known: TypeEstimator) -> Estimate | None:
        near = self.neighbourhood
        log_time, distance = known.cells.estimate(op, known.roofline, near.radius)
        if not distance <= near.radius:
            return None
        half_width = near.half_width * (near.softening + distance)
        if not half_width:
            estimate = self._estimated(op, known)
            half_width = math.log(estimate.high / estimate.duration)
        return estimate_around(log_time, half_width, "interpolated", "nearest")

    def _estimated(self, op: Description, known: TypeEstimator) -> Estimate:
        outside = known.seen.outside(op)
        roofline = float(known.roofline.log_time([op])[0])
        if math.isinf(outside):
            return estimate_around(roofline, self.device.unknown, "estimated", "roofline")
        predicted, scale = known.fitted.predict([op])
        lowest, highest = roofline + known.lowest - _ROOM, roofline + known.highest + _ROOM
        log_time = float(np.clip(predicted[0], lowest, highest))
        half_width = known.half_width * float(scale[0]) * (1 + outside)
        # However far from the samples: a type of which two are known is known no better.
        half_width = min(half_width, max(known.half_width, self.device.few))
        return estimate_around(log_time, half_width, "estimated", known.method)
