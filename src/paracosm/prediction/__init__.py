"""From a graph, a profile database and a cluster to iteration time, throughput and memory."""

from paracosm.prediction.config import PredictConfig
from paracosm.prediction.durations import SOURCES, constant, find_durations
from paracosm.prediction.job import JobPrediction, predict_job
from paracosm.prediction.predict import Contribution, Prediction, predict
from paracosm.prediction.replica import choose_environment
from paracosm.prediction.run import run_prediction

__all__ = [
    "SOURCES",
    "Contribution",
    "JobPrediction",
    "PredictConfig",
    "Prediction",
    "choose_environment",
    "constant",
    "find_durations",
    "predict",
    "predict_job",
    "run_prediction",
]
