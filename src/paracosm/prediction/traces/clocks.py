"""The clocks of several machines, brought together by the collectives at which their ranks meet.

A collective ends on all of its ranks at once, to some microseconds. Where ranks disagree by more in
the median, their clocks do: the traces of such a rank are moved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paracosm.prediction.traces.groups import Group

__all__ = ["TOLERANCE", "shifts"]

TOLERANCE = 100e-6  # seconds; ranks of one machine agree within ten microseconds


def shifts(origins: Mapping[int, int], groups: Sequence[Group]) -> dict[int, float]:
    """Return seconds to add to the times of each rank, which count from its own origin.

    The earliest origin is 0. Ranks that share no collective are taken by their clocks.

    Args:
        origins: nanoseconds on the clock of each rank.
        groups: with the collectives that meet.
    """
    start = min(origins.values())
    offset = {rank: (origin - start) * 1e-9 for rank, origin in origins.items()}
    settled: set[int] = set()
    for group in sorted(groups, key=lambda each: -len(each.ranks)):
        if not group.calls[0]:
            continue
        known = [rank for rank in group.ranks if rank in settled] or [group.ranks[0]]
        ends = {
            rank: np.array([piece.end for piece in calls]) + offset[rank]
            for rank, calls in zip(group.ranks, group.calls, strict=True)
        }
        agreed = np.median([ends[rank] for rank in known], axis=0)
        for rank in group.ranks:
            late = float(np.median(ends[rank] - agreed))
            if rank not in settled and abs(late) > TOLERANCE:
                offset[rank] -= late
            settled.add(rank)
    return offset
