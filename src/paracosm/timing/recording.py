"""Measured durations on disk: JSON, with the clock that measured them.

    {"clock": "perf_counter", "durations": {"worker0": [0.0213, 0.0198], "worker1": [0.0204]}}

A plain list of seconds, alone or as the value of "durations", is read as well. Floats are written
with all their digits, so that a replay is exact to the bit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paracosm.errors import InputError, unknown

__all__ = ["load_durations", "load_recording", "save_recording"]

_ONLY = "durations"  # the name of the series in a file that holds a plain list


def save_recording(
    path: str | Path, durations: Mapping[str, Sequence[float]], *, clock: str = "perf_counter"
) -> None:
    """Write the series of `durations` (seconds), each under its name, measured by `clock`."""
    series = {name: [float(value) for value in values] for name, values in durations.items()}
    Path(path).write_text(json.dumps({"clock": clock, "durations": series}), encoding="utf-8")


def load_recording(path: str | Path) -> dict[str, tuple[float, ...]]:
    """Return every series of durations (seconds) of the file at `path`, by name.

    Raises:
        InputError: the file is missing, is not such a file, or holds a negative or NaN duration.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f'no recording at "{path}"') from None
    except (OSError, ValueError) as error:
        raise InputError(f'cannot read the recording "{path}": {error}') from None
    durations = content.get("durations") if isinstance(content, dict) else content
    if isinstance(durations, list):
        durations = {_ONLY: durations}
    if not isinstance(durations, dict):
        raise InputError(f'"{path}" is not a recording: it holds no "durations"')
    return {name: _checked(path, name, values) for name, values in durations.items()}


def load_durations(path: str | Path, series: str | None = None) -> tuple[float, ...]:
    """Return the named `series` of the file at `path`, or its only one.

    Raises:
        InputError: as `load_recording`; there is no such series; there are several, and none named.
    """
    recording = load_recording(path)
    if series is None:
        if len(recording) != 1:
            names = ", ".join(recording) or "none"
            raise InputError(f'name one series of "{path}", such as series=worker0; it has {names}')
        return next(iter(recording.values()))
    if series not in recording:
        raise unknown(f'series of "{path}"', series, recording)
    return recording[series]


def _checked(path: str | Path, name: str, values: Any) -> tuple[float, ...]:
    if not isinstance(values, list):
        raise InputError(f'"{path}": the series "{name}" is not a list of seconds')
    for position, value in enumerate(values):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value < math.inf:
            raise InputError(
                f'"{path}": {name}[{position}] is {value!r}, not a duration in seconds'
            )
    return tuple(map(float, values))
