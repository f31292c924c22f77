"""From a graph, a profile database and a cluster to iteration time, throughput and memory."""

from paracosm.prediction.durations import constant
from paracosm.prediction.job import predict_job
from paracosm.prediction.predict import predict

__all__ = ["constant", "predict", "predict_job"]
