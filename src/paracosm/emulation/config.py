"""What `emulate` is asked for: the one description behind the command line and the study file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    model_validator,
)

from paracosm.cluster import Cluster
from paracosm.cluster.cluster import first_workers
from paracosm.cluster.fields import LINK_FIELDS, ClusterFields, WorkerCount
from paracosm.cluster.link import Hierarchical, Sharing
from paracosm.emulation.delays import Delays, parse_delays
from paracosm.emulation.random_delay import RandomDelay, parse_random_delay, parse_skew
from paracosm.errors import InputError
from paracosm.factory import is_reference

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


def _read(parse: Callable[[str], Any]) -> PlainValidator:
    """Read a text, of which "none" is nothing."""
    return PlainValidator(
        lambda value: (
            value
            if value is not None and not isinstance(value, str | int | float)
            else None
            if value in (None, "none")
            else parse(str(value))
        )
    )


_AS_TEXT = PlainSerializer(lambda value: None if value is None else str(value))


def _parse_jitter(text: str) -> RandomDelay | str:
    return text if text == "measured" else parse_random_delay(text)


class EmulateConfig(ClusterFields):
    """An emulated job: which script, as which ranks of how many, on which cluster."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    SYNONYMS: ClassVar[dict[str, str]] = {"workers": "world_size"}

    script: Path | None = Field(
        None, description="the training script, or module:NAME as python -m takes it"
    )
    arguments: tuple[str, ...] = Field((), description="of the script")
    world_size: WorkerCount | None = Field(
        None, description="ranks of the job (the workers of the cluster file)"
    )
    rank: Annotated[tuple[int, ...], BeforeValidator(_ranks)] = Field(
        (0,), description="which rank is real; several, as 0,3, in wire mode"
    )
    mode: Literal["backend", "wire"] = Field(
        "backend",
        description="backend: a modelled torch.distributed backend, any world and device; wire: "
        "the real gloo talks to emulated peers over TCP",
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
    skew: Annotated[RandomDelay | None, _read(parse_skew), _AS_TEXT] = Field(
        None, description="how much later than the real rank each peer comes: 50us, a distribution"
    )
    compute_jitter: Annotated[
        RandomDelay | Literal["measured"] | None, _read(_parse_jitter), _AS_TEXT
    ] = Field(
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
    delays: Annotated[Delays | None, _read(parse_delays), _AS_TEXT] = Field(
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

    @property
    def is_module(self) -> bool:
        """Whether the script is named as a module: "module:package.train"."""
        return str(self.script).startswith("module:")

    @property
    def has_links(self) -> bool:
        """Whether links are given, by a cluster file or by flags."""
        flags = self.bandwidth is not None or self.latency > 0 or self.overhead > 0
        return self.cluster is not None or flags

    @property
    def shared(self) -> Sharing:
        """How what is under way at one time shares the rank's links."""
        file = self.cluster_in_file
        return self.sharing if file is None else file.sharing

    @property
    def world(self) -> int:
        """How many ranks the job has.

        Raises:
            InputError: nobody says how many, too many, or the real rank is not one of them.
        """
        world = self.world_size
        if world is None:
            if self.cluster is None:
                raise InputError("missing number of ranks: add --world-size 16")
            assert self.cluster_in_file is not None
            world = len(self.cluster_in_file.workers)
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
        if self.local_world_size is not None:
            return min(self.local_world_size, self.world)
        cluster = self.resolve_cluster()
        if cluster is not None and isinstance(cluster.topology, Hierarchical):
            return min(cluster.topology.group_size, self.world)
        return 1

    def resolve_cluster(self) -> Cluster | None:
        """Return the cluster whose worker i is rank i, without changes; None where none is given.

        Raises:
            InputError: it cannot be read, has servers, or fewer workers than the world ranks.
        """
        if not self.has_links:
            return None
        cluster = self.cluster_of(self.world, 0)
        if cluster.servers:
            raise InputError("cluster: servers: an emulated job has ranks only, leave servers out")
        return first_workers(cluster, self.world)

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
            idle["the cluster says what there is"] = set(LINK_FIELDS)
        elif not self.has_links:
            flags = {"duplex", "pipelined", "sharing"}
            if self.communication is not None and is_reference(self.communication):
                flags.remove("sharing")
            idle["there are no links: add --bandwidth and --latency, or --cluster FILE"] = flags
        return idle
