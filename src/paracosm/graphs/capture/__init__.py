"""From PyTorch modules to the unified graph: one training step, op by op, as in eager mode."""

from paracosm.graphs.capture.capture import capture, training_step
from paracosm.graphs.capture.options import CaptureOptions

__all__ = ["CaptureOptions", "capture", "training_step"]
