"""Streams and events of a device that is not there: what waits for what is recorded.

A thread has a current stream, as in CUDA; 0 is the default one. A stream or an event is complete
as soon as anybody asks: nothing is computed, and the order is what is recorded.
"""

from __future__ import annotations

import importlib
import itertools
import threading
import time
from collections.abc import Mapping
from functools import wraps
from typing import Any

import torch

from paracosm.emulation.device.recording import (
    EVENT,
    RECORD,
    STREAM,
    WAIT_EVENT,
    RecordingWriter,
)


class _Current(threading.local):
    stream: int | None = None
    device = -1


class Streams:
    """The current stream and device, and the classes that scripts make streams and events of."""

    def __init__(
        self,
        writer: RecordingWriter,
        device: int,  # the number of the script's device, until it chooses another one
    ) -> None:
        self._current = _Current()
        self._device = device
        self._of_backward = 0  # the stream of who began the backward pass under way
        self.writer = writer
        self.events: Mapping[int, float] | None = None  # seconds of virtual time, by their number
        streams = itertools.count(1)
        self._events = itertools.count()

        class Stream:
            """Stands for `torch.cuda.Stream`."""

            def __init__(
                self,
                device: Any = None,
                priority: int = 0,
                stream_id: int | None = None,
                device_index: int | None = None,
                device_type: int = 1,
                **options: Any,
            ) -> None:
                self.stream_id = next(streams) if stream_id is None else stream_id
                self.device_index = index if (index := _index(device)) >= 0 else of.device
                self.device_type = device_type
                self.priority = priority
                self.cuda_stream = self._as_parameter_ = self.stream_id

            @property
            def device(self) -> torch.device:
                return torch.device("cuda", self.device_index)

            def wait_event(self, event: Any) -> None:
                writer.add(WAIT_EVENT, self.stream_id, number=event.number)

            def wait_stream(self, stream: Any) -> None:
                self.wait_event(stream.record_event())

            def record_event(self, event: Any = None) -> Any:
                event = Event() if event is None else event
                event.record(self)
                return event

            def synchronize(self) -> None:
                writer.add(STREAM, self.stream_id)

            def query(self) -> bool:
                return True

            def is_capturing(self) -> bool:
                return False

            def __eq__(self, other: object) -> bool:
                return isinstance(other, Stream) and other.stream_id == self.stream_id

            def __hash__(self) -> int:
                return hash(self.stream_id)

            def __enter__(self) -> Any:
                self._before = of.chosen
                of.current = self.stream_id
                return self

            def __exit__(self, *error: object) -> None:
                of.current = self._before

        class Event:
            """Stands for `torch.cuda.Event`."""

            def __init__(
                self,
                enable_timing: bool = False,
                blocking: bool = False,
                interprocess: bool = False,
                external: bool = False,
            ) -> None:
                self.number = -1
                self.event_id = self.cuda_event = id(self)
                self.device = torch.device("cuda", of.device)
                self._at = 0.0

            def record(self, stream: Any = None) -> None:
                self.number = of.next_event()  # each record is an event of its own
                self._at = time.perf_counter()
                where = of.current if stream is None else stream.stream_id
                writer.add(RECORD, where, number=self.number)

            def wait(self, stream: Any = None) -> None:
                where = of.current if stream is None else stream.stream_id
                writer.add(WAIT_EVENT, where, number=self.number)

            def synchronize(self) -> None:
                writer.add(EVENT, of.current, number=self.number)

            def query(self) -> bool:
                return True

            def _seconds_until(self, end: Any) -> float:
                if of.events is None:
                    return float(max(end._at - self._at, 0.0))
                begin = of.events.get(self.number, 0.0)
                return max(of.events.get(end.number, begin) - begin, 0.0)

            def elapsed_time(self, end: Any) -> float:
                return 1e3 * self._seconds_until(end)

        class StreamContext:
            """Stands for `torch.cuda.stream` and `torch.cuda.StreamContext`."""

            def __init__(self, stream: Any) -> None:
                self.stream = stream

            def __enter__(self) -> Any:
                self._before = of.chosen
                if self.stream is not None:
                    of.current = self.stream.stream_id
                return self.stream

            def __exit__(self, *error: object) -> None:
                of.current = self._before

        of = self
        self.Stream, self.Event, self.StreamContext = Stream, Event, StreamContext

    def next_event(self) -> int:
        """Return the number of a new event."""
        return next(self._events)

    @property
    def current(self) -> int:
        chosen = self._current.stream
        return self._of_backward if chosen is None else chosen

    @current.setter
    def current(self, stream: int | None) -> None:
        self._current.stream = stream

    def set_stream(self, stream: Any) -> None:
        self.current = stream.stream_id

    @property
    def chosen(self) -> int | None:
        """The stream that this thread has chosen; None where it has not."""
        return self._current.stream

    def follow_backward(self) -> None:
        """Let the threads of a backward pass be on the stream of who began it."""
        module: Any = importlib.import_module("torch.autograd.graph")
        autograd: Any = torch.autograd
        run = module._engine_run_backward

        @wraps(run)
        def _engine_run_backward(*arguments: Any, **options: Any) -> Any:
            before, self._of_backward = self._of_backward, self.current
            try:
                return run(*arguments, **options)
            finally:
                self._of_backward = before

        for where in (module, autograd):
            where._engine_run_backward = _engine_run_backward

    @property
    def device(self) -> int:
        chosen = self._current.device
        return self._device if chosen < 0 else chosen

    def set_device(self, device: int) -> None:
        if device >= 0:
            self._current.device = device
            self._device = device  # of threads that have chosen none: autograd's

    def exchange_device(self, device: int) -> int:
        before = self.device
        self.set_device(device)
        return before


def _index(device: Any) -> int:
    if device is None:
        return -1
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return -1 if index is None else index
