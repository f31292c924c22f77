"""Virtual time, as the script itself sees it while it is recorded.

The host's clock and the instants at which streams and groups are done are kept as requests come, in
a few additions each. What a script measures by its own clocks is then about what the job takes;
the answer of the run is exact, since it knows what comes later (`program.py`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from paracosm.emulation.device.program import CollectiveCosts
from paracosm.emulation.device.recording import (
    DEVICE,
    EVENT,
    GRAPH,
    HOST,
    RECORD,
    STREAM,
    WAIT,
    WAIT_EVENT,
    Call,
)
from paracosm.emulation.records import MESSAGES
from paracosm.errors import InputError
from paracosm.graphs.graph import Op


class VirtualClock:
    """When host, streams, groups and events of one rank are done, in seconds from its beginning."""

    def __init__(
        self,
        seconds_of: Callable[[Op, int, bool], float],  # of an op in a phase, and whether a copy
        costs: CollectiveCosts,
        rank: int,
        launch: float,
        refuse: Callable[[str], Exception],
        *,
        is_device: bool = False,  # whether the host computes itself: a CPU
    ) -> None:
        self.host = 0.0
        self.in_graph = False
        self.events: dict[int, float] = {}
        self._seconds_of, self._costs, self._rank, self._launch = seconds_of, costs, rank, launch
        self._refuse, self._is_device = refuse, is_device
        self._streams: dict[int, float] = {}
        self._groups: dict[tuple[str, str], float] = {}
        self._collectives: dict[int, float] = {}
        self._seconds: dict[int, float] = {}  # of ops, by their code

    def op(self, code: int, op: Op, phase: int, stream: int, *, is_copy: bool) -> None:
        seconds = self._seconds.get(code)
        if seconds is None:
            try:
                seconds = self._seconds_of(op, phase, is_copy)
            except InputError as error:  # numbers that the device does not multiply
                raise self._refuse(str(error)) from None
            self._seconds[code] = seconds
        self._launched()
        self._streams[stream] = max(self._streams.get(stream, 0.0), self.host) + seconds
        if self._is_device:
            self.host = self._streams[stream]

    def collective(self, call: Call, members: tuple[int, ...], stream: int, number: int) -> None:
        self._launched()
        if call.kind in MESSAGES:
            sent, later = self._costs.of_message(call, self._rank)
            seconds = sent + later
        else:
            seconds = self._costs.of(call, members, self._rank)
        lane = call.group, call.kind if call.kind in MESSAGES else ""
        ready = self.host if stream == HOST else max(self._streams.get(stream, 0.0), self.host)
        done = max(self._groups.get(lane, 0.0), ready) + seconds
        self._groups[lane] = self._collectives[number] = done

    def request(self, kind: int, stream: int, number: int) -> None:
        """Take what takes no time of the device: waits, and events."""
        if kind == GRAPH:
            self._launched()
        elif kind == RECORD:
            self.events[number] = self._streams.get(stream, 0.0)
        elif kind == WAIT:
            self._wait(stream, self._collectives.get(number, 0.0))
        elif kind == WAIT_EVENT:
            self._wait(stream, self.events.get(number, 0.0))
        elif kind == STREAM:
            self._wait(HOST, self._streams.get(stream, 0.0))
        elif kind == EVENT:
            self._wait(HOST, self.events.get(number, 0.0))
        elif kind == DEVICE:
            self._wait(HOST, max(self._streams.values(), default=0.0))

    def _launched(self) -> None:
        if not self.in_graph:
            self.host += self._launch

    def _wait(self, stream: int, until: float) -> None:
        if stream == HOST:
            self.host = max(self.host, until)
        else:
            self._streams[stream] = max(self._streams.get(stream, 0.0), until)


_SECONDS = ("time", "perf_counter", "monotonic")
_NOT_FOR = frozenset({"torch", "paracosm", *sys.stdlib_module_names})


def show_virtual_time(clock: VirtualClock) -> None:
    """Let the clocks of `time` go by virtual time, for scripts and the libraries that they use.

    PyTorch and Python's own library keep the real ones: they wait for threads and processes.
    """
    module: Any = time
    for name in _SECONDS:
        real: Callable[[], float] = getattr(module, name)
        setattr(module, name, _virtual(real, real(), clock, 1.0))
        whole: Callable[[], int] = getattr(module, f"{name}_ns")
        setattr(module, f"{name}_ns", _virtual(whole, whole(), clock, 1e9))


def _virtual(real: Callable[[], Any], begin: Any, clock: VirtualClock, scale: float) -> Any:
    @wraps(real)
    def now() -> Any:
        asking = str(sys._getframe(1).f_globals.get("__name__")).partition(".")[0]
        if asking in _NOT_FOR:
            return real()
        return begin + type(begin)(clock.host * scale)

    return now
