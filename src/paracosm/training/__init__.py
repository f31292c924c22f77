"""Hybrid simulation of distributed SGD: gradients are real, time and network are modelled.

Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect".
"""

from paracosm.results.metrics import MetricSink
from paracosm.training.algorithms import ALGORITHMS, Algorithm
from paracosm.training.config import TrainConfig
from paracosm.training.record import Divergence, Metrics
from paracosm.training.result import TrainingResult
from paracosm.training.server import ParameterServer
from paracosm.training.train import train
from paracosm.training.worker import TrainingWorker

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Divergence",
    "MetricSink",
    "Metrics",
    "ParameterServer",
    "TrainConfig",
    "TrainingResult",
    "TrainingWorker",
    "train",
]
