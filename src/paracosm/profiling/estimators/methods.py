"""The estimators that compete for an op type, by name; where two do equally well, the later.

Each is fitted by a function of ops, logarithms of their times, the roofline of these samples and a
seed; what it returns predicts logarithms of durations, each with the scale of its error. Another
method is one more file and one more line here (and one in `storage`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from paracosm.profiling.estimators.describe import Description
from paracosm.profiling.estimators.features import Floats
from paracosm.profiling.estimators.gaussian import fit_gaussian
from paracosm.profiling.estimators.mlp import fit_mlp
from paracosm.profiling.estimators.roofline import Roofline

__all__ = ["METHODS", "Fit", "Fitted"]


class Fitted(Protocol):
    """An estimator of one op type, fitted."""

    def predict(self, ops: Sequence[Description]) -> tuple[Floats, Floats]:
        """Return the logarithms of durations (seconds) and the scales of their errors."""
        ...


Fit = Callable[[Sequence[Description], Floats, Roofline, int], Fitted]


def _roofline(
    ops: Sequence[Description], log_time: Floats, roofline: Roofline, seed: int
) -> Roofline:
    return roofline


METHODS: Mapping[str, Fit] = {"roofline": _roofline, "mlp": fit_mlp, "gaussian": fit_gaussian}
