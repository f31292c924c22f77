"""A plan as replica, cluster and strategy, for the general way from these to a job."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from layer_profiles.bandwidth import Network
from layer_profiles.parts import between
from layer_profiles.plan import Plan
from layer_profiles.profiles import Profiles
from layer_profiles.replica import replica_of
from layer_profiles.sizes import Sizes
from paracosm.cluster.cluster import Cluster, Node, assemble
from paracosm.cluster.link import Switch
from paracosm.errors import InputError
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.jobs.strategies.work import Replica

__all__ = ["plan_strategy"]


def plan_strategy(
    plan: Plan, model: str, profiles: Profiles, sizes: Sizes, network: Network
) -> tuple[Replica, Cluster, Strategy]:
    """Return what `build_job` makes a job of: 1F1B with messages beside the computation, and
    gradients that are reduced in buckets while the last backward pass runs.

    A worker of the cluster stands for each of the GPUs that split its layers, which send equal
    parts of what is handed on. Each kind of GPU takes its own times. All are joined by one link:
    the share that each has of the measured bandwidth near the size of such a part, of the two
    kinds of GPU that are joined worst.

    Raises:
        InputError: workers that split layers between different numbers of GPUs; what the plan needs
            is not in the files.
    """
    kinds = list(dict.fromkeys(worker for stage in plan.stages for worker in stage.workers))
    tensors = {worker.tensor for worker in kinds}
    if len(tensors) > 1:
        raise InputError(
            f"{plan.name}: its layers are split between {min(tensors)} and {max(tensors)} GPUs, a "
            "strategy splits all alike"
        )
    (tensor,) = tensors
    layers = sizes.layers(model, tensor)
    layers = replace(layers, output=-(-layers.output // tensor))
    stages = len(plan.stages)
    handed_on = plan.stages[0].layers.stop - 1 if stages > 1 else 0
    size = float(layers.output[handed_on]) * plan.microbatch
    links = [between(network, *pair) for pair in product(kinds, kinds)]
    link = max(links, key=lambda each: each.time(size)).link_near(size)
    replicas = {
        worker.gpu: replica_of(
            profiles.times(model, worker.gpu, plan.microbatch, tensor), layers, plan.microbatch
        )
        for worker in kinds
    }
    first, *others = replicas
    replica = replace(
        replicas[first], durations_by_device={gpu: replicas[gpu].duration for gpu in others}
    )
    nodes = [Node("", device=worker.gpu) for stage in plan.stages for worker in stage.workers]
    strategy = Strategy(
        data=plan.replicas,
        pipeline=stages,
        microbatches=plan.microbatches,
        cut=tuple(f"layer.{stage.layers.start}" for stage in plan.stages[1:]),
    )
    return replica, assemble(nodes, [], Switch(link)), strategy
