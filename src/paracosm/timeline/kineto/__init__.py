"""Traces of PyTorch's profiler (Kineto): one rank's spans as arrays, and their interpretation."""

from paracosm.timeline.kineto.device import op_times
from paracosm.timeline.kineto.read import is_kineto, read_kineto

__all__ = ["is_kineto", "op_times", "read_kineto"]
