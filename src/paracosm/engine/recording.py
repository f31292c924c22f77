"""Measured durations, kept so that a run can be repeated to the bit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from paracosm.errors import InputError, unknown

__all__ = ["Recording"]


class Recording:
    """For each worker, the seconds that its measured calls took, in order.

    `Simulator.recording` holds what a run measures. Given to another one with
    `Simulator(recording=...)`, the same calls take the same virtual time again.

    Args:
        durations: seconds, by the worker's name.
    """

    def __init__(self, durations: Mapping[str, Iterable[float]] | None = None) -> None:
        self.durations = {name: list(values) for name, values in (durations or {}).items()}

    def add(self, worker: str, duration: float) -> None:
        """Note that the next call of `worker` took `duration` seconds."""
        try:
            self.durations[worker].append(duration)
        except KeyError:
            self.durations[worker] = [duration]

    def save(self, path: str | Path) -> None:
        """Write it to a JSON file; `paracosm.timing.parse` describes it."""
        from paracosm.timing import save_recording

        save_recording(path, self.durations)

    @classmethod
    def load(cls, path: str | Path) -> Recording:
        """Return the recording that `save` wrote, equal to the bit.

        Raises:
            InputError: the file is missing, or is not a recording.
        """
        from paracosm.timing import load_recording

        return cls(load_recording(path))


class Replay:
    """A recording, and how far each worker has read it."""

    def __init__(self, recording: Recording) -> None:
        self._durations = recording.durations
        self._position = dict.fromkeys(recording.durations, 0)

    def next_of(self, worker: str) -> float:
        """Return the next duration of `worker`.

        Raises:
            InputError: the recording does not know the worker, or has no more of it.
        """
        if worker not in self._durations:
            raise unknown("worker of the recording", worker, self._durations)
        position = self._position[worker]
        series = self._durations[worker]
        if position == len(series):
            raise InputError(
                f"the recording holds {len(series)} durations of {worker}, and the run asks for "
                "one more: replay it with the program that it was recorded with"
            )
        self._position[worker] = position + 1
        return series[position]
