"""How long things take: distributions of durations, and recordings of measured ones."""

from paracosm.timing.composed import Scaled, Slowdown
from paracosm.timing.distribution import Distribution
from paracosm.timing.families import (
    Constant,
    Exponential,
    Gamma,
    Lognormal,
    Normal,
    Uniform,
    Weibull,
)
from paracosm.timing.fit import fit, fit_kernel_density
from paracosm.timing.fit_choice import Fit, best_fit, compare_fits
from paracosm.timing.fit_density import cumulative, density
from paracosm.timing.parse import parse_distribution
from paracosm.timing.recording import load_recording, save_recording
from paracosm.timing.samples import Empirical, KernelDensity, LogKernelDensity, Recorded

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
    "fit_kernel_density",
    "load_recording",
    "parse_distribution",
    "save_recording",
]
