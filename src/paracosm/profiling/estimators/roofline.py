"""time = launch + max(flops / peak, bytes / bandwidth), fitted to one op type or a whole device.

Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52 (4), 2009; with a constant for the call itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from paracosm.profiling.estimators.describe import Description
from paracosm.profiling.estimators.features import Floats

__all__ = ["Roofline", "fit_roofline"]

_OUTLIER = 0.2  # of the logarithm: from here on, errors count linearly instead of squared
_PRIOR = (
    0.1  # weight of the device's parameters beside one sample's; settles what samples leave open
)
_WEAK_PRIOR = 0.01
_WIDEST = 200.0  # of a parameter's logarithm: keeps a wild step of the search finite
_BALANCE = 10.0  # flops per byte of a device whose samples count no flops


@dataclass(frozen=True, slots=True)
class Roofline:
    """Parameters of a roofline.

    Attributes:
        launch: seconds of a call that does nothing.
        peak: flops/s.
        bandwidth: bytes/s.
    """

    launch: float
    peak: float
    bandwidth: float

    def log_time(self, ops: Sequence[Description]) -> Floats:
        """Return the logarithms of the durations (seconds) of `ops`."""
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

    The parameters are pulled a little towards `prior`, so that one sample suffices, and what
    samples say nothing of (the peak of an op that counts no flops) is the prior's.
    """
    flops, moved = _work(ops)
    times = np.exp(log_time)
    weight = _WEAK_PRIOR if prior is None else _PRIOR
    centre = np.log(_guess(flops, moved, times) if prior is None else _parameters(prior))

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


def _parameters(roofline: Roofline) -> list[float]:
    return [roofline.launch, roofline.peak, roofline.bandwidth]


def _guess(flops: Floats, moved: Floats, times: Floats) -> list[float]:
    """Return parameters of the right order of magnitude: half the least time, rates at the 80th
    percentile of what samples reached."""
    some_bytes, some_flops = moved > 0, flops > 0
    bandwidth = 1e9
    if some_bytes.any():
        bandwidth = float(np.quantile(moved[some_bytes] / times[some_bytes], 0.8))
    peak = _BALANCE * bandwidth
    if some_flops.any():
        peak = float(np.quantile(flops[some_flops] / times[some_flops], 0.8))
    return [float(times.min()) / 2, peak, bandwidth]
