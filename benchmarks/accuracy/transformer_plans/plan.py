"""How long an iteration of a plan takes: as many ways of parallelism, such a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from paracosm.cluster import Cluster
from paracosm.cluster.changes import parse_change
from paracosm.cluster.link import Hierarchical
from paracosm.errors import InputError
from paracosm.graphs.transformer import Transformer, transformer_graph
from paracosm.jobs.strategies.build import build_job
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.jobs.strategies.work import Replica
from paracosm.simulation.replay import replay_job
from paracosm.simulation.static import JobSchedule
from transformer_plans.accelerator import Accelerator, durations_on

__all__ = ["Plan", "PlanTime", "predict_plan"]


@dataclass(frozen=True)
class Plan:
    """A transformer, and how its training is spread over data x tensor x pipeline GPUs.

    Args:
        model: the transformer.
        batch: examples of an iteration, of all replicas.
        micro_batch: examples of a forward and backward pass.
        tensor, data, pipeline: ranks that share a layer, that have a part of the batch each, that
            have a part of the layers each.
        recompute: whether layers are computed again before their backward pass.

    Raises:
        InputError: numbers that do not divide each other; which, and which would.
    """

    model: Transformer
    batch: int
    micro_batch: int
    tensor: int = 1
    data: int = 1
    pipeline: int = 1
    recompute: bool = True

    def __post_init__(self) -> None:
        self.model.split(self.tensor)
        share = self.micro_batch * self.data
        if share < 1 or self.batch % share or self.batch < share:
            near = max(1, round(self.batch / max(share, 1))) * share
            raise InputError(
                f"plan: a batch of {self.batch} is no multiple of {self.data} replicas x "
                f"{self.micro_batch} examples; {near} is"
            )
        self.model.cut(self.pipeline)

    @property
    def gpus(self) -> int:
        """How many the plan takes."""
        return self.tensor * self.data * self.pipeline

    @property
    def strategy(self) -> Strategy:
        """As Megatron-LM carries it out: stages with the same number of layers, one forward one
        backward, gradients reduced when all of them are there."""
        stage = self.model.layers // self.pipeline
        return Strategy(
            data=self.data,
            tensor=self.tensor,
            pipeline=self.pipeline,
            microbatches=self.batch // (self.micro_batch * self.data),
            recompute=self.recompute,
            cut=tuple(f"h.{stage * number}" for number in range(1, self.pipeline)),
            bucket=inf if self.data > 1 else Strategy.bucket,
            first_bucket=inf if self.data > 1 else Strategy.first_bucket,
        )


@dataclass(frozen=True)
class PlanTime:
    """What is predicted of a plan.

    Attributes:
        seconds: of an iteration.
        busy: share of it in which the GPUs compute, on average.
    """

    seconds: float
    busy: float


def predict_plan(
    plan: Plan, accelerator: Accelerator, cluster: Cluster, slowdown: float = 1.0
) -> PlanTime:
    """Predict an iteration of a plan from the rates of its hardware.

    Args:
        plan: what is trained, and how.
        accelerator: rates of the GPUs.
        cluster: one worker for each GPU of the plan.
        slowdown: by which everything that is computed takes longer than the rates say; 1, or fitted
            to iterations that were measured.

    Raises:
        InputError: a cluster of another size.
    """
    graph = transformer_graph(plan.model, plan.micro_batch, plan.tensor, plan.pipeline)
    durations = slowdown * durations_on(accelerator, graph)
    replica = Replica(graph, durations, asynchronous=True, launch=accelerator.launch)
    # NCCL reduces by rings: one within a machine, and between machines one for each of their GPUs.
    ways = "hierarchical" if isinstance(cluster.topology, Hierarchical) else "ring"
    rings = parse_change(f"all_reduce: algorithm {ways}")
    schedule = replay_job(build_job(replica, cluster, plan.strategy, [rings]))
    return PlanTime(schedule.makespan, _busy(schedule))


def _busy(schedule: JobSchedule) -> float:
    """Return the share of the iteration in which ranks compute, averaged over the ranks."""
    job = schedule.job
    lane = job.lanes.index("compute")
    ranks = np.bincount(schedule.class_of, minlength=len(schedule.representative))
    busy = 0.0
    for rank, count in zip(schedule.representative.tolist(), ranks.tolist(), strict=True):
        tasks = schedule.tasks_of(rank)
        own = job.programs[job.program[rank]].lane == lane
        busy += count * float((schedule.end[tasks] - schedule.begin[tasks])[own].sum())
    return busy / (job.ranks * schedule.makespan)
