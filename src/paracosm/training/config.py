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
from paracosm.models.data_sets import DATA_SETS, is_known_by_client
from paracosm.models.shards import ALL, has_equal_sizes
from paracosm.quantities import Size, read_duration
from paracosm.timing import Constant, Distribution, parse_distribution
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.algorithms.federated import FedAvg
from paracosm.training.algorithms.registry import parse_algorithm
from paracosm.training.availability import Presence
from paracosm.training.compression.codecs import Codec, parse_codec
from paracosm.training.failures.recovery import Failures, FaultFields, Recovery
from paracosm.training.fields import (
    AS_TEXT,
    BatchesOf,
    ClientFields,
    LearningFields,
    RecipeFields,
    batches_of,
)
from paracosm.training.learning_rate import LearningRateScaling
from paracosm.training.named import LARGEST
from paracosm.training.run_state import Topology
from paracosm.training.target import Target, parse_target
from paracosm.units import format_duration
from paracosm.validation import validated

MEASURED = "measured"

MOST_UPDATES = 100_000_000
MOST_WORKERS = 100_000  # each is a coroutine


def _compute(value: Any) -> Distribution | str:
    return MEASURED if value == MEASURED else parse_distribution(value)


def _check_count(workers: int) -> None:
    if workers > MOST_WORKERS:
        raise InputError(f"workers: a training has {MOST_WORKERS:,} at most, not {workers:,}")


def _until(value: Any) -> float | Target:
    if isinstance(value, Target):
        return value
    if isinstance(value, str) and any(sign in value for sign in "<=>"):
        return parse_target(value)
    is_word = isinstance(value, str) and value.replace("_", "").strip().isalpha()
    if is_word and value.strip() != "inf":
        raise InputError(f'no duration and no target: write 20s or "loss <= 0.1", not "{value}"')
    seconds = read_duration(value)
    if not seconds > 0:
        raise InputError(f"until: must be above 0 seconds, not {value}")
    return seconds


_UPDATES = 3000
_MOST_SERVERS = 10_000  # each of which takes part in every update
_RESENDS = 10_000  # of one message, all lost
_NUMERICS = {
    *("shards", "optimizer", "lr", "buffers", "evaluate_every", "evaluate_examples"),
    *("lookahead", "keep_going", "loss_limit", "lr_scaling"),
    *RecipeFields.model_fields,
}


WORKERS: Any = Field(4, description="number of workers; 1,2,4..64 is a sweep")
_BATCH_OF: Any = Field(
    (),
    description='workers or clients with a different batch: "worker 3: 64", "clients 4..7: 64"; '
    "computing time scales with it; repeatable",
)


