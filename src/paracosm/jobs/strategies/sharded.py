"""ZeRO (Rajbhandari et al. 2020) and FSDP (Zhao et al. 2023): ranks share what DDP copies.

Stage 1 divides the optimizer's state: gradients are reduced and scattered, every rank updates its
share, and all gather the parameters. Stage 2 divides the gradients as well, stage 3 (FSDP) also the
parameters: each layer's are gathered before its forward and its backward pass, and dropped after.
With `prefetch` = 1 the next layer's are fetched while one computes, and no more:

    communication | gather 0 | gather 1 | gather 2 | ... | gather 1 | scatter 2 | gather 0 | ...
    compute                  | forward 0 | forward 1 |...| backward 2 | backward 1 | ...

A gather waits until the layer `prefetch` + 1 places before it is done: so many are there at a time.
Gathers and scatters take turns on one lane, as NCCL's on one communicator.
"""

from __future__ import annotations

from collections.abc import Sequence

from paracosm.jobs.blocks import HERE
from paracosm.jobs.strategies.rows import Ready, RowWriter
from paracosm.jobs.strategies.stage import Stage, collective
from paracosm.jobs.strategies.work import COMMUNICATION, COMPUTE

__all__ = ["Gathers"]


class Gathers:
    """Writes the gathers of one pass; none where parameters are not sharded.

    Args:
        stage: whose.
        rows: the pass.
        layers: that it goes through, in order; those without parameters are passed over.
    """

    def __init__(self, stage: Stage, rows: RowWriter, layers: Sequence[int]) -> None:
        self._stage, self._rows = stage, rows
        sizes = stage.plan.layer_parameters
        self._sizes = [int(sizes[layer]) for layer in layers]
        self._names = [stage.plan.layers.names[layer] for layer in layers]
        self._units = [n for n, size in enumerate(self._sizes) if size and stage.plan.gathers]
        self._ahead = min(stage.plan.strategy.prefetch, len(sizes))
        self._place = {number: unit for unit, number in enumerate(self._units)}
        self._gathered: list[int] = []
        self._ended: list[int] = []

    def begin(self, number: int) -> None:
        """Gather what the `number`-th layer needs, and those that come ahead of their use."""
        if number not in self._place:
            return
        unit = self._place[number]
        while len(self._gathered) <= min(unit + self._ahead, len(self._units) - 1):
            self._gather(len(self._gathered))
        self._rows.wait({(COMMUNICATION, HERE): self._gathered[unit]})

    def end(self, number: int) -> None:
        """Drop the parameters of the `number`-th layer."""
        if number in self._place:
            row = self._rows.writer.last.get(COMPUTE, self._gathered[self._place[number]])
            self._rows.writer.release(self._sizes[number], row)
            self._ended.append(row)

    def close(self) -> None:
        """Tell the blocks that follow when the last layers were dropped."""
        for back in range(self._ahead + 1 if self._ended else 0):
            place = max(len(self._ended) - 1 - back, 0)
            self._rows.writer.mark(_dropped(back), self._ended[place])

    def _gather(self, unit: int) -> None:
        number, writer = self._units[unit], self._rows.writer
        before = unit - 1 - self._ahead
        there: Ready = (
            {(COMPUTE, HERE): self._ended[before]}
            if before >= 0
            else {(COMPUTE, _dropped(-1 - before)): 0}
        )
        name = f"all-gather {self._names[number]}"
        size = self._sizes[number]
        task = collective(self._stage, writer, name, "all_gather", size, there)
        writer.hold(size, task)
        self._gathered.append(task)


def _dropped(back: int) -> str:
    """Return the anchor of the end of the layer so many places before the last one."""
    return f"dropped {back}"
