"""How long an op takes that nobody timed: estimators trained from the timings of one device."""

from paracosm.profiling.estimators.crossvalidate import Score, cross_validate, format_scores
from paracosm.profiling.estimators.estimate import SOURCES, Estimate
from paracosm.profiling.estimators.estimators import Estimators
from paracosm.profiling.estimators.fit import fit_estimators
from paracosm.profiling.estimators.storage import load_estimators

__all__ = [
    "SOURCES",
    "Estimate",
    "Estimators",
    "Score",
    "cross_validate",
    "fit_estimators",
    "format_scores",
    "load_estimators",
]
