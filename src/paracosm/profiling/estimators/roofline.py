"""time = launch + max(flops / peak, bytes / bandwidth), fitted to one op type or a whole device.

Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52 (4), 2009; with a constant for the call itself. Timed
ops are looked up, and similar ones scaled by it.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import groupby
from statistics import NormalDist, median

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.errors import InputError
from paracosm.graphs.graph import Op
from paracosm.profiling.estimators.describe import Description, describe
from paracosm.profiling.samples import OpTiming, Spread

_OUTLIER = 0.2  # of the logarithm: from here on, errors count linearly instead of squared
# Weight of the device's parameters relative to one sample's: decides what samples leave open.
_PRIOR = 0.1
_WEAK_PRIOR = 0.01
_WIDEST = 200.0  # of a parameter's logarithm: keeps a wild step of the search finite
_BALANCE = 10.0  # flops per byte of a device whose samples count no flops


@dataclass(frozen=True, slots=True)
class Roofline:
    launch: float  # seconds of a call that does nothing
    peak: float  # flops/s
    bandwidth: float  # bytes/s

    def log_time(self, ops: Sequence[Description]) -> Floats:
        flops, moved = _work(ops)
        times = self.launch + np.maximum(flops / self.peak, moved / self.bandwidth)
        return np.asarray(np.log(times))

    def predict(self, ops: Sequence[Description]) -> tuple[Floats, Floats]:
        """Return `log_time` and the scale of its error, which is the same for all."""
        return self.log_time(ops), np.ones(len(ops))


def fit_roofline(
    ops: Sequence[Description], log_time: Floats, prior: Roofline | None = None
) -> Roofline:
    """Return the roofline with the least robust error of the logarithm.

    The parameters are regularised slightly towards `prior`, so that one sample suffices; the prior
    decides what samples do not determine (the peak, for an op without flops).
    """
    from scipy.optimize import least_squares  # which takes a quarter of a second to import

    flops, moved = _work(ops)
    times = np.exp(log_time)
    weight = _WEAK_PRIOR if prior is None else _PRIOR
    centre = np.log(_guess(flops, moved, times) if prior is None else astuple(prior))

    def terms(parameters: Floats) -> tuple[Floats, Floats, Floats]:
        launch, slowness, dearness = np.exp(np.clip(parameters * (1, -1, -1), -_WIDEST, _WIDEST))
        return np.full(len(flops), launch), flops * slowness, moved * dearness

    # `loss` is applied to every residual; the pull of the prior is small enough to stay squared.
    def residuals(parameters: Floats) -> Floats:
        launch, compute, memory = terms(parameters)
        errors = np.log(launch + np.maximum(compute, memory)) - log_time
        return np.concatenate([errors, weight * (parameters - centre)])

    def jacobian(parameters: Floats) -> Floats:
        launch, compute, memory = terms(parameters)
        bound = compute > memory
        slopes = np.stack([launch, -compute * bound, -memory * ~bound], axis=1)
        total = launch + np.maximum(compute, memory)
        return np.vstack([slopes / total[:, None], weight * np.eye(3)])

    guess = np.log(_guess(flops, moved, times))
    below = np.array([-1.5, 0.7, 0.7])  # less launch, higher rates: the kink has two sides
    starts = (guess + below, guess if prior is None else centre, guess - [0.0, 0.7, 0.0])
    best = min(
        (
            least_squares(
                residuals, start, jac=jacobian, loss="soft_l1", f_scale=_OUTLIER, max_nfev=60
            )
            for start in starts
        ),
        key=lambda result: float(result.cost),
    )
    launch, peak, bandwidth = np.exp(np.clip(best.x, -_WIDEST, _WIDEST))
    return Roofline(float(launch), float(peak), float(bandwidth))


def _work(ops: Sequence[Description]) -> tuple[Floats, Floats]:
    return np.array([op.flops for op in ops]), np.array([op.bytes for op in ops])


def _guess(flops: Floats, moved: Floats, times: Floats) -> list[float]:
    """Return initial parameters: half the least time, the 80th percentile of rates."""
    some_bytes, some_flops = moved > 0, flops > 0
    bandwidth = 1e9
    if some_bytes.any():
        bandwidth = float(np.quantile(moved[some_bytes] / times[some_bytes], 0.8))
    peak = _BALANCE * bandwidth
    if some_flops.any():
        peak = float(np.quantile(flops[some_flops] / times[some_flops], 0.8))
    return [float(times.min()) / 2, peak, bandwidth]


Types = Mapping[str, Ints]
"""Rows of the samples of every op type, which is an op's name."""

