"""What `train` can be asked for: the one description behind the command line and the study file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from paracosm.cluster import Cluster, Link, cluster_from_mapping, load_cluster, star, switch
from paracosm.errors import InputError
from paracosm.models import Optimizer, canonical, parse_optimizer
from paracosm.timing import Distribution, parse_distribution
from paracosm.training.algorithms import Algorithm, Topology, parse_algorithm
from paracosm.units import (
    format_bandwidth,
    format_duration,
    parse_bandwidth,
    parse_duration,
    parse_size,
)

__all__ = ["MEASURED", "TrainConfig"]

MEASURED = "measured"

Duration = Annotated[float, BeforeValidator(parse_duration)]
Size = Annotated[float, BeforeValidator(parse_size)]
Bandwidth = Annotated[float, BeforeValidator(parse_bandwidth)]


def _compute(value: Any) -> str:
    """Keep a distribution of compute times as the string that says it best."""
    return MEASURED if value == MEASURED else str(parse_distribution(value))


def _distribution(value: Any) -> str:
    return str(parse_distribution(value))


def _algorithm(value: Any) -> str:
    return str(value if isinstance(value, Algorithm) else parse_algorithm(value))


def _optimizer(value: Any) -> Optimizer:
    optimizer = value if isinstance(value, Optimizer) else parse_optimizer(value)
    if optimizer is None:
        raise InputError("none: training changes parameters, by sgd, adam, ...")
    return optimizer


def _lookahead(value: Any) -> Any:
    return "off" if value is False else value  # which is how YAML reads off


_UPDATES = 3000
_NETWORK = {"latency", "bandwidth", "overhead", "pipelined"}
_NUMERICS = {
    "shards",
    "optimizer",
    "lr",
    "evaluate_every",
    "evaluate_examples",
    "lookahead",
    "keep_going",
    "loss_limit",
}


class TrainConfig(BaseModel):
    """A hybrid simulation: what is trained, by which algorithm, on which imagined cluster."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # What is trained.
    model: Annotated[str, BeforeValidator(canonical)] = Field(
        "mlp",
        description="mlp, mlp(hidden=512, layers=2), paper-cnn, resnet20, resnet18, ..., or "
        "package.module:factory of your own",
    )
    data: str = Field("digits", description="digits, cifar10 or package.module:factory")
    data_dir: Path | None = Field(None, description="folder of the CIFAR-10 archive")
    batch: int = Field(32, ge=1, description="examples in a worker's minibatch")
    shards: str = Field("shared", description="shared, iid or dirichlet(ALPHA)")

    # How.
    algorithm: Annotated[str, BeforeValidator(_algorithm)] = Field(
        "asgd", description="an algorithm, with its parameters: asgd, ssgd, ssp(slack=3), ..."
    )
    topology: Topology | None = Field(
        None, description="who exchanges with whom, where the algorithm leaves a choice"
    )
    optimizer: Annotated[
        Optimizer, BeforeValidator(_optimizer), PlainSerializer(str, return_type=str)
    ] = Field(
        Optimizer("sgd", {}),
        description="sgd, sgd(momentum=0.9), adam, ... where parameters are updated",
    )
    lr: float = Field(0.2, gt=0, allow_inf_nan=False, description="learning rate")
    updates: int | None = Field(
        None, ge=1, description="updates before the run ends (3000, or any number with until)"
    )
    until: Duration | None = Field(None, gt=0, description="virtual time at which the run ends")
    evaluate_every: int | None = Field(
        None, ge=1, description="updates between evaluations (by default 60 a run)"
    )

    evaluate_examples: int = Field(
        2000, ge=1, description="examples of each set, evenly spread, that an evaluation looks at"
    )

    # On which cluster.
    workers: int = Field(4, ge=1, description="number of workers")
    servers: int = Field(1, ge=1, description="number of parameter servers")
    latency: Duration = Field(0.0, description="latency of every link")
    bandwidth: Bandwidth = Field(float("inf"), description="bandwidth of every link")
    overhead: Duration = Field(0.0, description="time that each message costs besides")
    pipelined: bool = Field(
        False, description="latency does not hold the ports, as in a real network"
    )
    cluster: Path | dict[str, Any] | None = Field(
        None, description="a cluster file, instead of the fields above"
    )
    compute: Annotated[str, BeforeValidator(_compute)] = Field(
        "lognormal(20ms, 0.1)",
        validate_default=True,
        description='duration of one gradient: a distribution, or "measured"',
    )
    recording: Path | None = Field(
        None, description="recording.json of a measured run, whose durations to replay"
    )
    update_time: Annotated[str, BeforeValidator(_distribution)] = Field(
        "0s",
        validate_default=True,
        description="duration of one update at a parameter server",
    )
    message_size: Size | None = Field(
        None, gt=0, description="bytes of a whole gradient (default: the model's own)"
    )

    # What is really computed, and what happens when it goes wrong.
    lookahead: Annotated[
        Literal["auto", "off", "vmap", "processes"], BeforeValidator(_lookahead)
    ] = Field("auto", description="how the gradients in flight are computed together")
    timing_only: bool = Field(False, description="no gradients: schedule and staleness alone")
    keep_going: bool = Field(False, description="go on after the loss has exploded")
    loss_limit: float = Field(1e4, gt=0, description="a loss above this counts as exploded")
    timeline: bool | None = Field(
        None, description="record every span (default: up to a million of them)"
    )

    @model_validator(mode="after")
    def _consistent(self) -> TrainConfig:
        if self.recording is not None and self.compute != MEASURED:
            raise ValueError("recording: only a run whose compute is measured can replay one")
        if self.timing_only and self.compute == MEASURED:
            raise ValueError(
                "compute: nothing is computed in timing_only mode, so nothing can be measured"
            )
        if self.compute == MEASURED and self.lookahead not in ("auto", "off"):
            raise ValueError(
                "lookahead: gradients are timed one by one when compute is measured; "
                "leave lookahead out"
            )
        if self.compute == MEASURED and self.parsed_algorithm.interrupts:
            raise ValueError(
                f"compute: {self.algorithm} interrupts workers, so how long they compute must be "
                "modelled, not measured"
            )
        for reason, fields in self._idle().items():
            given = sorted(fields & self.model_fields_set)
            if given:
                raise ValueError(f"{', '.join(given)}: no effect here, leave out: {reason}")
        if self.cluster is None:
            self.resolve_cluster()
        return self

    def without_effect(self) -> set[str]:
        """Return the fields that make no difference, whatever their values, to such a run."""
        return set().union(*self._idle().values())

    def _idle(self) -> dict[str, set[str]]:
        """Return the same by the reason."""
        idle: dict[str, set[str]] = {}
        topology = self.resolve_topology()
        if self.cluster is not None:
            reason = "the cluster file says what there is"
            idle[reason] = {"workers", "servers", *_NETWORK}
        if topology != "server":
            reason = f'{self.algorithm} runs on topology "{topology}"'
            idle[reason] = {"servers", "update_time"}
            if topology == "local":
                idle[reason] |= {"message_size", *_NETWORK}
        if self.timing_only:
            reason = "nothing is computed in timing_only mode"
            idle[reason] = set(_NUMERICS)
            if self.message_size is not None and self.servers == 1:
                idle[reason] |= {"model", "data", "data_dir"}
        return idle

    def costless_messages(self) -> bool:
        """Whether the size of a message makes no difference."""
        return self.cluster is None and self.bandwidth == float("inf")

    def resolve_cluster(self) -> Cluster:
        """Return the cluster that the run is imagined on.

        Raises:
            InputError: if the cluster file cannot be read.
        """
        if isinstance(self.cluster, Path):
            return load_cluster(self.cluster)
        if self.cluster is not None:
            return cluster_from_mapping(self.cluster)
        link = Link(
            bandwidth=self.bandwidth,
            latency=self.latency,
            overhead=self.overhead,
            pipelined=self.pipelined,
        )
        if self.resolve_topology() == "server":
            return star(workers=self.workers, servers=self.servers, link=link)
        return switch(workers=self.workers, servers=0, link=link)

    @property
    def parsed_algorithm(self) -> Algorithm:
        """The algorithm with its parameters."""
        return parse_algorithm(self.algorithm)

    def resolve_topology(self) -> Topology:
        """Return who exchanges with whom."""
        return self.parsed_algorithm.topology_for(self.topology)

    def check(self, cluster: Cluster) -> None:
        """Raise InputError if something is not known, or the algorithm cannot run on that cluster.

        Raises:
            MissingExtraError: if PyTorch is needed and not installed.
        """
        from paracosm.training.numerics import check_names

        check_names(self)
        self.parsed_algorithm.check(len(cluster.workers), len(cluster.servers))
        if self.resolve_topology() == "server" and not cluster.servers:
            raise InputError(
                f"{self.algorithm} needs a parameter server, and the cluster has none: give it "
                "one, or choose a topology without"
            )

    def describe_network(self) -> str:
        """Say in a few words what the network is."""
        if self.cluster is not None:
            return f"cluster file {self.cluster}" if isinstance(self.cluster, Path) else "cluster"
        parts = [
            f"latency {format_duration(self.latency)}",
            f"bandwidth {format_bandwidth(self.bandwidth)}",
        ]
        if self.overhead:
            parts.append(f"overhead {format_duration(self.overhead)} a message")
        return ", ".join(parts) + (", pipelined" if self.pipelined else "")

    def compute_distribution(self) -> Distribution | None:
        """Return the distribution of a gradient's duration; None when it is measured."""
        return None if self.compute == MEASURED else parse_distribution(self.compute)

    def update_distribution(self) -> Distribution:
        """Return the distribution of an update's duration at a server."""
        return parse_distribution(self.update_time)

    @property
    def most_updates(self) -> int:
        """The number of updates after which the run ends, if `until` does not end it before."""
        if self.updates is not None:
            return self.updates
        return _UPDATES if self.until is None else sys.maxsize
