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
from paracosm.timing.parse import parse_distribution
from paracosm.timing.recording import load_recording, save_recording
from paracosm.timing.samples import Empirical, KernelDensity, LogKernelDensity, Recorded

__all__ = [
    "Constant",
    "Distribution",
    "Empirical",
    "Exponential",
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
    "load_recording",
    "parse_distribution",
    "save_recording",
]
