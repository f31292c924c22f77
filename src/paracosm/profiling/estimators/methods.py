"""The estimators that compete for an op type, by name; ties go to the later one.

Each is fitted by a function of ops, logarithms of their times, the roofline of these samples and a
seed; the result predicts logarithms of durations, each with the scale of its error. A new method is
one more fit and one more line here (and one in `estimators`).
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Bools, Floats, Ints
from paracosm.errors import require
from paracosm.profiling.estimators.describe import Description, Layout, layout_of, seen_in
from paracosm.profiling.estimators.roofline import Roofline, cells_of, fit_roofline


class Fitted(Protocol):
    def predict(self, ops: Sequence[Description]) -> tuple[Floats, Floats]:
        """Return the logarithms of durations (seconds) and the scales of their errors."""
        ...


_HIDDEN = (24, 24)
_DECAY = 0.5  # L2 penalty
_MLP_ITERATIONS = 60  # of L-BFGS


@dataclass(frozen=True, eq=False)
class Network:
    """The paper's estimator: a neural network on the raw arguments of an op.

    Huang et al., section 2: "for each input argument we profile a fixed number of values, and use
    these results to train a neural network to estimate the op performance". Two hidden layers of
    rectified units; arguments and time on a logarithmic scale. scikit-learn fits it, arrays
    predict: layer i maps `x` to `x @ weights[i] + biases[i]`.
    """

    layout: Layout  # its input columns
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    # mean, scale: of the logarithm of the time among the samples; the network's output is
    # standardised by them
    mean: float
    scale: float

    def predict(self, ops: Sequence[Description]) -> tuple[Floats, Floats]:
        x = self.layout.matrix(ops)
        for weights, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = np.maximum(x @ weights + bias, 0.0)
        output = (x @ self.weights[-1] + self.biases[-1])[:, 0]
        return self.mean + self.scale * output, np.ones(len(ops))


def fit_mlp(ops: Sequence[Description], log_time: Floats, roofline: Roofline, seed: int) -> Network:
    """Return the network fitted to `ops`; the `roofline` is not used."""
    networks = require("sklearn.neural_network", "torch", "fitting estimators")
    layout = layout_of(ops, "raw")
    mean, scale = float(log_time.mean()), float(log_time.std()) or 1.0
    if not len(layout.mean):  # all samples alike in their arguments: a constant
        return Network(layout, (np.zeros((0, 1)),), (np.zeros(1),), mean, scale)
    regressor = networks.MLPRegressor(
        hidden_layer_sizes=_HIDDEN,
        solver="lbfgs",
        alpha=_DECAY,
        max_iter=_MLP_ITERATIONS,
        random_state=seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it stopped early, as configured
        regressor.fit(layout.matrix(ops), (log_time - mean) / scale)
    weights = tuple(np.ascontiguousarray(coefficients) for coefficients in regressor.coefs_)
    return Network(layout, weights, tuple(regressor.intercepts_), mean, scale)


# A few steps only: with some sixty samples and a dozen length scales, the optimum of the marginal
# likelihood is over-fitted.
_GAUSSIAN_ITERATIONS = 8
_MOST_SAMPLES = 256  # the rest is dropped at random: the fit is cubic in them
_LENGTH = 3.0
_NOISE = 0.1


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """A Gaussian process over n samples in d columns, whose mean is the op type's roofline.

    It learns the ratio of the time to the roofline. Far from all samples it returns to their
    typical ratio, with a large standard deviation. Rasmussen, Williams, "Gaussian Processes for
    Machine Learning", 2006, algorithm 2.1; kernel: amplitude x Matern 3/2 with a length scale for
    every column, and noise. scikit-learn fits it, arrays predict.
    """

    roofline: Roofline
    layout: Layout  # its input columns
    points: Floats  # (n, d), the samples' columns divided by the length scales
    weights: Floats  # (n,), the inverse covariance times the targets
    factor: Floats  # (n, n), lower Cholesky factor of the covariance
    lengths: Floats  # (d,), length scales
    # amplitude, noise: variances of the function and of a sample
    amplitude: float
    noise: float
    # mean, scale: of the logarithm of time over roofline among the samples; the process is
    # standardised by them
    mean: float
    scale: float

    def predict(self, ops: Sequence[Description]) -> tuple[Floats, Floats]:
        """Return the logarithms of durations (seconds) and their standard deviations."""
        from scipy.linalg import solve_triangular  # which takes a quarter of a second to import

        here = self.layout.matrix(ops) / self.lengths
        covariance = self.amplitude * _matern(here, self.points)
        residual = covariance @ self.weights
        solved = solve_triangular(self.factor, covariance.T, lower=True, check_finite=False)
        explained = np.einsum("ij,ij->j", solved, solved)
        variance = np.maximum(self.amplitude - explained, 0.0) + self.noise
        log_time = self.roofline.log_time(ops) + self.mean + self.scale * residual
        return log_time, self.scale * np.sqrt(variance)


def fit_gaussian(
    ops: Sequence[Description], log_time: Floats, roofline: Roofline, seed: int
) -> GaussianProcess:
    """Return the process fitted to the ratios of `ops` to their `roofline`."""
    processes = require("sklearn.gaussian_process", "torch", "fitting estimators")
    kernels = require("sklearn.gaussian_process.kernels", "torch", "fitting estimators")
    if len(ops) > _MOST_SAMPLES:
        chosen = np.sort(np.random.default_rng(seed).permutation(len(ops))[:_MOST_SAMPLES])
        ops, log_time = [ops[i] for i in chosen], log_time[chosen]
    layout = layout_of(ops, "derived")
    x = layout.matrix(ops)
    residual = log_time - roofline.log_time(ops)
    mean, scale = float(residual.mean()), max(float(residual.std()), 1e-3)
    if not x.shape[1]:  # samples alike in all that is known of them: their mean, and their spread
        alone = np.zeros((1, 0))
        one = np.ones((1, 1))
        return GaussianProcess(
            roofline, layout, alone, np.zeros(1), one, np.ones(0), 0.0, 1.0, mean, scale
        )
    kernel = kernels.ConstantKernel(1.0, (1e-2, 1e2)) * kernels.Matern(
        np.full(x.shape[1], _LENGTH), (0.1, 1e3), nu=1.5
    ) + kernels.WhiteKernel(_NOISE, (1e-4, 1.0))
    process = processes.GaussianProcessRegressor(kernel, alpha=1e-8, optimizer=_few_steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it stopped early, as configured
        process.fit(x, (residual - mean) / scale)
    function, white = process.kernel_.k1, process.kernel_.k2
    # Contiguous, as they come back from a file: so they add up in the same order.
    lengths = np.array(function.k2.length_scale, dtype=np.float64, order="C").reshape(-1)
    return GaussianProcess(
        roofline=roofline,
        layout=layout,
        points=np.ascontiguousarray(x / lengths),
        weights=np.ascontiguousarray(process.alpha_),
        factor=np.ascontiguousarray(process.L_),
        lengths=lengths,
        amplitude=float(function.k1.constant_value),
        noise=float(white.noise_level),
        mean=mean,
        scale=scale,
    )


def _few_steps(
    objective: Callable[[Floats], Any], initial_theta: Floats, bounds: Floats
) -> tuple[Floats, float]:
    """Minimise with scikit-learn's default method, but stop early; the names are scikit-learn's."""
    from scipy.optimize import minimize

    options = {"maxiter": _GAUSSIAN_ITERATIONS}
    result = minimize(
        objective, initial_theta, method="L-BFGS-B", jac=True, bounds=bounds, options=options
    )
    return result.x, float(result.fun)


def _matern(left: Floats, right: Floats) -> Floats:
    """Return the Matern 3/2 correlation of every row of `left` with every row of `right`."""
    difference = left[:, None, :] - right[None, :, :]
    distance = math.sqrt(3.0) * np.sqrt(np.einsum("ijk,ijk->ij", difference, difference))
    return np.asarray((1.0 + distance) * np.exp(-distance))


Fit = Callable[[Sequence[Description], Floats, Roofline, int], Fitted]

METHODS: Mapping[str, Fit] = {
    "roofline": lambda ops, log_time, roofline, seed: roofline,
    "mlp": fit_mlp,
    "gaussian": fit_gaussian,
}

FOLDS = 5


@dataclass(frozen=True, slots=True)
class Score:
    """How well the estimators of one op type did on held-out ops."""

    name: str
    samples: int  # distinct ops that were timed
    # Mean absolute error of the logarithm of the time, by method: 0.1 is about 10 %. Empty for
    # types of fewer than `LEAST` samples; the roofline alone where it errs by less than 2 %.
    errors: Mapping[str, float]
    # The method of the least error, or a preferred one that errs no more than the noise of
    # this comparison beyond it (`HeldOut.best`)
    chosen: str
    near: int = 0  # how many held-out ops had a near neighbour (`timed.FARTHEST`) among the others
    near_error: float = float("nan")  # the error of scaling from it; NaN without any


def score_of(name: str, held_out: "HeldOut") -> Score:
    near = np.abs(held_out.near[np.isfinite(held_out.distance)])
    return Score(
        name=name,
        samples=len(held_out.near),
        errors={method: float(np.abs(error).mean()) for method, error in held_out.errors.items()},
        chosen=held_out.best,
        near=len(near),
        near_error=float(near.mean()) if len(near) else float("nan"),
    )


_GOOD_ENOUGH = 0.02  # mean error of a roofline (a view's, a constant) that needs no competitor


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The errors for n ops of one type, each estimated without the fold that it is in."""

    errors: Mapping[str, Floats]  # by method, (n,): logarithm of estimate over measured time
    scales: Mapping[str, Floats]  # by method, (n,): the scale of that error, as the method has it
    near: Floats  # (n,), as `errors`, of the nearest neighbour; NaN where none is near
    distance: Floats  # (n,), to it

    @property
    def best(self) -> str:
        """The last of `METHODS` whose mean absolute error is within one standard error of the
        difference from the least: later ones generalise better."""
        absolute = {method: np.abs(error) for method, error in self.errors.items()}
        least = min(absolute.values(), key=lambda each: float(each.mean()))
        noise = math.sqrt(len(least))
        return [
            method
            for method, each in absolute.items()
            if (each - least).mean() <= (each - least).std() / noise
        ][-1]

    def scores(self, method: str) -> Floats:
        return np.abs(self.errors[method]) / self.scales[method]


