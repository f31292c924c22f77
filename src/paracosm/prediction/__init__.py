"""From a graph, a profile database and a cluster to iteration time, throughput and memory."""

from paracosm.prediction.job import predict_job
from paracosm.prediction.predict import predict
from paracosm.profiling.durations import constant, find_durations

__all__ = ["constant", "find_durations", "predict", "predict_job"]
