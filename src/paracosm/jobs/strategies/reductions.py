"""Gradients that are reduced, and parameters that are gathered, between data-parallel ranks.

PyTorch's DDP reduces gradients in buckets, each as soon as its last gradient is there (Li et al.
2020, section 3.2.3), on a lane of its own that slows no computation down. With several
micro-batches the gradients are added up, and reduced with the last one.

ZeRO (Rajbhandari et al. 2020) and FSDP (Zhao et al. 2023) share what DDP copies. Stage 1 divides
the optimizer's state: gradients are reduced and scattered, every rank updates its share, and all
gather the parameters. Stage 2 divides the gradients as well, stage 3 (FSDP) also the parameters:
each layer's are gathered before its forward and its backward pass, and dropped after. Gathers and
scatters take turns on one lane, as NCCL's on one communicator; with `prefetch` = 1:

    communication | gather 0 | gather 1 | gather 2 | ... | gather 1 | scatter 2 | gather 0 | ...
    compute                  | forward 0 | forward 1 |...| backward 2 | backward 1 | ...

A gather waits until the layer `prefetch` + 1 places before it is done: so many are there at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from paracosm.jobs.blocks import HERE
from paracosm.jobs.strategies.layers import Bucket, buckets_of
from paracosm.jobs.strategies.rows import Gathered, Ready, RowWriter, merge
from paracosm.jobs.strategies.stage import Stage, collective
from paracosm.jobs.strategies.work import COMMUNICATION, COMPUTE


def reduced_buckets(stage: Stage, *, last: bool) -> list[Bucket]:
    """Return what a backward pass reduces, `last` of the micro-batches or not.

    ZeRO 2 and 3 keep no whole gradients, and reduce them with every micro-batch; ZeRO 3 layer by
    layer.
    """
    plan, strategy, part = stage.plan, stage.plan.strategy, stage.part
    if strategy.data == 1 or (not last and strategy.sharding in ("none", "optimizer")):
        return []
    if strategy.sharding == "parameters":
        return [
            bucket
            for _, nodes in plan.sections(plan.backward_rows(part))
            for bucket in buckets_of(nodes, plan.gradients, float("inf"), float("inf"))
        ]
    rows = plan.backward_rows(part)
    return buckets_of(rows, plan.gradients, strategy.first_bucket, strategy.bucket)


class Reductions:
    """Writes the reductions of a backward pass, each behind the last node that it waits for.

    Args:
        stage: whose.
        rows: the backward pass.
        buckets: what is reduced.
    """

    def __init__(self, stage: Stage, rows: RowWriter, buckets: Sequence[Bucket]) -> None:
        self._stage, self._rows = stage, rows
        self._closed_by = {bucket.rows[-1]: (n, bucket) for n, bucket in enumerate(buckets)}
        self.freed: dict[int, int] = {}
        """The task that has reduced the gradients of a node, and after which they are no longer
        needed whole."""

    def after(self, row: int) -> None:
        """Write the reduction that becomes possible when a node is done."""
        if row not in self._closed_by:
            return
        number, bucket = self._closed_by[row]
        there: Gathered = {}
        for each in bucket.rows:
            merge(there, self._rows.ready[each])
        strategy = self._stage.plan.strategy
        kind = "all_reduce" if strategy.sharding == "none" else "reduce_scatter"
        name = f"{kind.replace('_', '-')} {number}"
        task = collective(self._stage, self._rows.writer, name, kind, bucket.size, there)
        if strategy.sharding in ("gradients", "parameters"):
            self.freed |= dict.fromkeys(bucket.rows, task)


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
        writer.allocate(size, task)
        self._gathered.append(task)


def _dropped(back: int) -> str:
    return f"dropped {back}"
