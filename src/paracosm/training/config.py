"""The arguments of `train`, shared by the command line and the study file."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    model_validator,
)

from paracosm.cluster import Cluster
from paracosm.cluster.changes import changes_cluster, refuse_changes
from paracosm.cluster.fields import LINK_FIELDS, ClusterFields, WorkerCount
from paracosm.cluster.link import Packets
from paracosm.errors import InputError
from paracosm.faults.models import Lose
from paracosm.faults.node_failures import FailureFields
from paracosm.models.shards import ALL, has_equal_sizes
from paracosm.quantities import Size, read_duration
from paracosm.timing import Constant, Distribution, parse_distribution
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.algorithms.registry import parse_algorithm
from paracosm.training.availability import OnOff
from paracosm.training.compression.codecs import Codec, parse_codec
from paracosm.training.failures.recovery import Failures, FaultFields
from paracosm.training.fields import (
    AS_TEXT,
    BatchesOf,
    ClientFields,
    LearningFields,
    ProfiledFields,
    RecipeFields,
    batches_of,
)
from paracosm.training.learning_rate import LearningRateScaling
from paracosm.training.named import LARGEST
from paracosm.training.target import Target, parse_target
from paracosm.training.team import Topology
from paracosm.units import format_duration, parse_number

MEASURED = "measured"

MOST_UPDATES = 100_000_000
MOST_WORKERS = 100_000  # each is a coroutine


def _compute(value: Any) -> Distribution | str:
    return MEASURED if value == MEASURED else _distribution(value)


def _distribution(value: Any) -> Distribution:
    """Read a distribution; a plain number in a text has no unit."""
    if isinstance(value, Distribution):
        return value
    if isinstance(value, str):
        try:
            seconds = parse_number(value)
        except InputError:
            seconds = 0.0
        if seconds:
            raise InputError(f'"{value}" has no unit: write {value}ms or {value}s')
    return parse_distribution(value)


def _check_count(workers: int) -> None:
    if workers > MOST_WORKERS:
        raise InputError(f"workers: a training has {MOST_WORKERS:,} at most, not {workers:,}")


def _until(value: Any) -> float | Target:
    if isinstance(value, Target):
        return value
    if isinstance(value, str) and any(sign in value for sign in "<=>"):
        return parse_target(value)
    seconds = read_duration(value)
    if not seconds > 0:
        raise InputError(f"until: must be above 0 seconds, not {value}")
    return seconds


_UPDATES = 3000
_MOST_SERVERS = 10_000  # each of which takes part in every update
_RESENDS = 10_000  # of one message, all lost
_DURATIONS = (
    *("schedule", "compute", "recording", "update_time", "message_size", "timing_only"),
    "timeline",
)
_NUMERICS = {
    *("shards", "optimizer", "lr", "buffers", "evaluate_every", "evaluate_examples"),
    *("lookahead", "keep_going", "loss_limit", "lr_scaling"),
    *RecipeFields.model_fields,
}


class TrainConfig(ProfiledFields, LearningFields, ClientFields, FaultFields, ClusterFields):
    """A hybrid simulation: what is trained, by which algorithm, on which simulated cluster."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # Which schedule, where steps are not simulated as a whole.
    strategy: str | None = Field(
        None,
        description=(
            "how workers share the work, as in predict: ddp, fsdp, ps, ...; updates are "
            "those of ssgd, at the ends of predicted iterations"
        ),
    )
    db: Path = Field(Path("profiles.db"), description="profile database, for a strategy")
    hardware: str | None = Field(
        None, description='of whose timings, for a strategy: part of a name, "H100" (this machine)'
    )

    # How; what is trained are fields of `LearningFields`.
    algorithm: Annotated[InstanceOf[Algorithm], BeforeValidator(parse_algorithm), AS_TEXT] = Field(
        parse_algorithm("asgd"),
        description="an algorithm, with its parameters: asgd, ssgd, ssp(slack=3), ..., or "
        "file.py:Class of your own",
    )
    compress: (
        Annotated[
            InstanceOf[Codec],
            BeforeValidator(lambda v: v if isinstance(v, Codec) else parse_codec(v)),
            AS_TEXT,
        ]
        | None
    ) = Field(
        None,
        description="compression of messages from workers: topk(0.01), randomk(0.01), qsgd, "
        "signsgd, one-bit, powersgd(rank=2), fp16, bf16; topk(0.01, feedback=false) drops the "
        "error feedback",
    )
    topology: Topology | None = Field(
        None, description="communication topology, where the algorithm leaves a choice"
    )
    lr: float = Field(0.2, gt=0, le=LARGEST, description="learning rate")
    lr_scaling: LearningRateScaling | None = Field(
        None,
        description="the learning rate is that of one worker, and grows with workers: linear, sqrt",
    )
    updates: int | None = Field(
        None,
        ge=1,
        le=MOST_UPDATES,
        description="updates before the run ends (3000, or any number until a virtual time)",
    )
    until: (
        Annotated[
            InstanceOf[Target] | float,
            BeforeValidator(_until),
            PlainSerializer(
                lambda v: str(v) if isinstance(v, Target) else format_duration(v, exact=True),
                return_type=str,
            ),
        ]
        | None
    ) = Field(
        None,
        description='when the run ends: a virtual time, or a target such as "accuracy >= 0.95"',
    )
    evaluate_every: int | None = Field(
        None, ge=1, description="updates between evaluations (by default 60 a run)"
    )

    # On which cluster; links and changes are fields of `ClusterFields`.
    workers: WorkerCount = Field(4, description="number of workers; 1,2,4..64 is a sweep")
    servers: int = Field(1, ge=1, le=_MOST_SERVERS, description="number of parameter servers")
    compute: Annotated[
        InstanceOf[Distribution] | Literal["measured"], BeforeValidator(_compute), AS_TEXT
    ] = Field(
        parse_distribution("lognormal(20ms, 0.1)"),
        description='duration of one gradient: a distribution, or "measured"',
    )
    batch_of: BatchesOf = Field(
        (),
        description='workers with a different batch: "worker 3: 64", "workers 4..7: 64"; computing '
        "time scales with it; repeatable",
    )
    recording: Path | None = Field(
        None, description="recording.json of a measured run, whose durations to replay"
    )
    schedule: Path | None = Field(
        None,
        description=(
            "schedule.parquet with the reads and updates of another run or a recorded "
            "one, in place of a simulated cluster"
        ),
    )
    update_time: Annotated[InstanceOf[Distribution], BeforeValidator(_distribution), AS_TEXT] = (
        Field(Constant(0.0), description="duration of one update at a parameter server")
    )
    message_size: Size | None = Field(
        None, gt=0, description="bytes of a whole gradient (default: the model's own)"
    )

    # What is really computed, and what happens when it goes wrong.
    timing_only: bool = Field(False, description="no gradients, only schedule and staleness")
    keep_going: bool = Field(False, description="continue after the loss has diverged")
    timeline: bool | None = Field(
        None, description="record every span (default: up to a million of them)"
    )

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        if self.strategy is not None and self.algorithm.name != "ssgd":
            raise ValueError(
                f"algorithm: the workers of a strategy are synchronous, not {self.algorithm}: "
                "leave it out"
            )
        if self.recording is not None and self.compute != MEASURED:
            raise ValueError("recording: only a run whose compute is measured can replay one")
        if self.timing_only and self.target is not None:
            raise ValueError(
                "until: timing_only mode computes nothing, so it cannot reach a target: give a "
                "virtual time"
            )
        if self.timing_only and self.compute == MEASURED:
            raise ValueError(
                "compute: timing_only mode computes nothing, so nothing can be measured: give a "
                "distribution"
            )
        if self.batch == ALL:
            self._check_whole_shards()
        if self.timing_only and self.algorithm.counts_examples:
            raise ValueError(
                f"algorithm: the number of steps of {self.algorithm} depends on data, which "
                "timing_only mode lacks: give steps in place of epochs"
            )
        if not self.timing_only:
            self.algorithm.check_optimizer(self.optimizer)
        if self.compute == MEASURED and self.lookahead not in ("auto", "off"):
            raise ValueError(
                "lookahead: gradients are timed one by one when compute is measured; "
                "leave lookahead out"
            )
        if self.compute == MEASURED and self.algorithm.interrupts:
            raise ValueError(
                f"compute: {self.algorithm} interrupts workers, so computing time must be "
                "modelled, not measured: give a distribution"
            )
        if self.compute == MEASURED and self.what_if:
            raise ValueError(
                "what_if: measured durations vary between the two runs to compare: give compute a "
                "distribution"
            )
        if self.compress is not None and self.algorithm.sends_parameters:
            raise ValueError(
                f"compress: the workers of {self.algorithm} send whole parameters, which codecs "
                "do not preserve: leave it out, or choose an algorithm that sends gradients or "
                "changes"
            )
        self._check_faults()
        self.refuse_idle()
        is_counted = self.schedule is not None and self.updates is None and self.until_time is None
        if not is_counted:  # in the file, and checked then
            self.check_recipe(self.last_update)
        has_server = self.resolve_topology() == "server"
        if self.privacy_of("clients") and not (has_server and self.algorithm.pushes_only_changes):
            raise ValueError(
                f"privacy: {self.algorithm} sends servers more than changes by local steps: use "
                "examples(clip=1, noise=1.1), or choose fedavg"
            )
        self._check_clients()
        if self.cluster is None:
            self.resolve_cluster()
        self._check_changes()
        return self

    @model_validator(mode="before")
    @classmethod
    def _algorithm_of_strategy(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("strategy") is not None:
            return {"algorithm": "ssgd", **given}
        return given

    def _check_whole_shards(self) -> None:
        if self.timing_only:
            raise ValueError(
                "batch: the size of a whole shard depends on data, which timing_only mode lacks: "
                "give a number"
            )
        if self.profile is not None or self.strategy is not None:
            given = "strategy" if self.profile is None else "profile"
            raise ValueError(f"batch: a {given} predicts minibatches of one size: give a number")

    def _check_faults(self) -> None:
        if not (self.profile is None and self.strategy is None and self.schedule is None):
            return
        if self.fails and self.clients is not None:
            raise ValueError(
                "clients: their nodes do not fail; they come and go by --availability and "
                "--dropout: leave mtbf and fault out"
            )
        algorithm, topology = self.algorithm, self.resolve_topology()
        recoveries = algorithm.recoveries_on(topology)
        restarts = self.own_recovery(recoveries) == "restart"
        keeps_errors = self.compress is not None and self.compress.feedback
        if keeps_errors and self.worker_fails and not restarts:
            raise ValueError(
                "compress: a failing worker would lose the codec's error feedback: leave compress "
                "out, give it feedback=false, or use recovery restart"
            )
        self.check_survival(str(algorithm), recoveries, algorithm.in_checkpoints)
        if self.recovery is not None and self.recovery not in recoveries:
            raise ValueError(
                f'recovery: {algorithm.name} on topology "{topology}" has no {self.recovery}: use '
                f"{' or '.join(recoveries)}"
            )
        if self.fails and self.compute == MEASURED:
            raise ValueError(
                "compute: where nodes fail, computing time must be modelled, not measured: give a "
                "distribution"
            )
        for fault in self.fault:
            model, after = fault.model, self.resend_after
            if after is None or not isinstance(model, Lose):
                continue
            tries = 1 / (1 - model.percent / 100) if model.percent < 100 else inf
            if min(tries, model.duration / after) > _RESENDS:
                raise ValueError(
                    f'fault "{fault}": messages are lost however often they are sent again: give '
                    "it a duration, a smaller share or a longer resend_after"
                )
        if topology not in ("server", "peers"):
            for fault in self.fault:
                if isinstance(fault.model, Lose):
                    raise ValueError(
                        f'fault "{fault}": {algorithm.name} on topology "{topology}" sends no '
                        "individual messages that could be lost"
                    )
        slow = self.slows_servers()
        if slow and topology == "server" and self.update_time == Constant(0.0):
            raise ValueError(
                f'fault "{slow[0]}": has no effect: updates take no time; give update_time'
            )

    def _check_changes(self) -> None:
        others = [change for change in self.what_if if not changes_cluster(change)]
        refuse_changes(others, "train", "how fast workers and servers compute, and values of links")
        for change in self.what_if:
            is_of_links = change.subject in ("link", "links")
            if is_of_links and self.resolve_topology() == "local":
                raise change.error(f"has no effect: {self.algorithm} sends nothing")
            takes_no_time = self.profile is None and self.update_time == Constant(0.0)
            if change.subject == "servers" and takes_no_time:
                raise change.error("has no effect: updates take no time; give update_time")

    def idle(self) -> dict[str, set[str]]:
        idle: dict[str, set[str]] = {}
        topology = self.resolve_topology()
        if self.schedule is not None:
            reason = "the schedule defines all reads and updates"
            idle[reason] = {"workers", "servers", "cluster", "what_if", "topology", *LINK_FIELDS}
            idle[reason] |= {"compute", "update_time", "message_size", "timing_only", "timeline"}
        if self.cluster is not None:
            reason = "the cluster file defines the nodes and links"
            idle[reason] = {"workers", "servers", *LINK_FIELDS}
        if self.profile is not None and self.strategy is not None:
            idle["the profile defines a step"] = {"strategy"}
        if self.profile is not None:
            idle["the profile has the durations"] = {*_DURATIONS, "batch_of"}
            idle |= self.idle_of_start()
        elif self.strategy is not None:
            idle["the durations come from the database and the strategy"] = {
                *(*_DURATIONS, "servers", "topology", "batch_of")
            }
        if self.strategy is None:
            idle["only --strategy uses it: give --strategy ddp"] = {"db", "hardware"}
        rule = self.algorithm.rule(self.workers)
        on_engine = FaultFields.model_fields.keys() - FailureFields.model_fields.keys()
        if self.schedule is not None:
            reason = "the schedule defines what is lost"
            idle[reason] = set(FaultFields.model_fields)
        elif self.profile is None and self.strategy is None:
            idle |= self.idle_faults(self.algorithm.recoveries_on(topology), topology == "server")
        elif rule is None:
            reason = f"{self.algorithm} depends on values, so its nodes do not fail"
            idle[reason] = set(FaultFields.model_fields)
        else:
            idle |= self.idle_of_failures([rule.needs_all])
            given = "strategy" if self.profile is None else "profile"
            idle[f"individual faults need the engine: leave out --{given}"] = set(on_engine)
        if self.profile is None:
            idle["only a job profile uses it: give --profile"] = {"node", "start", "stagger"}
        elif rule is None:
            idle[f"{self.algorithm} depends on values, so its workers begin together"] = {
                *("start", "stagger")
            }
        if self.schedule is not None or self.profile is not None or self.strategy is not None:
            reason = "a schedule, a profile or a strategy defines the sizes of messages"
            idle[reason] = {"compress"}
        elif topology == "local":
            idle[f"{self.algorithm} sends nothing to compress"] = {"compress"}
        elif self.timing_only and self.costless_messages():
            reason = "messages take no time, and nothing is computed: give --bandwidth"
            idle[reason] = {"compress"}
        idle |= self._idle_of_clients()
        if topology != "server":
            reason = f'{self.algorithm} runs on topology "{topology}"'
            idle[reason] = {"servers", "update_time"}
            if topology == "local":
                idle[reason] |= {"message_size", *LINK_FIELDS}
        if self.batch == ALL:
            idle["every minibatch is a whole shard"] = {"batch_of"}
        if self.clients is not None:
            idle["clients share the workers, with one batch size"] = {"batch_of"}
        idle |= self.idle_of_privacy()
        if self.timing_only:
            reason = "nothing is computed in timing_only mode"
            idle[reason] = set(_NUMERICS)
            is_whole = self.servers == self.algorithm.fragments == 1
            if self.message_size is not None and is_whole and self.compress is None:
                idle[reason] |= {"model", "data", "data_dir"}
        return idle

    @property
    def worker_availability(self) -> OnOff | Path | None:
        return self.availability if self.clients is None else None

    def _idle_of_clients(self) -> dict[str, set[str]]:
        if self.schedule is not None or self.profile is not None or self.strategy is not None:
            reason = "over a schedule every worker is its own client"
            return {reason: set(ClientFields.model_fields)}
        idle = self.idle_of_clients(self._obstacle_to_clients(), self.algorithm.has_rounds)
        if self.clients is None:
            for fields in idle.values():
                fields.discard("availability")  # it is that of the workers
        return idle

    def _obstacle_to_clients(self) -> str | None:
        if self.resolve_topology() != "server":
            return f"a parameter server picks clients, and {self.algorithm} has none here"
        if not self.algorithm.lets_clients_change:
            return f"{self.algorithm} keeps state at each worker"
        return None

    def _check_clients(self) -> None:
        if self.privacy_of("examples") and self.shards.startswith("bootstrap"):
            raise ValueError(
                f"privacy: with shards {self.shards} several clients may share an example, whose "
                "privacy loss is not counted: use iid or another partition"
            )
        if self.clients is None:
            return
        compute = self.compute_distribution()
        if compute is None or compute.in_order:
            raise ValueError(
                "compute: clients share workers, so their computing time must be a distribution, "
                "neither measured nor a recording"
            )
        if self.sampling == "by-size" and (self.timing_only or has_equal_sizes(self.shards)):
            raise ValueError(
                "sampling: by-size has no effect where all clients have equally many examples: "
                "give --shards dirichlet(0.5) or sizes(0.5), or leave it out"
            )

    def _check_places(self, cluster: Cluster) -> None:
        if self.clients is None:
            return
        workers = len(cluster.workers)
        if workers > self.clients:
            raise InputError(
                f"clients: {self.clients} clients cannot fill {workers} workers: give fewer "
                "--workers"
            )
        if len(cluster.servers) != 1:
            raise InputError(f"clients: 1 server picks them, not {len(cluster.servers)}")
        if isinstance(cluster.sharing, Packets):
            raise InputError(
                f"clients: sharing {cluster.sharing} cannot withdraw the messages of a lost "
                "client: use fair or serial"
            )
        has_lines = self.client_uplink is not None or self.client_downlink is not None
        if has_lines and any(link.duplex == "half" for link in cluster.links):
            raise InputError("clients: uplink and downlink need full duplex, not half")
        if cluster.placement != "own":
            raise InputError("clients: their server needs its own node: placement: own")

    def costless_messages(self) -> bool:
        """Whether message sizes have no effect."""
        if any(change.what == "bandwidth" for change in self.what_if):
            return False
        has_lines = self.client_uplink is not None or self.client_downlink is not None
        return self.cluster is None and self.bandwidth in (None, inf) and not has_lines

    def resolve_cluster(self) -> Cluster:
        """Return the simulated cluster, without the changes of `what_if`."""
        if self.cluster is None:
            _check_count(self.workers)
        servers = self.servers if self.resolve_topology() == "server" else 0
        return self.cluster_of(self.workers, servers)

    def resolve_topology(self) -> Topology:
        return self.algorithm.topology_for(self.topology)

    def check(self, cluster: Cluster) -> None:
        """Raise InputError if a name is unknown, or the run is impossible on that cluster."""
        self._check_length(len(cluster.workers))
        is_needed = "model" not in self.without_effect()
        if is_needed and not (self.timing_only and self.costless_messages()):
            self.check_learning()
        if self.schedule is not None:
            if not self.schedule.is_file():
                raise InputError(f"schedule: no such file: {self.schedule}")
            return  # the schedule has the number of workers
        self.algorithm.check(len(cluster.workers), len(cluster.servers))
        self.batches(len(cluster.workers))
        self._check_places(cluster)
        is_served = self.resolve_topology() == "server" and self.strategy is None
        if is_served and not cluster.servers:
            raise InputError(
                f"{self.algorithm} needs a parameter server, and the cluster has none: add one, "
                "or choose a topology without servers"
            )
        self.changed(cluster)
        self.failures_on(cluster)

    def _check_length(self, workers: int) -> None:
        """Refuse a run that would not end in days: messages may slow it down tenfold."""
        _check_count(workers)
        compute = self.compute_distribution()
        if self.schedule or self.last_update < inf or compute is None or not compute.mean():
            return
        gradients = workers * cast(float, self.until_time) / compute.mean()
        updates = gradients / max(1, self.algorithm.gradients_per_update(workers))
        if updates > 10 * MOST_UPDATES:
            raise InputError(
                f"until: up to {updates:.2g} updates by then, and a run has {MOST_UPDATES:,} at "
                "most: let it end earlier"
            )

    def failures_on(self, cluster: Cluster) -> Failures | None:
        """Return failures and recovery of a run on the engine; None where nothing fails."""
        if self.profile is not None or self.strategy is not None:
            return None
        algorithm, topology = self.algorithm, self.resolve_topology()
        servers = len(cluster.servers) if topology == "server" else 0
        recoveries = algorithm.recoveries_on(topology)
        found = self.failures(recoveries, len(cluster.workers), servers)
        if found is not None and found.in_step and found.recovery != "restart" and servers > 1:
            raise InputError(
                f"recovery: {algorithm.name} with {found.recovery} runs on 1 server, not "
                f"{servers}: several would not agree on who takes part in an update"
            )
        return found

    def batches(self, workers: int) -> list[int]:
        """Return the examples in a minibatch of each worker."""
        return batches_of(self.batch, self.batch_of, workers)

    def compute_distribution(self) -> Distribution | None:
        """Return the distribution of a gradient's duration; None when it is measured."""
        return self.compute if isinstance(self.compute, Distribution) else None

    @property
    def most_updates(self) -> int:
        """The number of updates after which the run ends, if `until` does not end it before."""
        if self.updates is not None:
            return self.updates
        return _UPDATES if self.until_time is None else sys.maxsize

    @property
    def last_update(self) -> float:
        """The same; infinite where a virtual time alone ends the run."""
        return inf if self.most_updates == sys.maxsize else self.most_updates

    @property
    def until_time(self) -> float | None:
        """The virtual time at which the run ends; None where none was given."""
        return None if isinstance(self.until, Target) else self.until

    @property
    def target(self) -> Target | None:
        """The target that ends the run; None without one."""
        return self.until if isinstance(self.until, Target) else None
