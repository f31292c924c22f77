"""From a graph, a profile database and a cluster to iteration time, throughput and memory."""

from typing import TYPE_CHECKING

from paracosm.exports import exported_from

if TYPE_CHECKING:
    from paracosm.prediction.iteration import predict
    from paracosm.prediction.job import predict_job

__all__ = ["predict", "predict_job"]

__getattr__ = exported_from(
    __name__,
    {
        "job": ("predict_job",),
        "iteration": ("predict",),
    },
)
