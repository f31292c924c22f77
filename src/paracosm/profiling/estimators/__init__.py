"""How long an op takes that was never timed: estimators trained from the timings of one device."""

from paracosm.profiling.estimators.estimators import fit_estimators

__all__ = ["fit_estimators"]
