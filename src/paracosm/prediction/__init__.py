"""From a graph and a profile database to iteration time, throughput and memory."""

from paracosm.prediction.config import PredictConfig
from paracosm.prediction.durations import SOURCES, OpDurations, constant
from paracosm.prediction.environment import choose_environment
from paracosm.prediction.lookup import find_durations
from paracosm.prediction.predict import predict
from paracosm.prediction.prediction import Contribution, Prediction
from paracosm.prediction.run import run_prediction

__all__ = [
    "SOURCES",
    "Contribution",
    "OpDurations",
    "PredictConfig",
    "Prediction",
    "choose_environment",
    "constant",
    "find_durations",
    "predict",
    "run_prediction",
]
