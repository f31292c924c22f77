"""From steps measured on a few GPUs to steps on many: data-parallel training."""

from paracosm.prediction.scaling.fit import fit_scaling
from paracosm.prediction.scaling.model import Scaling, StepTimes
from paracosm.prediction.scaling.pollux import PolluxFormula, fit_pollux
from paracosm.prediction.scaling.runs import Runs, read_runs

__all__ = [
    "PolluxFormula",
    "Runs",
    "Scaling",
    "StepTimes",
    "fit_pollux",
    "fit_scaling",
    "read_runs",
]