_MOST_OF_A_TYPE = 30  # samples, so that no op type outweighs the others
_FOLDS = 5
_FEW = 2  # samples with which few-sample fits are tried out
# Half-widths of intervals where the database is too small to measure them.
_UNKNOWN, _FEW_KNOWN = math.log(10.0), math.log(4.0)


@dataclass(frozen=True, slots=True)
class Device:
    roofline: Roofline  # fitted to all op types alike
    # Half-width (of the logarithm) of the interval of an op whose type was never timed, from
    # op types that were left out of the fit
    unknown: float
    # The same for the roofline of an op type with fewer than `LEAST` samples, from types with
    # more of which two were kept
    few: float


def rows_by_type(ops: Sequence[Description]) -> Types:
    by_type: dict[str, list[int]] = {}
    for row, op in enumerate(ops):
        by_type.setdefault(op.name, []).append(row)
    return {name: np.array(rows) for name, rows in sorted(by_type.items())}


def fit_device(ops: Sequence[Description], log_time: Floats, types: Types, seed: int) -> Device:
    random = np.random.default_rng(seed)
    some = {
        name: np.sort(random.permutation(rows)[:_MOST_OF_A_TYPE]) for name, rows in types.items()
    }

    def fitted(names: Sequence[str]) -> Roofline:
        rows = np.concatenate([some[name] for name in names])
        return fit_roofline([ops[row] for row in rows], log_time[rows])

    def errors(roofline: Roofline, rows: Ints) -> Floats:
        return np.abs(roofline.log_time([ops[row] for row in rows]) - log_time[rows])

    names = list(some)
    roofline = fitted(names)
    left_out, few = [], []
    if len(names) > _FOLDS:
        fold = random.permutation(len(names)) % _FOLDS
        for number in range(_FOLDS):
            rest = [name for name, its in zip(names, fold, strict=True) if its != number]
            without = fitted(rest)
            left_out += [errors(without, some[name]) for name in names if name not in rest]
    for rows in some.values():
        if len(rows) >= LEAST:
            kept = np.sort(random.permutation(rows)[:_FEW])
            own = fit_roofline([ops[row] for row in kept], log_time[kept], roofline)
            few.append(errors(own, np.setdiff1d(rows, kept)))
    return Device(
        roofline=roofline,
        unknown=conformal(np.concatenate([np.zeros(0), *left_out]), _UNKNOWN),
        few=conformal(np.concatenate([np.zeros(0), *few]), _FEW_KNOWN),
    )


LEAST = 10
"""Held-out errors that a quantile needs (at 90 %, nine): samples of a type that is learned."""


def conformal(scores: Floats, otherwise: float) -> float:
    """Return the value below which the next score lies with probability `LEVEL`.

    Scores are absolute errors over scales, of held-out ops; `otherwise` is returned if they are
    fewer than `LEAST`. Split conformal prediction (Vovk, Gammerman, Shafer, "Algorithmic Learning
    in a Random World", 2005; with errors divided by a scale: Lei et al., "Distribution-free
    predictive inference for regression", Journal of the American Statistical Association 113, 2018,
    section 5.2). The interval of an op with scale s is exp(log_time +- q s), q the result.
    """
    if len(scores) < LEAST:
        return otherwise
    rank = min(math.ceil((len(scores) + 1) * LEVEL), len(scores))
    return float(np.sort(scores)[rank - 1])


LEVEL = 0.9  # share of ops whose measured duration lies within the interval of their estimate

