"""The configuration of `emulate`, shared by the command line and the study file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    model_validator,
)

from paracosm.cluster import Cluster
from paracosm.cluster.changes import Change, apply_changes, refuse_changes
from paracosm.cluster.cluster import first_workers
from paracosm.cluster.collectives import shares_ports
from paracosm.cluster.fields import LINK_FIELDS, ClusterFields, WorkerCount
from paracosm.cluster.link import Hierarchical, Packets, Sharing
from paracosm.data_files import read_yaml
from paracosm.emulation.delays import Delays, parse_delays
from paracosm.errors import InputError
from paracosm.factory import is_reference
from paracosm.quantities import Bandwidth
from paracosm.timing import Distribution, parse_distribution
from paracosm.units import parse_whole


@dataclass(frozen=True)
class RandomDelay:
    """Seconds by which a rank is later, or earlier where `sign` is -1."""

    text: str
    distribution: Distribution
    sign: int = 1

    def __str__(self) -> str:
        return self.text


def parse_random_delay(text: str) -> RandomDelay:
    """Read a delay such as "50us" or "lognormal(10ms, 0.5)"."""
    distribution = parse_distribution(text)
    try:
        distribution.from_uniform(np.array([0.5]))
    except TypeError:
        raise InputError(
            f'"{text}" is replayed in order, not drawn from: use empirical(...)'
        ) from None
    return RandomDelay(text, distribution)


def _parse_skew(text: str) -> RandomDelay:
    sign = -1 if text.strip().startswith("-") else 1
    return replace(parse_random_delay(text.strip().removeprefix("-")), text=text, sign=sign)


def _ranks(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if isinstance(value, str):
        try:
            return tuple(int(part) for part in value.split(","))
        except ValueError:
            raise InputError(f'cannot read "{value}": write ranks as 0 or 0,3') from None
    return value


def first_rank(value: Any) -> Any:
    """Return the rank of a list of one, as a study of several ranks has it."""
    ranks = _ranks(value)
    return ranks[0] if isinstance(ranks, tuple | list) and len(ranks) == 1 else value


def is_module(script: Path | None) -> bool:
    """Whether a script is given as `python -m` takes it."""
    return str(script).startswith("module:")


def _read(parse: Callable[[str], Any]) -> PlainValidator:
    """Return the validator that reads a text, or None from "none"."""

    def read(value: Any) -> Any:
        if value in (None, "none"):
            return None
        return value if isinstance(value, RandomDelay | Delays) else parse(str(value))

    return PlainValidator(read)


_AS_TEXT = PlainSerializer(lambda value: None if value is None else str(value))


MOST_RANKS = 100_000

_CALIBRATED = {"bandwidth", "latency", "overhead", "core_bandwidth"}

_CHANGEABLE = (
    "how fast emulated workers compute, how late they come (worker 5: +10 ms), how many there are, "
    "links and collectives"
)


class EmulateConfig(ClusterFields):
    """An emulated job: the script, the real ranks, the world and the cluster."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    SYNONYMS: ClassVar[dict[str, str]] = {"workers": "world_size", "beside": "compare"}

    script: Path | None = Field(
        None, description="the training script, or module:NAME as python -m takes it"
    )
    arguments: tuple[str, ...] = Field((), description="of the script")
    world_size: WorkerCount | None = Field(
        None, description="ranks of the job (the workers of the cluster file)"
    )
    rank: Annotated[tuple[int, ...], BeforeValidator(_ranks)] = Field(
        (0,),
        description="which rank is real; several, as 0,3: at a time in wire mode, one after the "
        "other in backend mode, each for those like it",
    )
    kinds: bool = Field(
        False,
        description="backend mode: run a rank of each kind, as the stages of a pipeline, one after "
        "the other, from the first that rank names on; iterations of all of them are put together",
    )
    mode: Literal["backend", "wire"] = Field(
        "backend",
        description="backend: a modelled torch.distributed backend, any world and device; wire: "
        "the real gloo talks to emulated peers over TCP",
    )
    nccl: bool = Field(
        False,
        description=(
            "on a GPU: use PyTorch's own NCCL process group, over an NCCL whose other "
            "ranks are emulated, instead of mode backend's"
        ),
    )
    communication: str | None = Field(
        None,
        description="cost of communication: cluster, none, measured (wire mode: by the real "
        "rank's own link), or package.module:function of your own (cluster where links "
        "are given; else none, or in wire mode measured)",
    )
    algorithm: str = Field(
        "auto", description="of collectives: ring, tree, hierarchical, ... (the cheapest)"
    )
    device: Literal["cpu", "cuda"] | None = Field(
        None,
        description='where "cuda" of the script is: on the CPU (cpu, the default where there is no '
        "GPU), or on this machine's GPUs",
    )
    skew: Annotated[RandomDelay | None, _read(_parse_skew), _AS_TEXT] = Field(
        None, description="how much later than the real rank each peer comes: 50us, a distribution"
    )
    compute_jitter: Annotated[
        RandomDelay | Literal["measured"] | None,
        _read(lambda text: text if text == "measured" else parse_random_delay(text)),
        _AS_TEXT,
    ] = Field(
        None,
        description=(
            "variation of peers' computing time: measured (like the real rank's), or a "
            "distribution of additional time (none)"
        ),
    )
    comm_workers: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="collectives of one group that run at a time (2 for gloo, 1 for nccl)",
    )
    core_bandwidth: Bandwidth | None = Field(
        None,
        gt=0,
        description="bytes of messages a second that one core of a rank copies, sends and adds up: "
        "what communication takes from computing where no core is to spare (nothing)",
    )
    calibration: Path | None = Field(
        None,
        description="values of --calibrate-link, in place of bandwidth, latency, overhead and "
        "core_bandwidth",
    )
    live: bool | None = Field(
        None,
        description="backend mode: the script itself waits for collectives; else it runs without "
        "waiting, and iterations are put together afterwards (with a CUDA device)",
    )
    measured: Path | None = Field(
        None,
        description="run folder with measured computing to reuse, instead of running the script",
    )
    local_world_size: int | None = Field(
        None, ge=1, description="ranks of one machine (group_size of a hierarchical cluster, or 1)"
    )
    pace: bool | None = Field(
        None,
        description="wire mode: give the real rank's own links the modelled speed as well (where "
        "links are given)",
    )
    port: int | None = Field(None, ge=1, le=65535, description="of the rendezvous (a free one)")
    delays: Annotated[Delays | None, _read(parse_delays), _AS_TEXT] = Field(
        None,
        description=(
            "run once for each of several added delays and find the delay that computing "
            'hides: "all_reduce 0ms..8ms/9" for nine delays'
        ),
    )
    compare: Path | None = Field(
        None, description="run folder of a prediction of the same job, for comparison"
    )
    output: Literal["terminal", "stderr", "none"] = Field(
        "terminal", description="destination of the script's output"
    )

    @model_validator(mode="before")
    @classmethod
    def _calibrated(cls, given: Any) -> Any:
        """Replace `calibration`, a file of `--calibrate-link`, by its values."""
        if not isinstance(given, dict) or not isinstance(given.get("calibration"), str | Path):
            return given
        path = Path(given["calibration"])
        values = read_yaml(path, "calibration")
        if not isinstance(values, dict) or not values or not set(values) <= _CALIBRATED:
            keys = ", ".join(sorted(_CALIBRATED))
            raise InputError(f"{path}: a file of --calibrate-link has values of {keys} alone")
        if both := sorted(values.keys() & given.keys()):
            raise InputError(f"{path} sets {both[0]} already: give one of them")
        return given | values | {"calibration": None}

    @property
    def is_module(self) -> bool:
        return is_module(self.script)

    @property
    def has_links(self) -> bool:
        flags = self.bandwidth is not None or self.latency > 0 or self.overhead > 0
        return self.cluster is not None or flags

    @property
    def communication_model(self) -> str:
        if self.communication is not None:
            return self.communication
        if self.has_links:
            return "cluster"
        return "measured" if self.mode == "wire" else "none"

    @property
    def is_paced(self) -> bool:
        """Whether the real rank's own links get the modelled speed, in mode wire."""
        return self.has_links if self.pace is None else self.pace

    @property
    def shared(self) -> Sharing:
        """How transfers under way at the same time share the rank's links."""
        file = self.cluster_in_file
        return self.sharing if file is None else file.sharing

    @property
    def world(self) -> int:
        """How many ranks the job has, what-ifs included; the real ones must be among them."""
        change = self._change_of_world
        world = self.world_size if change is None else int(str(change.value))
        if world is None:
            if self.cluster_in_file is None:
                raise InputError("missing number of ranks: add --world-size 16")
            world = len(self.cluster_in_file.workers)
        for rank in self.rank:
            if not 0 <= rank < world:
                raise self._world_error(
                    f"rank: a world of {world:,} has ranks 0 to {world - 1:,}, not {rank}"
                )
        return world

    @property
    def takes_turns(self) -> bool:
        """Whether several ranks are run, one after the other, and their job is put together."""
        return self.mode == "backend" and (self.kinds or len(self.rank) > 1)

    @property
    def is_composed(self) -> bool:
        """Whether computing is measured and iterations are put together, on a CPU."""
        return self.mode == "backend" and not (self.live or self.nccl)

    @property
    def ranks_per_machine(self) -> int:
        """How many ranks one machine has: LOCAL_WORLD_SIZE of the script's environment."""
        return self._ranks_per_machine or 1

    @property
    def devices(self) -> int:
        """How many CUDA devices a script finds where the CPU takes their place."""
        return self._ranks_per_machine or self.world

    @property
    def _ranks_per_machine(self) -> int | None:
        if self.local_world_size is not None:
            return min(self.local_world_size, self.world)
        cluster = self.resolve_cluster()
        if cluster is not None and isinstance(cluster.topology, Hierarchical):
            return min(cluster.topology.group_size, self.world)
        return None

    def resolve_cluster(self) -> Cluster | None:
        """Return the cluster whose worker i is rank i, after changes of links; None for none."""
        return self._resolved_cluster

    @cached_property
    def _resolved_cluster(self) -> Cluster | None:
        if not self.has_links:
            return None
        cluster = self.cluster_of(self.world, 0)
        self.refuse_power("emulate")
        if cluster.servers:
            raise InputError("cluster: servers: an emulated job has ranks only, leave servers out")
        try:
            cluster = first_workers(cluster, self.world)
        except InputError as error:
            raise self._world_error(str(error)) from None
        if self.nccl and isinstance(cluster.sharing, Packets):
            raise InputError(f"sharing {cluster.sharing}: with nccl links are fair or serial")
        if shares_ports(cluster):
            raise InputError(
                "cards, leaf_switches: one real rank does not show what the others of its machine "
                "send at the same time: give each a card of its own, or predict the job"
            )
        return apply_changes(cluster, self.changes("link"))

    def changes(self, subject: str) -> list[Change]:
        """Return the changes whose subject begins with "link", "collectives" or "workers"."""
        can = {"workers": ("compute", "late", "count"), "servers": ()}
        impossible = [
            change
            for change in self.what_if
            if change.what not in can.get(change.subject, (change.what,))
        ]
        refuse_changes(impossible, "emulate", _CHANGEABLE)
        for change in self.what_if:
            if (
                change.subject == "collectives"
                and not isinstance(change.added, str)
                and change.added < 0
            ):
                raise change.error("emulate cannot take a delay away; write 2x faster, or none")
        return [change for change in self.what_if if change.subject.startswith(subject)]

    @property
    def _change_of_world(self) -> Change | None:
        changes = [change for change in self.what_if if change.what == "count"]
        if len(changes) > 1:
            raise changes[1].error("the number of workers is changed twice")
        return changes[0] if changes else None

    def _world_error(self, reason: str) -> InputError:
        change = self._change_of_world
        return InputError(reason) if change is None else change.error(reason)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.rank:
            raise ValueError("rank: at least one rank is real")
        if len(set(self.rank)) < len(self.rank):
            raise ValueError("rank: a rank is named twice")
        if len(self.rank) > 1 and self.mode == "backend" and (self.live or self.nccl):
            raise ValueError(
                "rank: several ranks run one after the other, and none can wait for another: leave "
                "--live and --nccl out, or add --mode wire"
            )
        if self.delays is not None and (self.mode == "wire" or self.live or self.nccl):
            raise ValueError(
                "delays: computing must be measured once for all of them: mode backend, without "
                "--live and --nccl"
            )
        self.refuse_idle()
        return self

    def idle(self) -> dict[str, set[str]]:
        idle: dict[str, set[str]] = {}
        if self.mode == "backend":
            idle["only mode wire has it"] = {"pace", "port"}
        else:
            own = {"algorithm", "comm_workers", "live", "core_bandwidth", "measured"}
            idle["in mode wire gloo itself decides"] = own
            idle["in mode wire real ranks run at a time: name them, as --rank 0,3"] = {"kinds"}
            idle["it is mode backend's"] = {"nccl"}
        if self.live:
            idle["with live, computing takes its time on this machine"] = {
                "core_bandwidth",
                "measured",
                "kinds",
            }
        if self.nccl:
            own = {"comm_workers", "live", "core_bandwidth", "measured", "kinds"}
            idle["with nccl PyTorch's own streams decide"] = own
        if self.cluster is not None:
            idle["the cluster file defines it"] = set(LINK_FIELDS)
        elif not self.has_links:
            flags = {"duplex", "pipelined", "sharing"}
            if self.communication is not None and is_reference(self.communication):
                flags.remove("sharing")
            idle["there are no links: add --bandwidth and --latency, or --cluster FILE"] = flags
        return idle


