"""Traces that PyTorch's profiler (Kineto) wrote: one rank's spans as arrays, and what they show."""

from paracosm.timeline.kineto.calls import Calls
from paracosm.timeline.kineto.ranges import Ranges, Steps, steps_of_training
from paracosm.timeline.kineto.read import is_kineto, read_kineto
from paracosm.timeline.kineto.spans import DeviceSpans, device_spans
from paracosm.timeline.kineto.streams import waits_between_streams
from paracosm.timeline.kineto.trace import (
    CATEGORIES,
    Collective,
    KinetoTrace,
    Lane,
    Synchronisation,
)
from paracosm.timeline.kineto.window import (
    Step,
    Window,
    backward_threads,
    steps_of,
    window_of,
)

__all__ = [
    "CATEGORIES",
    "Calls",
    "Collective",
    "DeviceSpans",
    "KinetoTrace",
    "Lane",
    "Ranges",
    "Step",
    "Steps",
    "Synchronisation",
    "Window",
    "backward_threads",
    "device_spans",
    "is_kineto",
    "read_kineto",
    "steps_of",
    "steps_of_training",
    "waits_between_streams",
    "window_of",
]
