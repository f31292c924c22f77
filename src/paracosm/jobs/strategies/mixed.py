"""Plans of a job whose workers compute with different devices: one for each kind, all cut alike."""

from dataclasses import replace

import numpy as np

from paracosm.arrays import Ints
from paracosm.cluster.cluster import Cluster
from paracosm.jobs.strategies.plan import Plan, balanced, layer_times, plan_of
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.jobs.strategies.work import Replica


def plans_of(
    replica: Replica, cluster: Cluster, strategy: Strategy, stage: Ints
) -> tuple[list[Plan], Ints]:
    """Return the plan of each kind of device, and which one each worker follows.

    Where nobody says at which layers a pipeline is cut, the longest stage is as short as can be,
    each by the slowest of its devices. `stage` is that of each worker.
    """
    devices = [node.device or "" for node in cluster.nodes[: len(stage)]]
    known = [device if device in replica.elsewhere else "" for device in devices]
    kinds = list(dict.fromkeys(known))
    which = np.array([kinds.index(each) for each in known], dtype=np.int64)
    replicas = [replica.on(kind) for kind in kinds]
    plans = [plan_of(each, strategy) for each in replicas]
    if len(plans) > 1 and strategy.pipeline > 1 and not strategy.cut:
        cut = _cut(plans, which, strategy, stage)
        plans = [plan_of(each, replace(strategy, cut=cut)) for each in replicas]
    return plans, which


def _cut(plans: list[Plan], which: Ints, strategy: Strategy, stage: Ints) -> tuple[str, ...]:
    layers = plans[0].layers
    times = np.array([layer_times(plan.work, layers) for plan in plans])
    slowest = [times[np.unique(which[stage == n])].max(axis=0) for n in range(strategy.pipeline)]
    begins = balanced(np.tile(slowest, (strategy.chunks, 1)), len(slowest) * strategy.chunks)
    return tuple(layers.names[begin] for begin in begins[1:])
