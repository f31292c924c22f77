"""Data parallelism: replicas compute, and reduce their gradients while they still compute.

PyTorch's DDP reduces gradients in buckets, each as soon as its last gradient is there (Li et al.
2020, section 3.2.3), in the order in which they appear:

    compute        | forward | backward 2 | backward 1 | backward 0 |        | step |
    communication                         |  bucket 0  | bucket 1 | bucket 2 |

The network is a lane of its own: reductions slow no computation down. With several micro-batches
the gradients are added up, and reduced with the last one.
"""

from __future__ import annotations

from collections.abc import Sequence

from paracosm.jobs.strategies.gradients import Bucket, buckets_of
from paracosm.jobs.strategies.rows import Gathered, RowWriter, merge
from paracosm.jobs.strategies.stage import Stage, collective

__all__ = ["Reductions", "reduced_buckets"]


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
