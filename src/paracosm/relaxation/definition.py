"""Definition 1: whether a run was an asynchronous iteration, as far as a finite run can show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paracosm.relaxation.result import RelaxationResult
from paracosm.relaxation.spec import RunSpec

__all__ = ["Definition1", "definition_1"]


@dataclass(frozen=True)
class Definition1:
    """The three conditions of Definition 1 (Coleman, Jensen, Sosonkina, section 3).

    Attributes:
        finished_only: s_i(k) <= k - 1: only finished components were read. True by construction: a
            value is read after it is written, and written when it is complete.
        newest_used: s_i(k) grows without bound. In a finite run: no update used values older than
            half of all updates, and no processor wrote stale ones.
        all_updated: every component goes on being updated. In a finite run: every processor updated
            in the last half of it.
        sentence: the same in words.
    """

    finished_only: bool
    newest_used: bool
    all_updated: bool
    sentence: str


_LONG = 10  # updates of a processor, on average, before anything can be told


def definition_1(spec: RunSpec, result: RelaxationResult) -> Definition1:
    """Hold a run against Definition 1."""
    total = int(result.updates.sum())
    half = result.virtual_time / 2
    silent = np.flatnonzero(result.last_update < half)
    newest = result.staleness.most < max(total / 2, spec.processors)
    if total < _LONG * spec.processors:
        return Definition1(True, True, True, "too short a run to tell whether Definition 1 held")
    if silent.size == 0 and newest:
        held = "the three conditions of Definition 1 held, as far as a finite run can show"
    else:
        reasons = []
        if not newest:
            reasons.append(
                f"an update used values that were {result.staleness.most} updates old (condition 2)"
            )
        if silent.size:
            who = ", ".join(str(processor) for processor in silent[:5])
            more = f" and {silent.size - 5} others" if silent.size > 5 else ""
            reasons.append(f"processor {who}{more} stopped updating (condition 3)")
        held = "Definition 1 did not hold: " + "; ".join(reasons)
    return Definition1(True, newest, silent.size == 0, held)
