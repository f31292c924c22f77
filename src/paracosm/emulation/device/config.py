"""The arguments of `emulate --hardware`: a script on a device that is not there."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from paracosm.cluster import Cluster
from paracosm.cluster.changes import Change, apply_changes, changes_cluster, refuse_changes
from paracosm.cluster.cluster import first_workers
from paracosm.cluster.fields import LINK_FIELDS, ClusterFields, WorkerCount
from paracosm.cluster.hardware import Hardware, find_hardware
from paracosm.cluster.link import Hierarchical, Packets
from paracosm.emulation.config import MOST_RANKS, EmulateConfig, first_rank, is_module
from paracosm.emulation.device.assumptions import AssumptionField
from paracosm.emulation.device.op_costs import OpCosts
from paracosm.emulation.device.recording import FILE
from paracosm.errors import InputError
from paracosm.price import DevicePrice
from paracosm.quantities import Duration, Tokens

MOST_ITERATIONS = 1000  # of which one takes seconds to record
LAUNCH = 5e-6  # seconds of the host for a request: a CUDA kernel's, as `predict` has it

_CHANGEABLE = (
    "how fast workers compute, links, collectives, the number of workers; of all workers alike "
    "kernels, copies, and the host"
)


def has_short_floats(capability: tuple[int, int]) -> bool:
    """Whether a GPU has bfloat16 and TF32, and with them the kernels of flash attention.

    Of its capability nothing else is asked here: by this alone PyTorch takes other paths.
    """
    return capability >= (8, 0)


def changes_part(change: Change) -> bool:
    """Whether `part_changes` makes a change: one of all workers alike."""
    if change.subject != "workers" or change.first is not None:
        return False
    is_part = change.what in ("copies", "host", "kernel")
    return is_part or (change.what == "compute" and not changes_cluster(change))


class DeviceEmulateConfig(ClusterFields):
    """A script, the hardware that it runs on, and what is changed of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    SYNONYMS: ClassVar[dict[str, str]] = {"workers": "world_size", "database": "db"}

    hardware: str = Field(
        description="what the script runs on, which need not be here: a device or node of the "
        "catalogue (paracosm hardware list), or a datasheet file",
    )
    script: Path | None = Field(
        None, description="the training script, or module:NAME as python -m takes it"
    )
    arguments: tuple[str, ...] = Field((), description="of the script")
    world_size: WorkerCount | None = Field(
        None, description="ranks of the job (the workers of the cluster file)"
    )
    rank: Annotated[int, BeforeValidator(first_rank), Field(ge=0)] = Field(
        0, description="the rank whose script runs; those that it exchanges messages with do, too"
    )
    iterations: int = Field(
        3, ge=1, le=MOST_ITERATIONS, description="after which the script is ended"
    )
    clock: Literal["virtual", "real"] = Field(
        "virtual",
        description="what the script's own clocks show: what the job takes, or what recording it "
        "takes here",
    )
    db: Path | None = Field(
        None,
        description="profile database with ops timed on this hardware (paracosm profile ops "
        "--recording): they take that, others what the datasheet says",
    )
    launch: Duration | None = Field(
        None,
        ge=0,
        description="host time of what it asks of the device: a kernel, a collective (as measured "
        "in the database; 5 us)",
    )
    assume: AssumptionField = Field(
        (),
        description='what holds of values that nobody computes: "experts: zipf(1.2)", a routing as '
        'predict has it (they are balanced), "masks: density 0.5" (all true); may be given several '
        "times",
    )
    cost: OpCosts = Field(
        (),
        description="duration of a custom op or a Triton kernel of the script, which nobody else "
        'knows: "my_op: 120 us"; may be given several times',
    )
    slowdown: float | None = Field(
        None,
        ge=1,
        allow_inf_nan=False,
        description="slowdown of computing while collectives run (1.189 on GPUs: Lee et al. 2025)",
    )
    algorithm: str = Field(
        "auto", description="of collectives: ring, tree, hierarchical, ... (the cheapest)"
    )
    local_world_size: int | None = Field(
        None, ge=1, description="ranks of one machine (the devices of the node)"
    )
    batch_tokens: Tokens | None = Field(
        None,
        description="tokens (or examples) per iteration of all ranks: 4e6 (those that the first "
        "embedding looks up, or the images that the first convolution takes)",
    )
    price: DevicePrice = Field(None, description='money for a device: "2.2/h"')
    measured: Path | None = Field(
        None, description="run folder whose recording to reuse, instead of running the script"
    )
    output: Literal["terminal", "stderr", "none"] = Field(
        "terminal", description="destination of the script's output"
    )

    @field_validator("hardware")
    @classmethod
    def _known(cls, name: str) -> str:
        find_hardware(name)
        return name

    @cached_property
    def device(self) -> Hardware:
        return find_hardware(self.hardware)

    @property
    def world(self) -> int:
        """How many ranks the job has, what-ifs included."""
        count = next((change for change in self.what_if if change.what == "count"), None)
        if count is not None:
            return int(str(count.value))
        if self.world_size is not None:
            return self.world_size
        if self.cluster_in_file is None:
            raise InputError("missing number of ranks: add --world-size 16")
        return len(self.cluster_in_file.workers)

    @property
    def ranks_per_machine(self) -> int:
        if self.local_world_size is not None:
            return min(self.local_world_size, self.world)
        topology = self.resolve_cluster().topology
        size = topology.group_size if isinstance(topology, Hierarchical) else self.world
        return min(size, self.world)

    @property
    def has_links(self) -> bool:
        """Whether links are given, in place of the node's."""
        flags = self.bandwidth is not None or self.latency > 0 or self.overhead > 0
        return self.cluster is not None or flags

    def resolve_cluster(self) -> Cluster:
        """Return the cluster whose worker i is rank i, after changes of links and speeds."""
        if self.has_links:
            cluster = first_workers(self.cluster_of(self.world, 0), self.world)
        else:
            cluster = self.device.cluster(self.world)
        if cluster.servers:
            raise InputError("cluster: servers: an emulated job has ranks only, leave servers out")
        self.refuse_power("emulate --hardware")
        for node in cluster.nodes:
            if node.device not in (None, self.device.name):
                raise InputError(
                    f"cluster: device: {node.device} of {node.name}: the script runs on "
                    f"{self.device.name} everywhere: leave it out, or give it as --hardware"
                )
        if isinstance(cluster.sharing, Packets):
            raise InputError(
                f"sharing {cluster.sharing}: collectives of a script have their links to themselves"
            )
        return apply_changes(
            cluster, [change for change in self.what_if if changes_cluster(change)]
        )

    @property
    def launch_or_assumed(self) -> float:
        return LAUNCH if self.launch is None else self.launch

    @property
    def of_collectives(self) -> list[Change]:
        return [change for change in self.what_if if change.subject == "collectives"]

    @property
    def of_parts(self) -> list[Change]:
        return [change for change in self.what_if if changes_part(change)]

    @property
    def slowed(self) -> float:
        """How much longer computing takes beside collectives."""
        from paracosm.jobs.strategies.work import OF_GPUS

        if self.slowdown is not None:
            return self.slowdown
        return OF_GPUS.slowdown if self.device.device.kind == "gpu" else 1.0

    def of_rank(self, rank: int) -> EmulateConfig:
        """Return the configuration of the process in which a rank's script runs."""
        of_rank = {
            "script": self.script,
            "arguments": self.arguments,
            "world_size": self.world,
            "rank": rank,
            "local_world_size": self.ranks_per_machine,
            "output": self.output,
        }
        return EmulateConfig.model_validate(of_rank)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.refuse_idle()
        return self

    def idle(self) -> dict[str, set[str]]:
        if self.cluster is not None:
            return {"the cluster file defines it": set(LINK_FIELDS)}
        if not self.has_links:
            return {"links are the node's: add --bandwidth and --latency": set(LINK_FIELDS)}
        return {}

    def check(self) -> None:
        """Raise InputError for what can be known to be impossible before the script runs."""
        if self.script is None:
            raise InputError("missing script: paracosm emulate --hardware h100-sxm ... train.py")
        if self.world > MOST_RANKS:
            raise InputError(f"world_size: {MOST_RANKS:,} at most, not {self.world:,}")
        if self.rank >= self.world:
            raise InputError(
                f"rank: a world of {self.world:,} has ranks 0 to {self.world - 1:,}, not "
                f"{self.rank:,}"
            )
        if self.device.device.kind == "tpu":
            raise InputError(
                f"hardware: {self.device.name} is a TPU: scripts are recorded for GPUs and CPUs; "
                "paracosm predict takes it, for a model by its name"
            )
        if self.device.device.kind == "cpu" and self.world > 1:
            raise InputError(
                f"hardware: {self.device.name} is a CPU: a script is recorded on it as one rank of "
                "one: --world-size 1, or leave --hardware out, and the script runs on this machine"
            )
        if self.db is not None and not self.db.is_file():
            raise InputError(
                f"{self.db}: no such database: paracosm profile ops --recording RUN --db {self.db} "
                "makes it on a machine that has the device"
            )
        if self.measured is not None:
            if not (self.measured / FILE).is_file():
                raise InputError(
                    f"{self.measured}: not the folder of a script that was recorded with --hardware"
                )
        elif not is_module(self.script) and not self.script.is_file():
            raise InputError(f"{self.script}: no such script")
        impossible = [
            change
            for change in self.what_if
            if change.subject in ("workers", "servers")
            and change.what != "count"
            and not (
                change.subject == "workers" and (changes_cluster(change) or changes_part(change))
            )
        ]
        refuse_changes(impossible, "emulate --hardware", _CHANGEABLE)
        self.resolve_cluster()
