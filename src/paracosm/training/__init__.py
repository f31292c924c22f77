"""Hybrid simulation of distributed SGD: gradients are real, time and network are modelled.

Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect".
"""

from typing import TYPE_CHECKING

from paracosm.exports import exported_from

if TYPE_CHECKING:
    from paracosm.training.algorithms.algorithm import Algorithm
    from paracosm.training.config import ScheduleTrainConfig, TrainConfig
    from paracosm.training.record import Metrics, TrainingResult
    from paracosm.training.run import train
    from paracosm.training.run_state import Topology
    from paracosm.training.server import ParameterServer
    from paracosm.training.worker import TrainingWorker

__all__ = [
    "Algorithm",
    "Metrics",
    "ParameterServer",
    "ScheduleTrainConfig",
    "Topology",
    "TrainConfig",
    "TrainingResult",
    "TrainingWorker",
    "train",
]

__getattr__ = exported_from(
    __name__,
    {
        "algorithms.algorithm": ("Algorithm",),
        "config": ("ScheduleTrainConfig", "TrainConfig"),
        "record": ("Metrics", "TrainingResult"),
        "server": ("ParameterServer",),
        "run": ("train",),
        "run_state": ("Topology",),
        "worker": ("TrainingWorker",),
    },
)
