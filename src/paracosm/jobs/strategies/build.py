"""From one replica, a cluster and a strategy to the task graph of the whole job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paracosm.arrays import Codes, Ints, distinct_rows
from paracosm.cluster.changes import Change
from paracosm.cluster.cluster import Cluster
from paracosm.cluster.collectives import group_classes, shares_ports
from paracosm.errors import InputError
from paracosm.jobs.job import Communicators, Job, Program
from paracosm.jobs.strategies.parameter_server import parameter_server_job
from paracosm.jobs.strategies.plan import Plan, plans_of
from paracosm.jobs.strategies.rank import rank_program, single_program
from paracosm.jobs.strategies.stage import Books, Costs
from paracosm.jobs.strategies.strategy import KEYS, SHARDINGS, Strategy, does_not_fit
from paracosm.jobs.strategies.work import Replica
from paracosm.jobs.writer import Codebook


def build_job(
    replica: Replica,
    cluster: Cluster,
    strategy: Strategy,
    changes: Sequence[Change] = (),
    met: set[str] | None = None,
) -> Job:
    """Return the task graph of a job.

    Ranks are the workers of the cluster in their order, with the speeds of their nodes, and with
    the durations of their devices if the replica has them. The graph's batch is that of one
    micro-batch of one replica.

    Args:
        replica: a training step of one replica on one worker, with durations.
        cluster: with as many workers as the strategy has ranks.
        strategy: how to parallelise the job.
        changes: of its collectives, and of messages between workers ("send").
        met: gets the kinds of the collectives that the job has.

    Raises:
        InputError: the strategy does not fit the cluster or the model; nothing joins two workers
            that have to communicate; an algorithm that there is not.
    """
    workers = len(cluster.workers)
    if strategy.ranks != workers:
        ways = {key: getattr(strategy, KEYS[key]) for key in ("dp", "tp", "cp", "pp")}
        raise does_not_fit(ways, workers)
    if strategy.servers:
        return parameter_server_job(replica, cluster, strategy)
    books = Books(Codebook(), Codebook(), Codebook())
    layout = layout_of(strategy)
    plain = not (strategy.recompute or strategy.offload or strategy.float8)
    plain = plain and not strategy.offload_optimizer
    if strategy.ranks == strategy.microbatches == 1 and plain:
        alone = replica.on(cluster.nodes[0].device or "")
        programs, program = [single_program(alone, books)], np.zeros(1, dtype=np.int64)
    else:
        plans, device = plans_of(replica, cluster, strategy, layout.stage)
        _check_gradients(plans[0])
        _check_host(plans[0])
        memory = set() if met is None else met
        of_all = Costs(cluster, strategy.all_reduce, changes=changes, met=memory)
        programs, program = _programs(plans, device, layout, books, of_all)
    batch, roles = replica.examples, books.roles.texts
    return Job(
        names=books.names.texts,
        lanes=books.lanes.texts,
        policies=("in order",) * len(books.lanes.texts),
        roles=roles,
        programs=tuple(programs),
        program=program.astype(np.int32),
        speed=np.array([node.speed for node in cluster.nodes[:workers]]),
        communicators=layout.communicators(),
        communicator=layout.table(roles),
        labels=cluster.workers,
        examples=None if batch is None else batch * strategy.microbatches_of_all,
        slowdown=replica.interference.slowdown,
        provenance={"strategy": str(strategy), "graph": dict(replica.graph.provenance)},
    )


def _check_gradients(plan: Plan) -> None:
    """Check that replicas have what they reduce; those without a backward pass share nothing."""
    strategy, trains = plan.strategy, len(plan.layers.backward_rows) > 0
    if strategy.replicas == 1 or plan.gradients.any():
        return
    if trains:
        raise InputError(
            f"strategy: dp={strategy.data}, but the graph has no gradients to reduce: storages "
            "that a backward node allocates and that outlive the step"
        )
    if strategy.sharding != "none":
        raise InputError(
            f"strategy: zero={SHARDINGS.index(strategy.sharding)}, but the graph has no backward "
            f"pass: dp={strategy.data} alone runs replicas side by side"
        )


def _check_host(plan: Plan) -> None:
    """Check that somebody says how fast a host updates that has to."""
    if not plan.strategy.offload_optimizer:
        return
    if plan.work.host_rates is None:
        raise InputError(
            "strategy: offload_optimizer: nothing says how fast the host updates: add --hardware "
            "with a device whose node has a host (paracosm hardware show h100-sxm)"
        )
    if not plan.layers.optimizer_rows:
        raise InputError("strategy: offload_optimizer has no effect: the graph has no updates")


def check_changes(
    replica: Replica, cluster: Cluster, strategy: Strategy, changes: Sequence[Change]
) -> None:
    """Refuse changes of collectives that a job does not have."""
    met: set[str] = set()
    if changes:
        build_job(replica, cluster, strategy, changes, met)
    for change in changes:
        if not met & set(change.kinds):
            has = ", ".join(sorted(met)) or "no collectives"
            raise change.error(f"has no effect: the job has {has}")


def _programs(
    plans: list[Plan], device: Ints, layout: "Layout", books: Books, of_all: Costs
) -> tuple[list[Program], Ints]:
    """Return the distinct programs (by device, share, costs), and that of each rank."""
    roles = tuple(role for roles in layout.groups for role in roles)
    communicators = layout.communicators()
    table = layout.table(roles)
    # Groups of a role in one stage communicate at the same time: those of their first ranks.
    at_once = [layout.stage[groups[:, 0]] for groups in layout.groups.values()]
    classes = [
        group_classes(of_all.cluster, groups, stage)
        for groups, stage in zip(layout.groups.values(), at_once, strict=True)
    ]
    cost = np.concatenate([np.zeros(0, dtype=np.int64), *classes])
    strategy = plans[0].strategy
    shares = np.array(strategy.shares or (strategy.microbatches,))
    of_replica = np.arange(len(table)) // (strategy.tensor * strategy.context) % len(shares)
    share = shares[of_replica]
    first, program = distinct_rows(
        np.column_stack((layout.stage, device, share, np.where(table >= 0, cost[table], -1)))
    )
    programs = []
    for rank in first.tolist():
        group = {
            role: communicators.ranks(number)
            for role, number in zip(roles, table[rank].tolist(), strict=True)
            if number >= 0
        }
        concurrent = (
            layout.concurrent_groups(group, at_once) if shares_ports(of_all.cluster) else {}
        )
        costs = replace(of_all, group=group, concurrent=concurrent)
        plan, stage = plans[device[rank]], int(layout.stage[rank])
        if strategy.shares:
            own_strategy = replace(strategy, microbatches=int(share[rank]), shares=())
            plan = replace(plan, strategy=own_strategy)
        programs.append(rank_program(plan, stage, costs, books))
    return programs, program


@dataclass(frozen=True, eq=False)
class Layout:
    """The placement of ranks: tensor-parallel ranks are neighbours, then those that share a
    sequence, then data, then stages.

        rank = t + tensor x (c + context x (d + data x p))

        tensor=2, data=2, pipeline=2:    p=0: (0 1) (2 3)    p=1: (4 5) (6 7)
                                         data groups (0 2) (1 3) (4 6) (5 7)

    Those that share shards are neighbours among the ranks of a data group. Of experts, ranks that
    share one are neighbours, then those that share all of a layer, over tensor-, context- and
    data-parallel ranks (Megatron-Core, `parallel_state.py`: order tp-ep-dp-pp). `groups` gives
    the ranks of each group by role, one row per group; messages have a role at either end, and
    pairs (sender, receiver).
    """

    stage: Ints
    groups: dict[tuple[str, ...], Ints]

    def communicators(self) -> Communicators:
        rows = [(len(ranks), ranks.shape[1]) for ranks in self.groups.values()]
        sizes = np.concatenate(
            [np.full(count, number) for count, number in rows] or [np.zeros(0, dtype=np.int64)]
        )
        members = [ranks.reshape(-1) for ranks in self.groups.values()]
        return Communicators(
            offsets=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
            members=np.concatenate(members or [np.zeros(0, dtype=np.int64)]).astype(np.int32),
        )

    def table(self, roles: tuple[str, ...]) -> Codes:
        """Return the communicator of each rank in each of `roles`; -1 for none."""
        table = np.full((len(self.stage), len(roles)), -1, dtype=np.int32)
        first = 0
        for names, ranks in self.groups.items():
            numbers = np.arange(first, first + len(ranks))
            for place, role in enumerate(names):
                if role in roles:
                    who = ranks if len(names) == 1 else ranks[:, place : place + 1]
                    table[who, roles.index(role)] = numbers[:, None]
            first += len(ranks)
        return table

    def concurrent_groups(
        self, group: Mapping[str, tuple[int, ...]], at_once: Sequence[Ints]
    ) -> dict[str, Ints]:
        """Return the other groups that communicate concurrently with each of `group`.

        They are those of its role with its number in `at_once`, which is in the order of `groups`.
        """
        by_role = {}
        for (names, groups), number in zip(self.groups.items(), at_once, strict=True):
            for role in set(names) & set(group):
                is_same = (groups == group[role]).all(axis=1)
                by_role[role] = groups[(number == number[is_same]) & ~is_same]
        return by_role


def layout_of(strategy: Strategy) -> Layout:
    pp, tp, cp, replicas = strategy.pipeline, strategy.tensor, strategy.context, strategy.replicas
    ranks = np.arange(pp * replicas * tp, dtype=np.int64).reshape(pp, replicas, tp)
    same_parameters = ranks.transpose(0, 2, 1)  # the last axis has ranks with the same parameters
    groups: dict[tuple[str, ...], Ints] = {}
    if replicas > 1:
        groups["data",] = same_parameters.reshape(-1, replicas)
    if tp > 1:
        groups["tensor",] = ranks.reshape(-1, tp)
    if cp > 1:
        groups["context",] = same_parameters.reshape(-1, cp)
    if strategy.shard:
        shards = same_parameters.reshape(-1, replicas // strategy.shard, strategy.shard)
        groups["shard",] = shards.reshape(-1, strategy.shard)
        groups["replicate",] = shards.transpose(0, 2, 1).reshape(-1, replicas // strategy.shard)
    if strategy.shares_experts:
        ep, etp = strategy.expert, strategy.of_an_expert
        experts = ranks.reshape(pp, -1, ep, etp)
        for role, axis, size in (
            ("expert_tensor", 3, 1 if etp == tp else etp),
            ("expert", 2, ep),
            ("expert data", 1, experts.shape[1]),
        ):
            if size > 1:
                groups[role,] = np.moveaxis(experts, axis, -1).reshape(-1, size)
    if pp > 1:
        following = np.roll(ranks, -1, axis=0)
        kept = pp if strategy.chunks > 1 else pp - 1
        here, there = ranks[:kept].reshape(-1), following[:kept].reshape(-1)
        groups["activations out", "activations in"] = np.column_stack((here, there))
        groups["gradients out", "gradients in"] = np.column_stack((there, here))
    return Layout(np.arange(pp * replicas * tp, dtype=np.int64) // (replicas * tp), groups)