SOURCES = ("exact", "interpolated", "estimated", "unknown")
"""Timed itself; scaled from a neighbour; from an estimator of its op type; from the whole device's
roofline, because no op of its type was timed."""

_WIDEST_INTERVAL = 20.0  # of the logarithm: exp(20) either way says "anything", and is finite


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long an op takes."""

    duration: float  # seconds of one call, the mean
    # low, high: ends of the interval, seconds; the op's mean lies in it with probability `LEVEL`
    low: float
    high: float
    source: str  # one of `SOURCES`
    method: str  # the estimator: "exact", "nearest", "roofline", "mlp", "gaussian"


def estimate_around(log_time: float, half_width: float, source: str, method: str) -> Estimate:
    """Return the estimate exp(log_time) with an interval of `half_width` in its logarithm."""
    duration = math.exp(log_time)
    factor = math.exp(min(half_width, _WIDEST_INTERVAL))
    return Estimate(duration, duration / factor, duration * factor, source, method)


Key = tuple[str, str]
"""Name and arguments of an op."""

_DEVIATIONS = NormalDist().inv_cdf(0.5 + LEVEL / 2)  # half the interval, in standard deviations
_NO_SPREAD_KNOWN = 0.1  # relative, of one sample where no op has two


@dataclass(frozen=True, eq=False)
class Exact:
    """n distinct ops that were timed."""

    names: tuple[str, ...]
    arguments: tuple[str, ...]
    # (n,), logarithms of their durations (seconds; the means, see `OpTiming.duration`)
    log_time: Floats
    half_width: Floats  # (n,), of the interval, in the logarithm

    @cached_property
    def rows(self) -> dict[Key, int]:
        return {key: row for row, key in enumerate(zip(self.names, self.arguments, strict=True))}

    def estimate(self, row: int) -> Estimate:
        log_time, half_width = float(self.log_time[row]), float(self.half_width[row])
        return estimate_around(log_time, half_width, "exact", "exact")


def pool(
    timings: Sequence[OpTiming], exclude: Collection[Key] = ()
) -> tuple[Exact, list[Description]]:
    """Return the distinct ops of `timings`, ordered by name and arguments, and their descriptions.

    The time of an op is the mean of its sets' durations, weighted by their samples. The interval is
    for its mean at another time: the standard error within sets, and the drift between sets of the
    same op, if the device's timings show any.
    """
    left_out = set(exclude)
    kept = [timing for timing in timings if (timing.op.name, timing.op.arguments) not in left_out]
    if not kept:
        raise InputError(
            "no op timings to fit estimators to"
            + (f": all {len(timings)} are held out" if timings else "")
        )
    for timing in kept:
        if not (timing.duration > 0 and math.isfinite(timing.duration)):
            raise InputError(
                f"the timing of {timing.op.name} is {timing.duration:g} s, not a duration"
            )
    sets = list(_sets_by_op(kept))
    several = [spread for _, spreads in sets for spread in spreads if spread.count > 1]
    usual = median(
        [math.sqrt(spread.variance) / spread.mean for spread in several] or [_NO_SPREAD_KNOWN]
    )
    drift = _drift([spreads for _, spreads in sets], usual)
    pooled = [_pooled(spreads, usual, drift) for _, spreads in sets]
    exact = Exact(
        names=tuple(op.name for op, _ in sets),
        arguments=tuple(op.arguments for op, _ in sets),
        log_time=np.array([log_time for log_time, _ in pooled]),
        half_width=np.array([half_width for _, half_width in pooled]),
    )
    return exact, [describe(op) for op, _ in sets]


def _sets_by_op(timings: Sequence[OpTiming]) -> Iterator[tuple[Op, list[Spread]]]:
    """Yield every distinct op with its sets of samples, independent of the input's order."""
    ordered = sorted(timings, key=lambda each: (astuple(each.op), astuple(each.time)))
    for _, same in groupby(ordered, key=lambda each: (each.op.name, each.op.arguments)):
        spreads = list(same)
        yield spreads[0].op, [timing.time for timing in spreads]


