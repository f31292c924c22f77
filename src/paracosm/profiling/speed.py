"""Timings made while a machine was fast and while it was slow, brought to one speed.

Shared machines change their speed by a fifth and more, for minutes at a time: what was timed before
and what was timed after cannot be added up as they are. The speed probe beside every timing says
what the machine was worth then; a duration is scaled by how long the same piece of work took.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paracosm.profiling.samples import OpTiming, Spread

__all__ = ["at_one_speed", "usual_probe"]


def usual_probe(timings: Sequence[OpTiming]) -> float:
    """Return the median of the timings' speed probes in seconds; 0 where nobody probed."""
    probes = [timing.probe for timing in timings if timing.probe > 0]
    return float(np.median(probes)) if probes else 0.0


def at_one_speed(timings: Sequence[OpTiming], probe: float | None = None) -> list[OpTiming]:
    """Return timings as they would be on a machine whose speed probe takes `probe` seconds.

    Args:
        timings: of one environment. Those that nobody probed stay as they are.
        probe: by default the timings' own median.
    """
    probe = usual_probe(timings) if probe is None else probe
    if probe <= 0:
        return list(timings)
    return [
        timing
        if timing.probe <= 0 or timing.probe == probe
        else replace(timing, time=_scaled(timing.time, probe / timing.probe), probe=probe)
        for timing in timings
    ]


def _scaled(time: Spread, factor: float) -> Spread:
    return Spread(
        count=time.count,
        mean=time.mean * factor,
        variance=time.variance * factor**2,
        minimum=time.minimum * factor,
        p10=time.p10 * factor,
        median=time.median * factor,
        p90=time.p90 * factor,
    )
