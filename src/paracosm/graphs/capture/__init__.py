"""From PyTorch modules to the unified graph: one training step, op by op, as eager runs it."""

from paracosm.graphs.capture.options import OPTIMIZERS, PARALLEL, CaptureOptions
from paracosm.graphs.capture.steps import capture, training_step
from paracosm.graphs.capture.workload import Workload

__all__ = [
    "OPTIMIZERS",
    "PARALLEL",
    "CaptureOptions",
    "Workload",
    "capture",
    "training_step",
]
