"""CUDA graphs of a device that is not there: what is captured once, and recorded at each replay.

While a stream captures, nothing runs: requests go to the graph. A replay is one launch of the host,
and then the same requests again, with events and collectives of its own. What was captured with an
optimizer's step ends an iteration at each replay.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import torch

from paracosm.emulation.device.memory import DeviceMemory
from paracosm.emulation.device.recording import (
    COLLECTIVE,
    DEVICE,
    EVENT,
    GRAPH,
    RECORD,
    STEP,
    STREAM,
    WAIT,
    WAIT_EVENT,
    Row,
)
from paracosm.emulation.device.state import Device

_WAITS_OF_HOST = (STREAM, EVENT, DEVICE)


def have_cuda_graphs(
    device: Device,
    next_collective: Callable[[], int],  # returns the number of a collective
    iteration_ended: Callable[[], None],
) -> None:
    """Let `torch.cuda.CUDAGraph` capture and replay requests."""
    writer, streams = device.writer, device.streams
    pools = itertools.count(1)
    replayed: set[int] = set()
    memory_of: dict[Any, _Pool] = {}

    class CUDAGraph:
        """Stands for `torch.cuda.CUDAGraph`."""

        def __init__(self, keep_graph: bool = False) -> None:
            self._rows: list[Row] | None = None
            self._stream = 0
            self._pool: Any = None

        def capture_begin(
            self, pool: Any = None, capture_error_mode: str = "global", **options: Any
        ) -> None:
            if writer.captured is not None:
                raise RuntimeError("a stream of this process captures already")
            if streams.current == 0:
                raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
            writer.flush()
            self._pool = pool if pool is not None else (0, next(pools))
            self._stream = streams.current
            if self._pool not in memory_of:
                memory_of[self._pool] = _Pool(device.memory)
            memory_of[self._pool].begin()
            self._rows = writer.captured = _Captured()

        def capture_end(self) -> None:
            writer.flush()
            writer.captured = None
            memory_of[self._pool].end(self)
            if self._rows and not replayed:
                writer.restart()  # iterations without the graph were preparation

        def instantiate(self) -> None:
            """Do nothing: what was captured can be replayed."""

        def replay(self) -> None:
            if self._rows is None:
                raise RuntimeError(
                    "Called CUDAGraph::replay without a preceding successful capture."
                )
            replayed.add(id(self))
            current = streams.current
            steps = [row for row in self._rows if row[0] == STEP]
            rows = [row for row in self._rows if row[0] != STEP]
            writer.add(GRAPH, current, number=len(rows), phase=device.phase)
            events: dict[int, int] = {}
            collectives: dict[int, int] = {}
            for kind, code, stream, phase, number, *place in rows:
                if kind == RECORD:
                    number = events[number] = streams.next_event()
                elif kind == WAIT_EVENT:
                    number = events.get(number, number)
                elif kind == COLLECTIVE:
                    number = collectives[number] = next_collective()
                elif kind == WAIT:
                    number = collectives.get(number, number)
                where = current if stream in (self._stream, 0) else stream
                writer.add(
                    kind, where, code=code, phase=phase, number=number, place=(place[0], place[1])
                )
            for _ in steps:
                iteration_ended()

        def reset(self) -> None:
            self._rows = None
            if self._pool is not None:
                memory_of[self._pool].leave(id(self))

        def pool(self) -> Any:
            return self._pool

        def register_generator_state(self, generator: Any) -> None:
            """Do nothing: nothing is drawn."""

        def enable_debug_mode(self) -> None:
            """Do nothing: there is nothing more to show."""

        debug_dump = raw_cuda_graph = raw_cuda_graph_exec = _nothing_to_show

    def is_capturing() -> bool:
        return writer.captured is not None

    modules: tuple[Any, ...] = torch.cuda, torch.cuda.graphs
    for where in modules:
        where.CUDAGraph = CUDAGraph
        where.graph_pool_handle = lambda: (0, next(pools))
        where.is_current_stream_capturing = is_capturing
    core: Any = torch._C
    core._cuda_isCurrentStreamCapturing = is_capturing
    core._host_emptyCache = lambda: None


def _nothing_to_show(graph: Any, *arguments: Any) -> Any:
    raise RuntimeError("a graph on a device that is not there has no nodes of CUDA's")


class _Captured(list[Row]):
    """The requests of a graph; the host cannot wait for what does not run."""

    def append(self, row: Row) -> None:
        if row[0] in _WAITS_OF_HOST:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        super().append(row)


class _Pool:
    """What graphs that share memory keep of it, beside tensors that outlive the capture."""

    def __init__(self, memory: DeviceMemory) -> None:
        self._memory = memory
        self._graphs: set[int] = set()
        self._size = self._before = self._highest = 0
        self._held: Any = None

    def begin(self) -> None:
        memory = self._memory
        self._before, self._highest = memory.allocated, memory.highest
        memory.highest = memory.allocated

    def end(self, graph: Any) -> None:
        memory = self._memory
        size = memory.highest - max(memory.allocated, self._before)
        memory.highest = max(self._highest, memory.allocated)
        self._graphs.add(id(graph))
        weakref.finalize(graph, self.leave, id(graph))
        if size > self._size:
            if self._held is not None:
                memory.release(self._held)
            self._size, self._held = size, memory.hold(size, "activations")

    def leave(self, graph: int) -> None:
        self._graphs.discard(graph)
        if not self._graphs and self._held is not None:
            self._memory.release(self._held)
            self._size, self._held = 0, None
