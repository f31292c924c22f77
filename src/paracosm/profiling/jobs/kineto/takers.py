"""Which op of the forward pass takes the parameter that a gradient belongs to.

Autograd hands a gradient to its parameter (`AccumulateGrad`) at once when the last op that
contributes to it has run, before any other (`torch/csrc/autograd/functions/accumulate_grad.cpp`:
its sequence number is the highest there is). So that op is the one before it. Of the ops of the
forward pass, the last one with its sequence number is the one whose gradient it is, and it takes
the parameter. Backward passes run from the last use to the first: for parameters with several
uses, this is the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.timeline.kineto import KinetoTrace
from paracosm.timeline.kineto.trace import is_backward

__all__ = ["Takers"]

Ints = npt.NDArray[np.int64]


class Takers:
    """Finds the ops of the forward pass that take the parameters.

    Args:
        trace: in which they are.
        rows: of the step's ops, ascending.
    """

    def __init__(self, trace: KinetoTrace, rows: Ints) -> None:
        self._trace = trace
        self._contributing: list[int] = []
        self._forward: dict[int, int] = {}
        self._calls: list[int] = []
        for row in rows.tolist():
            sequence = int(trace.sequence[row])
            if not is_backward(trace.text(row)):
                self._calls.append(row)
                if sequence >= 0:
                    self._forward[sequence] = row
            elif sequence >= 0:
                self._contributing.append(row)
        self._begins = trace.begin[self._contributing]
        self._backward_from = float(self._begins.min(initial=np.inf))
        self._calls = [row for row in self._calls if trace.begin[row] < self._backward_from]
        self._ran_first: dict[int, int] = {}

    def of(self, row: int) -> tuple[int, str]:
        """Return the row of the op that takes the parameter of an `AccumulateGrad`, and how it was
        found: by "sequence number", "as recomputed" (the backward pass ran the forward pass again:
        by name and shapes), or -1, "not found".
        """
        at = int(np.searchsorted(self._begins, self._trace.begin[row])) - 1
        if at < 0:
            return -1, "not found"
        taker = self._forward.get(int(self._trace.sequence[self._contributing[at]]), -1)
        if taker < 0:
            return -1, "not found"
        if self._trace.begin[taker] < self._backward_from:
            return taker, "sequence number"
        first = self._ran_first_as(taker)
        return (first, "as recomputed") if first >= 0 else (-1, "not found")

    def _ran_first_as(self, taker: int) -> int:
        """Return the row of the call that one within the backward pass repeats, or -1.

        Calls are repeated from the last to the first, so it is the last one not taken yet.
        """
        if taker not in self._ran_first:
            wanted = self._looks(taker)
            taken = set(self._ran_first.values())
            alike = (
                row
                for row in reversed(self._calls)
                if row not in taken and self._looks(row) == wanted
            )
            self._ran_first[taker] = next(alike, -1)
        return self._ran_first[taker]

    def _looks(self, row: int) -> tuple[Any, ...]:
        inputs = self._trace.inputs.get(row)
        return int(self._trace.name[row]), inputs and inputs.shapes