def _error(spread: Spread, usual: float) -> float:
    """Return the relative standard error of the mean; the `usual` one for a single sample."""
    return spread.standard_error if spread.count > 1 else usual


def _drift(sets: Sequence[Sequence[Spread]], usual: float) -> float:
    """Return the standard deviation of set means beyond their own errors."""
    variances = [
        np.var(np.log([spread.mean for spread in spreads]), ddof=1)
        - np.mean([_error(spread, usual) ** 2 for spread in spreads])
        for spreads in sets
        if len(spreads) > 1
    ]
    return math.sqrt(max(float(np.mean(variances)), 0.0)) if variances else 0.0


def _pooled(spreads: Sequence[Spread], usual: float, drift: float) -> tuple[float, float]:
    """Return the logarithm of the pooled duration and the half-width of its interval."""
    weights = np.array([spread.count for spread in spreads]) / sum(
        spread.count for spread in spreads
    )
    log_time = float(np.log(weights @ [spread.mean for spread in spreads]))
    errors = [_error(spread, usual) for spread in spreads]
    # Another time has a drift of its own.
    variance = float((weights**2) @ np.square(errors)) + drift**2 * (1 + float(weights @ weights))
    return log_time, _DEVIATIONS * math.sqrt(variance)


FARTHEST = 0.3  # never is a neighbour used that is farther than this, a factor of 1.35 in one size

_MOST_NEIGHBOURS = 4
_SOFTENING = 0.02  # of the distances by whose inverse neighbours are weighted


@dataclass(frozen=True, eq=False)
class Cells:
    """The timed ops of one type, by cell: ops that differ in sizes alone.

    Two ops are in one cell if everything but the sizes of their tensors is equal: dtypes, orders of
    strides, flags, kernel attributes such as stride, padding and groups. Their distance is the
    largest logarithm of a ratio of sizes: 0.1 means that no size differs by more than about 10 %.
    The ratio of time to roofline is interpolated, which accounts for the work.
    """

    names: tuple[str, ...]  # the text of every cell
    offsets: Ints  # (cells + 1,), where each cell's ops begin
    sizes: Floats  # (n, most sizes of an op), their logarithms; 0 where an op has fewer
    ratio: Floats  # (n,), logarithm of time over roofline

    def estimate(
        self, op: Description, roofline: Roofline, radius: float = FARTHEST
    ) -> tuple[float, float]:
        """Return the logarithm of the time (seconds) of `op` and the nearest neighbour's distance.

        Up to four neighbours within `radius` count, weighted by the inverse of their distance.
        Without any, the distance is infinite.
        """
        if op.cell not in self.names:
            return np.nan, np.inf
        cell = self.names.index(op.cell)
        begin, end = self.offsets[cell], self.offsets[cell + 1]
        here = _log_sizes(op)
        distance = np.abs(self.sizes[begin:end, : len(here)] - here).max(axis=1, initial=0.0)
        order = np.argsort(distance, kind="stable")[:_MOST_NEIGHBOURS]
        order = order[distance[order] <= radius]
        if not len(order):
            return np.nan, np.inf
        weights = 1 / (distance[order] + _SOFTENING)
        ratio = float(weights @ self.ratio[begin:end][order] / weights.sum())
        return float(roofline.log_time([op])[0]) + ratio, float(distance[order[0]])


def cells_of(ops: Sequence[Description], log_time: Floats, roofline: Roofline) -> Cells:
    ratio = log_time - roofline.log_time(ops)
    cells = [op.cell for op in ops]
    order = sorted(range(len(ops)), key=lambda row: cells[row])
    names = tuple(sorted(set(cells)))
    counts = [cells.count(name) for name in names]
    sizes = np.zeros((len(ops), max(len(op.sizes) for op in ops)))
    for row, index in enumerate(order):
        here = _log_sizes(ops[index])
        sizes[row, : len(here)] = here
    return Cells(names, np.cumsum([0, *counts]), sizes, ratio[order])


def _log_sizes(op: Description) -> Floats:
    return np.log1p([size for _, size in op.shapes])
