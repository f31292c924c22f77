"""Collectives of a trace: kind, size and group of the kernels that carry them out.

New traces say all of it at the kernel, older ones at the op that called it (`record_param_comms`)
or the range below (`nccl:all_reduce`), which enclose the launch; the oldest have the kernel's name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paracosm.timeline.kineto.trace import Collective, KinetoTrace
from paracosm.timeline.kineto.words import collective_of

__all__ = ["Calls"]


class Calls:
    """Finds what is said of the collective that a kernel is."""

    def __init__(self, trace: KinetoTrace) -> None:
        self._trace = trace
        rows = np.array(sorted(trace.collectives), dtype=np.int64)
        self._on = {
            lane: rows[trace.lane[rows] == lane] for lane in np.unique(trace.lane[rows]).tolist()
        }

    def of(self, row: int, call: int) -> Collective | None:
        """Return the collective that the span in `row` is, if it is one.

        Args:
            row: of the span.
            call: row of what launched it; -1 for none.
        """
        trace = self._trace
        own = trace.collectives.get(row)
        kind = collective_of(trace.text(row)) if own is None else own.kind
        if own is None and not kind:
            return None
        said = [own] if own is not None else []
        if call >= 0:
            said += self._around(int(trace.lane[call]), float(trace.begin[call]))
        kinds = [each.kind for each in said if each.kind]
        return Collective(
            kind=kinds[0] if kinds else kind,
            group=next((each.group for each in said if each.group), ""),
            ranks=next((each.ranks for each in said if each.ranks), ()),
            group_size=next((each.group_size for each in said if each.group_size), 0),
            size=next((each.size for each in said if each.size >= 0), -1),
        )

    def _around(self, lane: int, time: float) -> Sequence[Collective]:
        """Return what is said by the ranges that are open at an instant, the innermost first."""
        trace = self._trace
        rows = self._on.get(lane)
        if rows is None:
            return []
        at = int(np.searchsorted(trace.begin[rows], time, side="right"))
        near = rows[max(at - 4, 0) : at][::-1]
        return [trace.collectives[row] for row in near.tolist() if trace.end[row] >= time]
