"""Real trainings of many workers on this machine, recorded: what predictions are compared with."""

from real_training.recorded import RecordedRun, load_run
from real_training.training import Training, real_training

__all__ = ["RecordedRun", "Training", "load_run", "real_training"]