class TrainingFields(LearningFields):
    """How a model learns, and until when: what every form of `train` has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    algorithm: Annotated[InstanceOf[Algorithm], BeforeValidator(parse_algorithm), AS_TEXT] = Field(
        parse_algorithm("asgd"),
        description="an algorithm, with its parameters: asgd, ssgd, ssp(slack=3), ..., or "
        "file.py:Class of your own",
    )
    lr: float = Field(0.2, gt=0, le=LARGEST, description="learning rate")
    lr_scaling: LearningRateScaling | None = Field(
        None,
        description="the learning rate is that of one worker, and grows with workers (linear, "
        "sqrt) or falls (inverse)",
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
        None,
        ge=1,
        description="updates between evaluations (by default 60 a run, 2% of those made where "
        "it ends at a target)",
    )
    keep_going: bool = Field(False, description="continue after the loss has diverged")

    def idle(self) -> dict[str, set[str]]:
        idle = self.idle_of_privacy()
        if is_known_by_client(self.data):
            idle[f"{self.data} comes by client"] = {"shards"}
        return idle

    def check_training(self) -> None:
        """Raise ValueError for settings that contradict each other; a validator calls it."""
        self.algorithm.check_optimizer(self.optimizer)
        has_server = self.resolve_topology() == "server"
        if self.privacy_of("clients") and not (has_server and self.algorithm.pushes_only_changes):
            raise ValueError(
                f"privacy: {self.algorithm} sends servers more than changes by local steps: use "
                "examples(clip=1, noise=1.1), or choose fedavg"
            )
        if self.privacy_of("examples") and self.shards.startswith("bootstrap"):
            raise ValueError(
                f"privacy: with shards {self.shards} several clients may share an example, whose "
                "privacy loss is not counted: use iid or another partition"
            )

    def resolve_topology(self) -> Topology:
        return self.algorithm.topology_for(None)

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


class SimulatedFields(TrainingFields, ClusterFields):
    """Training on a simulated cluster of workers and perhaps servers."""

    topology: Topology | None = Field(
        None, description="communication topology, where the algorithm leaves a choice"
    )
    workers: WorkerCount = WORKERS
    servers: int = Field(1, ge=1, le=_MOST_SERVERS, description="number of parameter servers")

    def idle(self) -> dict[str, set[str]]:
        idle: dict[str, set[str]] = {}
        if self.cluster is not None:
            reason = "the cluster file defines the nodes and links"
            idle[reason] = {"workers", "servers", *LINK_FIELDS}
        topology = self.resolve_topology()
        if topology != "server":
            reason = f'{self.algorithm} runs on topology "{topology}"'
            idle[reason] = {"servers", "update_time"}
            if topology == "local":
                idle[reason] |= {"message_size", *LINK_FIELDS}
        return idle | super().idle()

    def check_changes(self) -> None:
        """Raise an error for changes that such a run does not know, or that would do nothing."""
        others = [change for change in self.what_if if not changes_cluster(change)]
        refuse_changes(others, "train", "how fast workers and servers compute, and values of links")
        for change in self.what_if:
            if change.subject in ("link", "links") and self.resolve_topology() == "local":
                raise change.error(f"has no effect: {self.algorithm} sends nothing")

    def resolve_cluster(self) -> Cluster:
        """Return the simulated cluster, without the changes of `what_if`."""
        if self.cluster is None:
            _check_count(self.workers)
        servers = self.servers if self.resolve_topology() == "server" else 0
        return self.cluster_of(self.workers, servers)

    def resolve_topology(self) -> Topology:
        return self.algorithm.topology_for(self.topology)

    def check_nodes(self, cluster: Cluster) -> None:
        """Raise InputError unless the algorithm runs on that cluster."""
        self.algorithm.check(len(cluster.workers), len(cluster.servers))
        if self.resolve_topology() == "server" and not cluster.servers:
            raise InputError(
                f"{self.algorithm} needs a parameter server, and the cluster has none: add one, "
                "or choose a topology without servers"
            )
        self.changed(cluster)


class TrainConfig(ClientFields, FaultFields, SimulatedFields):
    """A hybrid simulation of whole steps: what is trained, how, and on which simulated cluster.

    Other forms of `train` take the schedule from elsewhere: from a file (`ScheduleTrainConfig`),
    or predicted (`paracosm.planning.train_config`).
    """

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
        "signsgd, one-bit, powersgd(rank=2), fp16, bf16; topk(0.01, feedback=false)",
    )
    compute: Annotated[
        InstanceOf[Distribution] | Literal["measured"], BeforeValidator(_compute), AS_TEXT
    ] = Field(
        parse_distribution("lognormal(20ms, 0.1)"),
        description='duration of one gradient: a distribution, or "measured"',
    )
    batch_of: BatchesOf = _BATCH_OF
    recording: Path | None = Field(
        None, description="recording.json of a measured run, whose durations to replay"
    )
    update_time: Annotated[
        InstanceOf[Distribution], BeforeValidator(parse_distribution), AS_TEXT
    ] = Field(Constant(0.0), description="duration of one update at a parameter server")
    message_size: Size | None = Field(
        None, gt=0, description="bytes of a whole gradient (default: the model's own)"
    )

    # What is really computed, and what is recorded.
    timing_only: bool = Field(False, description="no gradients, only schedule and staleness")
    timeline: bool | None = Field(
        None, description="record every span (default: up to a million; with timing only, 100,000)"
    )

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
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
        if self.timing_only and self.batch == ALL:
            raise ValueError(
                "batch: the size of a whole shard depends on data, which timing_only mode lacks: "
                "give a number"
            )
        if self.timing_only and self.algorithm.counts_examples:
            raise ValueError(
                f"algorithm: the number of steps of {self.algorithm} depends on data, which "
                "timing_only mode lacks: give steps in place of epochs"
            )
        if self.timing_only and self.algorithm.decides_by_losses:
            raise ValueError(
                f"algorithm: what {self.algorithm} does depends on losses, which timing_only mode "
                "does not compute: leave timing_only out"
            )
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
        if self.compress is not None and self.compress.start >= self.last_update:
            raise ValueError(
                f"compress: {self.compress} begins after the run, which has "
                f"{self.last_update:,} updates: leave it out, or let it begin before"
            )
        self._check_faults()
        self.refuse_idle()
        self.check_recipe(self.last_update)
        self.check_training()
        self._check_clients()
        if self.cluster is None:
            self.resolve_cluster()
        self.check_changes()
        for change in self.what_if:
            if change.subject == "servers" and self.update_time == Constant(0.0):
                raise change.error("has no effect: updates take no time; give update_time")
        return self

    def _check_faults(self) -> None:
        if self.fails and self.clients is not None:
            raise ValueError(
                "clients: their nodes do not fail; they come and go by --availability and "
                "--dropout: leave mtbf and fault out"
            )
        algorithm, topology = self.algorithm, self.resolve_topology()
        recoveries = self._recoveries()
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

    def idle(self) -> dict[str, set[str]]:
        topology, recoveries = self.resolve_topology(), self._recoveries()
        idle = self.idle_faults(recoveries, has_servers=topology == "server") | super().idle()
        if topology == "local":
            idle[f"{self.algorithm} sends nothing to compress"] = {"compress"}
        elif self.timing_only and self.costless_messages():
            reason = "messages take no time, and nothing is computed: give --bandwidth"
            idle[reason] = {"compress"}
        of_clients = self.idle_of_clients(self._obstacle_to_clients(), self.algorithm.has_rounds)
        if self.clients is None:
            for fields in of_clients.values():
                fields.discard("availability")  # it is that of the workers
        idle |= of_clients
        if self.batch == ALL:
            idle["every minibatch is a whole shard"] = {"batch_of"}
        if self.timing_only:
            reason = "nothing is computed in timing_only mode"
            idle[reason] = set(_NUMERICS)
            is_whole = self.servers == self.algorithm.fragments == 1
            if self.message_size is not None and is_whole and self.compress is None:
                idle[reason] |= {"model", "data", "data_dir"}
        return idle

    @property
    def worker_availability(self) -> Presence | None:
        return self.availability if self.clients is None else None

    def _recoveries(self) -> tuple[Recovery, ...]:
        return self.algorithm.recoveries_on(self.resolve_topology())

    def _obstacle_to_clients(self) -> str | None:
        if self.resolve_topology() != "server":
            return f"a parameter server picks clients, and {self.algorithm} has none here"
        if not self.algorithm.lets_clients_change:
            return f"{self.algorithm} keeps state at each worker"
        return None

    def _check_clients(self) -> None:
        rounds_end = self.clients is not None and (
            self.round_timeout is not None or self.availability is not None or self.dropout > 0
        )
        if isinstance(self.algorithm, FedAvg) and self.algorithm.at_least > 1 and not rounds_end:
            raise ValueError(
                f"algorithm: at_least={self.algorithm.at_least} has no effect where nobody is lost "
                "or late: give --clients and --round-timeout, --dropout or --availability, or "
                "leave it out"
            )
        if self.clients is None:
            return
        compute = self.compute_distribution()
        if compute is None or compute.in_order:
            raise ValueError(
                "compute: clients share workers, so their computing time must be a distribution, "
                "neither measured nor a recording"
            )
        of_own_size = self.data not in DATA_SETS
        is_even = not of_own_size and has_equal_sizes(self.shards)
        if self.sampling == "by-size" and (self.timing_only or is_even):
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

    @property
    def has_ideal_links(self) -> bool:
        """Whether messages take no time since nothing is said of links."""
        said = self.model_fields_set & {*LINK_FIELDS, "cluster"}
        return not said and not self.what_if and self.costless_messages()

    def check(self, cluster: Cluster | None = None) -> None:
        """Raise InputError if a name is unknown, or the run is impossible on a cluster.

        Args:
            cluster: that of the configuration, if it is at hand.
        """
        cluster = self.resolve_cluster() if cluster is None else cluster
        self._check_length(len(cluster.workers))
        is_needed = "model" not in self.without_effect()
        if is_needed and not (self.timing_only and self.costless_messages()):
            self.check_learning()
        self.check_nodes(cluster)
        if self.batch_of:
            self.batches(self.clients or len(cluster.workers))
        self._check_places(cluster)
        self.failures_on(cluster)

    def _check_length(self, workers: int) -> None:
        """Refuse a run that would not end in days: messages may slow it down tenfold."""
        _check_count(workers)
        compute = self.compute_distribution()
        if self.last_update < inf or compute is None or not compute.mean():
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
        algorithm = self.algorithm
        servers = len(cluster.servers) if self.resolve_topology() == "server" else 0
        failures = self.failures(self._recoveries(), len(cluster.workers), servers)
        if (
            failures is not None
            and failures.in_step
            and failures.recovery != "restart"
            and servers > 1
        ):
            raise InputError(
                f"recovery: {algorithm.name} with {failures.recovery} runs on 1 server, not "
                f"{servers}: several would not agree on who takes part in an update"
            )
        return failures

    def batches(self, count: int) -> list[int]:
        """Return the examples in a minibatch of each worker, or of each client."""
        who: Literal["worker", "client"] = "worker" if self.clients is None else "client"
        return batches_of(self.batch, self.batch_of, count, who)

    def compute_distribution(self) -> Distribution | None:
        """Return the distribution of a gradient's duration; None when it is measured."""
        return self.compute if isinstance(self.compute, Distribution) else None


