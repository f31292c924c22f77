"""From steps measured on a few GPUs to steps on many: data-parallel training."""

from scaling.fit import fit_scaling
from scaling.model import Scaling, StepTimes
from scaling.pollux import PolluxFormula, fit_pollux
from scaling.runs import Runs, read_runs

__all__ = [
    "PolluxFormula",
    "Runs",
    "Scaling",
    "StepTimes",
    "fit_pollux",
    "fit_scaling",
    "read_runs",
]
