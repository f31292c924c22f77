"""From PyTorch modules to the unified graph: one training step, op by op, as eager runs it."""

from paracosm.graphs.capture.options import PARALLEL, CaptureOptions, capture, training_step

__all__ = ["PARALLEL", "CaptureOptions", "capture", "training_step"]
