"""The estimators of one device, which give an estimate for any op."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.arrays import Floats
from paracosm.errors import InputError, unknown
from paracosm.graphs.graph import Op
from paracosm.profiling.environment import Environment, one_thread
from paracosm.profiling.estimators.describe import Description, Seen, describe, seen_in
from paracosm.profiling.estimators.methods import (
    FOLDS,
    METHODS,
    Fitted,
    HeldOut,
    Score,
    hold_out,
    score_of,
)
from paracosm.profiling.estimators.roofline import (
    FARTHEST,
    LEAST,
    Cells,
    Device,
    Estimate,
    Exact,
    Key,
    Roofline,
    cells_of,
    conformal,
    estimate_around,
    fit_device,
    fit_roofline,
    pool,
    rows_by_type,
)
from paracosm.profiling.samples import LONGEST, SHORTEST, OpTiming, at_one_speed, can_take

_ROOM = math.log(2.0)  # beyond the ratios to the roofline that were measured


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """When the nearest timed op is trusted, on this device."""

    radius: float  # greatest distance; 0 where neighbours err more than the chosen estimators
    # Of the interval (logarithm) over `softening` plus the distance; 0 where too few neighbours
    # were held out to know: then it is the chosen estimator's
    half_width: float
    softening: float  # distance that is added for the noise of timings


@dataclass(frozen=True, eq=False)
class TypeEstimator:
    method: str  # name of the chosen estimator
    fitted: Fitted
    half_width: float  # of its interval (logarithm) over the scale that it predicts
    roofline: Roofline  # of this type; what an op of an unseen category gets
    # lowest, highest: logarithm of time over roofline among the samples
    lowest: float
    highest: float
    seen: Seen  # the range of the samples
    cells: Cells  # the samples, for the nearest of them


@dataclass(frozen=True, eq=False)
class Estimators:
    """Estimators of the ops of one environment and cache state; `fit_estimators` makes them.

    An op is looked up among the timed ones, then scaled from its nearest neighbour, then given to
    the estimator that cross-validation chose for its type, or to the type's roofline if one of its
    categories (a dtype, an order of strides) is new. An op of a type that was never timed gets the
    roofline of the device. `Estimate.source` and `method` tell which.
    """

    # environment, cache: of the timings
    environment: Environment
    cache: str
    exact: Exact  # the ops that were timed
    types: Mapping[str, TypeEstimator]  # by op type
    neighbourhood: Neighbourhood  # how far the nearest is believed
    device: Device  # roofline of the whole device
    scores: tuple[Score, ...]  # cross-validation of every op type

    def estimate(self, op: Op) -> Estimate:
        """Return the estimate of `op`; always positive and finite."""
        row = self.exact.rows.get((op.name, op.arguments))
        if row is not None:
            return self.exact.estimate(row)
        described = describe(op)
        known = self.types.get(op.name)
        if known is None:
            log_time = float(self.device.roofline.log_time([described])[0])
            return estimate_around(log_time, self.device.unknown, "unknown", "roofline")
        return self._interpolated(described, known) or self._estimated(described, known)

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


_RADII = (0.05, 0.1, 0.2, FARTHEST)
_RADIUS_UNTRIED = 0.1  # where too few neighbours were held out to choose one
_SOFTENING = 0.05


def fit_estimators(
    timings: Sequence[OpTiming],
    *,
    exclude: Collection[Key] = (),
    only: Collection[str] | None = None,
    method: str | None = None,
    folds: int = FOLDS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Estimators:
    """Return estimators trained from `timings`, whose order does not matter.

    Timings are first brought to one speed by their speed probes (see `at_one_speed`).

    Args:
        timings: of one environment and one cache state.
        exclude: (name, arguments) of ops to ignore, such as a model's own, to see how well it is
            predicted from others.
        only: op types that estimates are needed for; every other gets a roofline, which is quick.
        method: one of `METHODS` for every op type, instead of the best of each.
        folds: of the cross-validation; at least 2.
        seed: of its folds, and of randomness in fitting.
        progress: called with the number of op types done and their total.

    Raises:
        InputError: no timings (left); timings of several environments or cache states; a time that
            is not positive; arguments of an op that cannot be read; an unknown method.
    """
    if method is not None and method not in METHODS:
        raise unknown("estimator", method, METHODS)
    if folds < 2:
        raise InputError(f"cross-validation needs at least 2 folds, not {folds}")
    _check(timings)
    exact, ops = pool(at_one_speed(timings), exclude)
    by_type = rows_by_type(ops)
    device = fit_device(ops, exact.log_time, by_type, seed)
    types: dict[str, TypeEstimator] = {}
    scores: list[Score] = []
    tried: dict[str, HeldOut] = {}
    with one_thread():
        for done, (name, rows) in enumerate(by_type.items(), start=1):
            its, log_time = [ops[row] for row in rows], exact.log_time[rows]
            if len(rows) >= LEAST and (only is None or name in only):
                tried[name] = hold_out(its, log_time, device.roofline, folds, seed)
                scores.append(score_of(name, tried[name]))
            else:
                scores.append(Score(name, len(rows), {}, "roofline"))
            types[name] = _fit_type(its, log_time, device, tried.get(name), method, seed)
            if progress is not None:
                progress(done, len(by_type))
    return Estimators(
        environment=timings[0].environment,
        cache=timings[0].cache,
        exact=exact,
        types=types,
        neighbourhood=_neighbourhood(tried),
        device=device,
        scores=tuple(scores),
    )


def _check(timings: Sequence[OpTiming]) -> None:
    for timing in timings:
        for what, seconds in (("timing", timing.duration), ("probe", timing.probe)):
            if not can_take(seconds):
                raise InputError(
                    f"the {what} of {timing.op.name} is {seconds:g} s, not 0 or {SHORTEST:g} s to "
                    f"{LONGEST:g} s"
                )
    for timing in timings[1:]:
        if timing.environment != timings[0].environment:
            different = ", ".join(timings[0].environment.differences(timing.environment))
            raise InputError(f"timings of two environments cannot be fitted together: {different}")
        if timing.cache != timings[0].cache:
            raise InputError(
                f"timings with {timing.cache} and {timings[0].cache} caches cannot be fitted "
                "together"
            )


def _fit_type(
    ops: Sequence[Description],
    log_time: Floats,
    device: Device,
    held_out: HeldOut | None,
    method: str | None,
    seed: int,
) -> TypeEstimator:
    """Return the estimator of one op type: the best on held-out ops, or the `method` if tried."""
    roofline = fit_roofline(ops, log_time, device.roofline)
    chosen, half_width = "roofline", device.few
    if held_out is not None:
        chosen = method if method and method in held_out.errors else held_out.best
        half_width = conformal(held_out.scores(chosen), device.few)
    ratio = log_time - roofline.log_time(ops)
    return TypeEstimator(
        method=chosen,
        fitted=METHODS[chosen](ops, log_time, roofline, seed),
        half_width=half_width,
        roofline=roofline,
        lowest=float(ratio.min()),
        highest=float(ratio.max()),
        seen=seen_in(ops),
        cells=cells_of(ops, log_time, roofline),
    )


def _neighbourhood(tried: Mapping[str, HeldOut]) -> Neighbourhood:
    """Return the radius, over all op types, within which neighbours beat the best estimators."""
    held = list(tried.values())
    distance = np.concatenate([np.zeros(0), *(fold.distance for fold in held)])
    near = np.abs(np.concatenate([np.zeros(0), *(fold.near for fold in held)]))
    other = np.abs(np.concatenate([np.zeros(0), *(fold.errors[fold.best] for fold in held)]))
    inside = {radius: distance <= radius for radius in _RADII}
    gains = {
        radius: float((other - near)[its].sum())
        for radius, its in inside.items()
        if np.count_nonzero(its) >= LEAST
    }
    if not gains:
        return Neighbourhood(_RADIUS_UNTRIED, 0.0, _SOFTENING)
    radius = max(gains, key=lambda each: gains[each])
    if gains[radius] <= 0:
        unjudged = [untried for untried in _RADII if untried not in gains]
        return Neighbourhood(max(unjudged, default=0.0), 0.0, _SOFTENING)
    its = inside[radius]
    half_width = conformal(near[its] / (_SOFTENING + distance[its]), 0.0)
    return Neighbourhood(radius, half_width, _SOFTENING)
