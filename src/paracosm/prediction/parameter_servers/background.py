"""Traffic of others in the ports of servers: "2 flows", "2 flows, 3s on, 10s off"."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.units import parse_duration

__all__ = ["Background", "background_changes", "parse_background"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST = 1_000_000
"""Changes of the background traffic in one simulation."""

EXAMPLE = 'write "2 flows", or "2 flows, 3s on, 10s off"'


@dataclass(frozen=True)
class Background:
    """Flows that share each port of a server, in both directions, like those of a worker each.

    Attributes:
        flows: how many at a time.
        on: seconds for which they are there.
        off: seconds for which they are then not; 0: they are always there.
    """

    flows: int
    on: float = float("inf")
    off: float = 0.0


def parse_background(text: str) -> Background:
    """Return the background traffic that a text describes.

    Raises:
        InputError: it cannot be read, or its times are not above 0.
    """
    match = re.fullmatch(
        r"(\d+)(?:\s*flows?)?(?:\s*,\s*([^,]+?)\s+on\s*,\s*([^,]+?)\s+off)?", text.strip()
    )
    if match is None:
        raise InputError(f'cannot read "{text}" as background traffic: {EXAMPLE}')
    if match[2] is None:
        return Background(int(match[1]))
    on, off = parse_duration(match[2]), parse_duration(match[3])
    for what, seconds in (("on", on), ("off", off)):
        if not (seconds > 0 and np.isfinite(seconds)):
            raise InputError(f"the time {what} is above 0 and finite: {EXAMPLE}")
    return Background(int(match[1]), on, off)


def background_changes(background: Background, horizon: float) -> tuple[Floats, Ints]:
    """Return when the number of flows changes, and what it is from then on.

    Args:
        background: they are there from time 0 on.
        horizon: seconds that are simulated at most.

    Raises:
        InputError: it changes more than `MOST` times until then.
    """
    if not background.off:
        return np.zeros(1), np.full(1, background.flows)
    period = background.on + background.off
    count = np.ceil(horizon / period)
    if 2 * count > MOST:
        raise InputError(
            f"background: changes more than {MOST:,} times in the simulated time: take longer times"
        )
    begins = period * np.arange(int(count))
    times = np.stack([begins, begins + background.on], axis=1).ravel()
    return times, np.tile([background.flows, 0], len(begins))
