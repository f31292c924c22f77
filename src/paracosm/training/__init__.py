"""Hybrid simulation of distributed SGD: gradients are real, time and network are modelled.

Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect".
"""

from paracosm.training.algorithms import ALGORITHMS, Algorithm
from paracosm.training.config import TrainConfig
from paracosm.training.job import Divergence, Metrics, MetricSink
from paracosm.training.train import TrainingResult, train

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Divergence",
    "MetricSink",
    "Metrics",
    "TrainConfig",
    "TrainingResult",
    "train",
]
