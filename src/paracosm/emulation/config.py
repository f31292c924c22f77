"""What `emulate` is asked for: the one description behind the command line and the study file."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from paracosm.cluster import Cluster, cluster_from_shorthand, load_cluster
from paracosm.cluster.subset import first_workers
from paracosm.emulation.beside import predicted_time
from paracosm.errors import InputError
from paracosm.quantities import Bandwidth, Duration

__all__ = ["MOST_RANKS", "EmulateConfig"]

MOST_RANKS = 65_536
"""Ranks of one job; the real gloo has a socket for each."""


def _ranks(value: Any) -> Any:
    """Read "0,3"."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if isinstance(value, str):
        try:
            return tuple(int(part) for part in value.split(","))
        except ValueError:
            raise InputError(f'cannot read "{value}": write ranks as 0 or 0,3') from None
    return value


def _check_plan(plan: Path, world: int) -> None:
    from paracosm.emulation.wire.payloads import load_payloads

    if not plan.is_file():
        raise InputError(f"{plan}: no such plan: a backend run writes plan.npz")
    load_payloads(plan, world)


def _listed(value: Any) -> Any:
    """Read one text as a list of one."""
    return (value,) if isinstance(value, str) else value


class EmulateConfig(BaseModel):
    """An emulated job: which script, as which ranks of how many, on which cluster."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    script: Path | None = Field(
        None, description="the training script, or module:NAME as python -m takes it"
    )
    arguments: tuple[str, ...] = Field((), description="of the script")
    world_size: int | None = Field(
        None, ge=1, description="ranks of the job (the workers of the cluster file)"
    )
    rank: Annotated[tuple[int, ...], BeforeValidator(_ranks)] = Field(
        (0,), description="which rank is real; several, as 0,3, in wire mode"
    )
    mode: Literal["backend", "wire"] = Field(
        "backend",
        description="backend: a modelled torch.distributed backend, any world and device; wire: "
        "the real gloo talks to emulated peers over TCP",
    )
    cluster: Path | dict[str, Any] | None = Field(None, description="a cluster file")
    latency: Duration = Field(0.0, ge=0, description="of every link, without a cluster file")
    bandwidth: Bandwidth | None = Field(
        None, gt=0, description="of every link, without a cluster file: 25Gbit/s, inf"
    )
    overhead: Duration = Field(
        0.0, ge=0, description="that each message costs, without a cluster file"
    )
    communication: str | None = Field(
        None,
        description="how long communication takes: cluster, none, measured (wire mode: what the "
        "real rank's own link takes), or package.module:function of your own (cluster where links "
        "are given; else none, or in wire mode measured)",
    )
    algorithm: str = Field(
        "auto", description="of collectives: ring, tree, hierarchical, ... (the cheapest)"
    )
    what_if: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        (),
        description='a change, as "all_reduce +2ms", "link 0-3 bandwidth /4", "rank 5 x1.5", '
        '"all_gather algorithm ring"; may be given several times',
    )
    skew: str | None = Field(
        None, description="how much later than the real rank each peer comes: 50us, a distribution"
    )
    jitter: str | None = Field(
        None,
        description="how peers' computing time scatters: measured (as the real rank's does), or a "
        "distribution of what it takes longer (none)",
    )
    comm_workers: int | None = Field(
        None,
        ge=1,
        description="collectives of one group that run at a time (2 for gloo, 1 for nccl)",
    )
    local_world_size: int | None = Field(
        None, ge=1, description="ranks of one machine (group_size of a hierarchical cluster, or 1)"
    )
    pace: bool | None = Field(
        None,
        description="wire mode: give the real rank's own links the modelled speed as well (where "
        "links are given)",
    )
    plan: Path | None = Field(
        None, description="wire mode: plan.npz of a backend run, which another rank than 0 needs"
    )
    port: int | None = Field(None, ge=1, le=65535, description="of the rendezvous (a free one)")
    delays: str | None = Field(
        None,
        description='run once for each of some added delays: "all_reduce 0ms..8ms/9" for nine of '
        "them, and find what hides under computing",
    )
    beside: Path | None = Field(
        None, description="run folder of a prediction of the same job, to be shown beside"
    )
    output: Literal["terminal", "stderr", "none"] = Field(
        "terminal", description="where what the script prints goes"
    )

    def check(self) -> None:
        """Raise InputError for what shows before anything runs: files, ranks, links, what-ifs."""
        from paracosm.emulation.communication import communication_of
        from paracosm.emulation.delays import parse_delays
        from paracosm.emulation.peers import peers_of
        from paracosm.emulation.what_if import with_world

        if self.script is None:
            raise InputError("script: which one is to be run? paracosm emulate ... train.py")
        if not self.is_module and not self.script.is_file():
            raise InputError(f"{self.script}: no such script")
        _ = self.world
        communication_of(self)
        peers_of(self, self.rank[0], 0)
        if self.delays is not None:
            parse_delays(self.delays)
        if self.plan is not None:
            _check_plan(self.plan, with_world(self).world)
        if self.beside is not None:
            predicted_time(self.beside)

    @property
    def is_module(self) -> bool:
        """Whether the script is named as a module: "module:package.train"."""
        return str(self.script).startswith("module:")

    @property
    def has_links(self) -> bool:
        """Whether links are given, by a cluster file or by flags."""
        return self.cluster is not None or self.bandwidth is not None or self.latency > 0

    @property
    def world(self) -> int:
        """How many ranks the job has.

        Raises:
            InputError: nobody says how many, too many, or the real rank is not one of them.
        """
        world = self.world_size
        if world is None:
            if self.cluster is None:
                raise InputError("world_size: how many ranks? --world-size 16")
            world = len(self._given_cluster.workers)
        if world > MOST_RANKS:
            raise InputError(f"world_size: {MOST_RANKS:,} at most, not {world:,}")
        for rank in self.rank:
            if not 0 <= rank < world:
                raise InputError(
                    f"rank: a world of {world:,} has ranks 0 to {world - 1:,}, not {rank}"
                )
        return world

    @property
    def ranks_per_machine(self) -> int:
        """How many ranks one machine has: LOCAL_WORLD_SIZE of the script's environment."""
        from paracosm.cluster.topology import Hierarchical

        if self.local_world_size is not None:
            return min(self.local_world_size, self.world)
        cluster = self.resolve_cluster()
        if cluster is not None and isinstance(cluster.topology, Hierarchical):
            return min(cluster.topology.group_size, self.world)
        return 1

    def resolve_cluster(self) -> Cluster | None:
        """Return the cluster whose worker i is rank i, without what-ifs; None where none is given.

        Raises:
            InputError: it cannot be read, or has fewer workers than the world ranks.
        """
        if self.cluster is not None:
            return first_workers(self._given_cluster, self.world)
        if not self.has_links:
            return None
        bandwidth = float("inf") if self.bandwidth is None else self.bandwidth
        return cluster_from_shorthand(
            self.world, 0, self.latency, bandwidth, self.overhead, pipelined=True
        )

    def without_effect(self) -> set[str]:
        """Return the fields that make no difference, whatever their values, to such a run."""
        return set().union(*self._idle().values())

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.rank:
            raise ValueError("rank: at least one rank is real")
        if len(set(self.rank)) < len(self.rank):
            raise ValueError("rank: a rank is named twice")
        if len(self.rank) > 1 and self.mode == "backend":
            raise ValueError(
                "rank: in backend mode one rank is real, since no messages pass: mode wire takes "
                "several"
            )
        for reason, names in self._idle().items():
            given = sorted(names & self.model_fields_set)
            if given:
                raise ValueError(f"{given[0]} has no effect: {reason}")
        return self

    def _idle(self) -> dict[str, set[str]]:
        idle: dict[str, set[str]] = {}
        if self.mode == "backend":
            idle["only mode wire has it"] = {"pace", "plan", "port"}
        else:
            idle["in mode wire gloo itself decides"] = {"algorithm", "comm_workers"}
        if self.cluster is not None:
            idle["the cluster says what there is"] = {"latency", "bandwidth", "overhead"}
        return idle

    @cached_property
    def _given_cluster(self) -> Cluster:
        if isinstance(self.cluster, Path):
            return load_cluster(self.cluster)
        from paracosm.cluster import cluster_from_mapping

        assert self.cluster is not None
        return cluster_from_mapping(self.cluster)