VARIABLE = "PARACOSM_EMULATION"  # environment variable that holds a `Setting`


@dataclass(frozen=True)
class RecordedDevice:
    """The device that a script runs on, where it is not there and what it would do is recorded."""

    name: str  # in the catalogue
    title: str  # as its driver names it
    capability: tuple[int, int]
    memory: int  # bytes
    iterations: int  # after which the script is ended
    recording: Path  # file that is written at the end
    messages: Path  # folder of what ranks that were recorded before have sent
    arguments: dict[str, Any]  # of the run
    graph: Path | None = None  # file for the graph of an iteration, where that is wanted
    is_host: bool = False  # whether it is a CPU, on which a script is one process without ranks


@dataclass(frozen=True)
class Setting:
    config: EmulateConfig
    seed: int  # of everything that is random
    rank: int  # of this process; -1 for the emulator
    records: Path  # file that it writes its records to
    launcher: int | None = None  # id of the process that this one ends with
    device: RecordedDevice | None = None  # that is not there; None where the script really computes
    messages: Path | None = None  # folder of what ranks that were run before have sent

    def environment(self) -> dict[str, str]:
        """Return the variables that pass this on and, as torchrun does, identify a real rank."""
        variables = {VARIABLE: self.as_json()}
        if self.rank < 0 or (self.device is not None and self.device.is_host):
            return variables
        local, world = self.config.ranks_per_machine, self.config.world
        numbers = {
            "RANK": self.rank,
            "WORLD_SIZE": world,
            # By which scripts choose their device: this machine may have those of real ranks only.
            "LOCAL_RANK": self.config.rank.index(self.rank)
            if self.device is None
            else self.rank % local,
            "LOCAL_WORLD_SIZE": local,
            "GROUP_RANK": self.rank // local,
            "GROUP_WORLD_SIZE": -(-world // local),
            "ROLE_RANK": self.rank,
            "ROLE_WORLD_SIZE": world,
        }
        if self.config.device == "cpu":
            variables["CUDA_VISIBLE_DEVICES"] = ""
        return variables | {name: str(number) for name, number in numbers.items()}

    def as_json(self) -> str:
        exclude = {"config": self.config.without_effect()}
        return TypeAdapter(Setting).dump_json(self, exclude=exclude).decode()

    @classmethod
    def from_json(cls, text: str) -> Setting:
        return TypeAdapter(cls).validate_json(text)

    @classmethod
    def from_environment(cls) -> Setting:
        try:
            return cls.from_json(os.environ[VARIABLE])
        except (KeyError, ValueError):
            raise InputError(
                f"{VARIABLE}: paracosm emulate sets it for the processes that it starts; it is "
                "nothing to set or to change"
            ) from None


def whole_number(variable: str, text: str | None, largest: int = 2**31 - 1) -> int:
    """Return the number from 0 to `largest` that a variable of the environment has.

    Args:
        text: its value; None where it is not set.

    Raises:
        InputError: it is not set, no whole number, or too large.
    """
    if text is None:
        raise InputError(f"{variable}: not set: a whole number from 0 to {largest:,}")
    number = parse_whole(text.strip(), largest)
    if number is None:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise InputError(f'{variable}: a whole number from 0 to {largest:,}, not "{shown}"')
    return number


_SHOWN = 40  # letters of what is not a number
