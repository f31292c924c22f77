"""How long things take: distributions of durations, and recordings of measured ones."""

from paracosm.timing.density import cumulative, density
from paracosm.timing.distribution import Distribution, Scaled, Slowdown
from paracosm.timing.families import (
    Constant,
    Empirical,
    Exponential,
    Gamma,
    KernelDensity,
    LogKernelDensity,
    Lognormal,
    Normal,
    Recorded,
    Uniform,
    Weibull,
)
from paracosm.timing.fit import Fit, best_fit, compare_fits, fit
from paracosm.timing.parse import load_recording, parse_distribution, save_recording

__all__ = [
    "Constant",
    "Distribution",
    "Empirical",
    "Exponential",
    "Fit",
    "Gamma",
    "KernelDensity",
    "LogKernelDensity",
    "Lognormal",
    "Normal",
    "Recorded",
    "Scaled",
    "Slowdown",
    "Uniform",
    "Weibull",
    "best_fit",
    "compare_fits",
    "cumulative",
    "density",
    "fit",
    "load_recording",
    "parse_distribution",
    "save_recording",
]
