"""Traces that PyTorch's profiler (Kineto) wrote: one rank's spans as arrays, and what they show."""

from paracosm.timeline.kineto.device import (
    Calls,
    DeviceSpans,
    OpSpan,
    device_spans,
    op_times,
    waits_between_streams,
)
from paracosm.timeline.kineto.read import KinetoFile, is_kineto, open_kineto, read_kineto
from paracosm.timeline.kineto.trace import (
    CATEGORIES,
    MESSAGES,
    Collective,
    Inputs,
    KinetoTrace,
    Lane,
    Step,
    Steps,
    Window,
    backward_threads,
    collective_of,
    steps_of,
    steps_of_training,
    window_of,
)

__all__ = [
    "CATEGORIES",
    "MESSAGES",
    "Calls",
    "Collective",
    "DeviceSpans",
    "Inputs",
    "KinetoFile",
    "KinetoTrace",
    "Lane",
    "OpSpan",
    "Step",
    "Steps",
    "Window",
    "backward_threads",
    "collective_of",
    "device_spans",
    "is_kineto",
    "op_times",
    "open_kineto",
    "read_kineto",
    "steps_of",
    "steps_of_training",
    "waits_between_streams",
    "window_of",
]
