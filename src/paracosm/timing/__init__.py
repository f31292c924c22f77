"""How long things take: distributions of durations, and recordings of measured ones."""

from paracosm.timing.density import density
from paracosm.timing.distribution import Distribution
from paracosm.timing.families import Constant, Empirical
from paracosm.timing.fit import best_fit, compare_fits, fit
from paracosm.timing.parse import parse_distribution

__all__ = [
    "Constant",
    "Distribution",
    "Empirical",
    "best_fit",
    "compare_fits",
    "density",
    "fit",
    "parse_distribution",
]
