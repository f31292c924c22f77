"""Who takes part in a run: workers, parameter servers, and the all-reduce between workers."""

from paracosm.training.roles.all_reduce import AllReduce
from paracosm.training.roles.server import ParameterServer
from paracosm.training.roles.worker import TrainingWorker

__all__ = ["AllReduce", "ParameterServer", "TrainingWorker"]
