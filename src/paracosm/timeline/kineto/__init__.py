"""Traces that PyTorch's profiler (Kineto) wrote: one rank's spans as arrays, and what they show."""

from paracosm.timeline.kineto.calls import Calls
from paracosm.timeline.kineto.op_times import OpSpan, op_times
from paracosm.timeline.kineto.ranges import Ranges, Steps, steps_of_training
from paracosm.timeline.kineto.read import is_kineto, read_kineto
from paracosm.timeline.kineto.spans import DeviceSpans, device_spans
from paracosm.timeline.kineto.streams import waits_between_streams
from paracosm.timeline.kineto.trace import (
    CATEGORIES,
    Collective,
    Inputs,
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
from paracosm.timeline.kineto.words import collective_of

__all__ = [
    "CATEGORIES",
    "Calls",
    "Collective",
    "DeviceSpans",
    "Inputs",
    "KinetoTrace",
    "Lane",
    "OpSpan",
    "Ranges",
    "Step",
    "Steps",
    "Synchronisation",
    "Window",
    "backward_threads",
    "collective_of",
    "device_spans",
    "is_kineto",
    "op_times",
    "read_kineto",
    "steps_of",
    "steps_of_training",
    "waits_between_streams",
    "window_of",
]