def hold_out(
    ops: Sequence[Description], log_time: Floats, device: Roofline, folds: int, seed: int
) -> HeldOut:
    """Return the held-out errors of the `METHODS` on `ops` of one type with logarithms of seconds.

    If the roofline errs by less than 2 %, no other is tried.
    """
    fold = fold_of(ops, folds, seed)
    count = len(ops)
    errors = {method: np.full(count, np.nan) for method in METHODS}
    scales = {method: np.ones(count) for method in METHODS}
    near, distance, outside = np.full(count, np.nan), np.full(count, np.inf), np.zeros(count)
    rooflines: dict[int, Roofline] = {}
    for number in np.unique(fold):
        rest, held = _split(fold == number)
        training = [ops[i] for i in rest]
        roofline = rooflines[number] = fit_roofline(training, log_time[rest], device)
        cells, seen = cells_of(training, log_time[rest], roofline), seen_in(training)
        for i in held:
            estimate, distance[i] = cells.estimate(ops[i], roofline)
            near[i] = estimate - log_time[i]
            away = seen.outside(ops[i])
            outside[i] = away if np.isfinite(away) else 0.0
        errors["roofline"][held] = roofline.log_time([ops[i] for i in held]) - log_time[held]
    if np.abs(errors["roofline"]).mean() < _GOOD_ENOUGH:
        only = {"roofline": errors["roofline"]}
        return HeldOut(only, {"roofline": 1 + outside}, near, distance)
    for number, roofline in rooflines.items():
        rest, held = _split(fold == number)
        training, tested = [ops[i] for i in rest], [ops[i] for i in held]
        for method, fit in METHODS.items():
            fitted = fit(training, log_time[rest], roofline, seed)
            estimates, scales[method][held] = fitted.predict(tested)
            errors[method][held] = estimates - log_time[held]
    scales = {method: scale * (1 + outside) for method, scale in scales.items()}
    return HeldOut(errors, scales, near, distance)


def fold_of(ops: Sequence[Description], folds: int, seed: int) -> Ints:
    """Return the fold of every op. Ops of equal sizes share one, unless all sizes are equal:
    otherwise an op would be estimated from one that differs only in, say, a learning rate."""
    shapes: list[Any] = [op.shapes for op in ops]
    if len(set(shapes)) < 2:
        shapes = [op.arguments for op in ops]
    groups = sorted(set(shapes))
    order = np.random.default_rng(seed).permutation(len(groups))
    number = {group: int(place) % folds for group, place in zip(groups, order, strict=True)}
    return np.array([number[shape] for shape in shapes], dtype=np.int64)


def _split(held: Bools) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    return np.flatnonzero(~held), np.flatnonzero(held)
