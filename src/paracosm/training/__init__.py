"""Hybrid simulation of distributed SGD: gradients are real, time and network are modelled.

Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect".
"""

from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.config import ScheduleTrainConfig, TrainConfig
from paracosm.training.record import Metrics, TrainingResult
from paracosm.training.server import ParameterServer
from paracosm.training.train import train

__all__ = [
    "Algorithm",
    "Metrics",
    "ParameterServer",
    "ScheduleTrainConfig",
    "TrainConfig",
    "TrainingResult",
    "train",
]
