"""How long an op takes that nobody timed: estimators trained from the timings of one device."""

from paracosm.profiling.estimators.estimators import Estimators, fit_estimators
from paracosm.profiling.estimators.methods import Score
from paracosm.profiling.estimators.roofline import SOURCES, Estimate

__all__ = [
    "SOURCES",
    "Estimate",
    "Estimators",
    "Score",
    "fit_estimators",
]
