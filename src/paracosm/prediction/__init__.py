"""From a graph, a profile database and a cluster to iteration time, throughput and memory."""

from paracosm.prediction.durations import constant, find_durations
from paracosm.prediction.job import predict_job
from paracosm.prediction.predict import predict

__all__ = ["constant", "find_durations", "predict", "predict_job"]