class ScheduleTrainConfig(TrainingFields):
    """Training over the reads and updates of another run, or of a recorded one."""

    schedule: Path = Field(
        description="schedule.parquet with the reads and updates of another run or a recorded "
        "one, in place of a simulated cluster"
    )
    batch_of: BatchesOf = _BATCH_OF

    @model_validator(mode="after")
    def _consistent(self) -> ScheduleTrainConfig:
        self.refuse_idle()
        if self.updates is not None or self.until_time is not None:
            self.check_recipe(self.last_update)  # else of as many updates as the schedule has
        self.check_training()
        return self

    def idle(self) -> dict[str, set[str]]:
        idle = super().idle()
        if self.batch == ALL:
            idle["every minibatch is a whole shard"] = {"batch_of"}
        return idle

    def check(self) -> None:
        """Raise InputError if a name is unknown, or there is no schedule."""
        self.check_learning()
        if not self.schedule.is_file():
            raise InputError(f"schedule: no such file: {self.schedule}")

    def on_workers(self, workers: int, updates: int | None) -> TrainConfig:
        """Return the run of so many workers and updates as the form that a schedule runs."""
        fields = TrainingFields.model_fields.keys() | {"batch_of"}
        arguments = {name: getattr(self, name) for name in fields & self.model_fields_set}
        return validated(
            TrainConfig, {**arguments, "workers": workers, "updates": updates}, "schedule"
        )
