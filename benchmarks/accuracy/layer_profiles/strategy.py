"""A plan as replica, cluster and strategy, for the general way from these to a job."""

from __future__ import annotations

from dataclasses import replace

from layer_profiles.bandwidth import Network
from layer_profiles.parts import between
from layer_profiles.plan import Plan
from layer_profiles.profiles import Profiles
from layer_profiles.replica import replica_of
from layer_profiles.sizes import Sizes
from paracosm.cluster import Cluster, switch
from paracosm.errors import InputError
from paracosm.jobs.strategies import Replica, Strategy

__all__ = ["plan_strategy"]


def plan_strategy(
    plan: Plan, model: str, profiles: Profiles, sizes: Sizes, network: Network
) -> tuple[Replica, Cluster, Strategy]:
    """Return what `build_job` makes a job of: 1F1B with messages beside the computation, and
    gradients that are reduced in buckets while the last backward pass runs.

    A worker of the cluster stands for each of the GPUs that split its layers, which send equal
    parts of what is handed on. All are joined by one link, that which agrees with their share of
    the measured bandwidth near the size of such a part.

    Raises:
        InputError: the workers of the plan differ; what it needs is not in the files.
    """
    workers = {worker for stage in plan.stages for worker in stage.workers}
    if len(workers) > 1:
        raise InputError(f"{plan.name}: its workers differ, a strategy takes one kind")
    (worker,) = workers
    layers = sizes.layers(model, worker.tensor)
    times = profiles.times(model, worker.gpu, plan.microbatch, worker.tensor)
    stages = len(plan.stages)
    handed_on = plan.stages[0].layers.stop - 1 if stages > 1 else 0
    layers = replace(layers, output=-(-layers.output // worker.tensor))
    link = between(network, worker, worker).link_near(
        float(layers.output[handed_on]) * plan.microbatch
    )
    strategy = Strategy(
        data=plan.replicas,
        pipeline=stages,
        microbatches=plan.microbatches,
        cut=tuple(f"layer.{stage.layers.start}" for stage in plan.stages[1:]),
    )
    replica = replica_of(times, layers, plan.microbatch)
    return replica, switch(stages * plan.replicas, link=link), strategy
