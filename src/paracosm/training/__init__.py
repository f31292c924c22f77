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
    from paracosm.training.server import ParameterServer

__all__ = [
    "Algorithm",
    "Metrics",
    "ParameterServer",
    "ScheduleTrainConfig",
    "TrainConfig",
    "TrainingResult",
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
    },
)
