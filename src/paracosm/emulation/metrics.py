"""Metrics and progress of an emulated job, from its records as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from paracosm.emulation.by_rank import by_rank
from paracosm.emulation.iterations import measured_iterations
from paracosm.emulation.records import Collective, Iteration, Record, Wait
from paracosm.timeline.analysis import parts_between

__all__ = ["Metrics", "Sink"]


class Sink(Protocol):
    """What takes metrics: a run folder."""

    def metric(
        self, virtual_time: float, wall_time: float, node: str, name: str, value: float, step: int
    ) -> None:
        """Add one row."""


class Metrics:
    """Writes rows for every iteration of every real rank, and counts them for a progress bar.

    Rows: `iteration_time` in seconds, from the second iteration on; `cpu`, processor seconds per
    second; and in the end `exposed` and `hidden`, seconds of communication in the iteration. Both
    times of a row are seconds since the first record of the job.
    """

    def __init__(
        self, sink: Sink | None, progress: Callable[[int, float | None], None] | None = None
    ) -> None:
        self._sink = sink
        self._progress = progress
        self._last: dict[int, Iteration] = {}
        self._begun: float | None = None
        self._done = 0

    def restart(self) -> None:
        """Begin with another run of the script: its first iteration follows none of the last."""
        self._last.clear()

    def hear(self, records: Sequence[Record]) -> None:
        """Take in what was recorded since the last call."""
        for record in records:
            if self._begun is None:
                self._begun = _time_of(record)
            if isinstance(record, Iteration):
                self._iteration(record)

    def exposure(self, records: Sequence[Record]) -> None:
        """Add how much communication was exposed and hidden in every iteration of a run.

        Args:
            records: all of the run's.
        """
        if self._sink is None or self._begun is None:
            return
        for own in by_rank(records):
            iterations = measured_iterations(own.iterations)
            parts = parts_between(iterations.begin, iterations.end, own.spans, own.waits)
            for name, seconds in (("exposed", parts.exposed), ("hidden", parts.hidden)):
                rows = zip(iterations.number, iterations.end - self._begun, seconds, strict=True)
                for number, time, value in rows:
                    row = (float(time), float(time), f"rank{own.rank}", name)
                    self._sink.metric(*row, float(value), int(number))

    def _iteration(self, record: Iteration) -> None:
        before = self._last.get(record.rank)
        self._last[record.rank] = record
        if before is not None and self._sink is not None:
            time = record.end - (self._begun or 0.0)
            took = record.end - before.end
            node = f"rank{record.rank}"
            self._sink.metric(time, time, node, "iteration_time", took, record.number)
            if took > 0:
                share = (record.cpu - before.cpu) / took
                self._sink.metric(time, time, node, "cpu", share, record.number)
        if record.rank == min(self._last):
            self._done += 1
            if self._progress is not None:
                self._progress(self._done, None)


def _time_of(record: Record) -> float | None:
    match record:
        case Collective():
            return record.asked
        case Wait():
            return record.begin
        case Iteration():
            return record.end
    return None
