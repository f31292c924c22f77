"""The arguments of `plan`: the job, the designs to compare, and the target."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    field_validator,
    model_validator,
)

from paracosm.cluster.changes import changes_cluster, refuse_changes
from paracosm.cluster.fields import LINK_FIELDS, ClusterFields
from paracosm.cluster.worker_counts import MOST_NODES, parse_workers
from paracosm.errors import InputError
from paracosm.expression import split_list
from paracosm.faults.node_failures import FailureFields
from paracosm.models.shards import ALL
from paracosm.price import Price, parse_price
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.algorithms.registry import parse_algorithm
from paracosm.training.fields import LearningFields, ProfiledFields
from paracosm.training.learning_rate import Decay, LearningRateScaling
from paracosm.training.named import LARGEST
from paracosm.training.target import Target, parse_target
from paracosm.units import format_number, parse_number

MOST_SEEDS = 1000


def _algorithms(value: Any) -> Any:
    parts = split_list(value) if isinstance(value, str) else value
    if isinstance(parts, Algorithm | type):
        parts = [parts]
    if not isinstance(parts, list | tuple) or not parts:
        raise InputError("write algorithms as asgd, ssgd, ssp(slack=3)")
    return _each_once(tuple(map(parse_algorithm, parts)))


def _rates(value: Any) -> Any:
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, int | float) and not isinstance(parts, bool):
        parts = [parts]
    if not isinstance(parts, list | tuple) or not parts:
        raise InputError("write learning rates as 0.05,0.1,0.2")
    rates = tuple(parse_number(part.strip() if isinstance(part, str) else part) for part in parts)
    for rate in rates:
        if not 0 < rate <= LARGEST:
            raise InputError(f"a learning rate is above 0 and at most {LARGEST:g}, not {rate:g}")
    return _each_once(rates)


def _each_once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    for place, value in enumerate(values):
        if value in values[:place]:
            raise InputError(f"{value} is given twice")
    return values


class PlanConfig(ProfiledFields, LearningFields, FailureFields, ClusterFields):
    """A plan: which designs are compared, for which job on which links, to which target."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    SYNONYMS: ClassVar[dict[str, str]] = {"world_size": "workers"}

    target: Annotated[
        InstanceOf[Target],
        BeforeValidator(lambda v: v if isinstance(v, Target) else parse_target(v)),
        PlainSerializer(str, return_type=str),
    ] = Field(
        description='what is to be reached, and held for three evaluations: "test_loss <= 0.1", '
        '"loss <= 0.1", "accuracy >= 0.95"'
    )

    servers: int | None = Field(
        None, ge=1, le=MOST_NODES, description="parameter servers (those of the profiled job)"
    )

    # The designs.
    workers: Annotated[tuple[int, ...], BeforeValidator(parse_workers)] = Field(
        description="numbers of workers to compare: 1,2,4..64, 1..8"
    )
    algorithm: Annotated[
        tuple[InstanceOf[Algorithm], ...],
        BeforeValidator(_algorithms),
        PlainSerializer(lambda value: [str(item) for item in value], return_type=list[str]),
    ] = Field(
        (parse_algorithm("asgd"),), description='algorithms to compare: "asgd, ssgd, ssp(slack=3)"'
    )
    lr: Annotated[tuple[float, ...], BeforeValidator(_rates)] = Field(
        (0.1,), description="learning rates to compare: 0.05,0.1,0.2"
    )
    lr_scaling: LearningRateScaling | None = Field(
        None,
        description="learning rates are those of one worker, and grow with workers (linear, sqrt) "
        "or fall (inverse) (the same rates for any number of workers)",
    )

    # How they are compared.
    seeds: int = Field(
        5,
        ge=1,
        le=MOST_SEEDS,
        description="runs (seeds) of each design that is not dropped after the first",
    )
    updates: int = Field(
        3000, ge=1, le=10_000_000, description="updates after which a run has missed the target"
    )
    evaluate_every: int | None = Field(
        None,
        ge=1,
        le=10_000_000,
        description="updates between evaluations (by default 2% of those made)",
    )
    price: Annotated[
        InstanceOf[Price] | None,
        BeforeValidator(
            lambda v: v if v is None or isinstance(v, Price) else parse_price(_text(v))
        ),
        PlainSerializer(lambda v: None if v is None else str(v), return_type=str | None),
    ] = Field(None, description='money: "2.5/h a worker" (costs are in worker-hours)')

    @field_validator("batch")
    @classmethod
    def _of_one_size(cls, batch: int) -> int:
        if batch == ALL:
            raise ValueError("a profile predicts minibatches of one size: give a number")
        return batch

    @model_validator(mode="after")
    def _consistent(self) -> PlanConfig:
        self.refuse_idle()
        self.check_recipe(self.updates)
        return self

    def without_effect(self) -> set[str]:
        """Return the fields that have no effect on this plan, whatever their values."""
        idle = super().without_effect()
        return idle if "batch" in self.model_fields_set else {*idle, "batch"}

    def idle(self) -> dict[str, set[str]]:
        idle = self.idle_of_start() | self.idle_of_privacy()
        rules = [algorithm.rule(self.workers[-1]) for algorithm in self.algorithm]
        idle |= self.idle_of_failures([rule.needs_all for rule in rules if rule])
        if self.cluster is not None:
            idle["the cluster file defines the nodes and links"] = {"servers", *LINK_FIELDS}
        return idle

    def check(self) -> None:
        """Raise InputError for errors that can be found without reading the profile."""
        self.check_learning()
        self.refuse_power("plan")
        if self.privacy_of("clients"):
            raise InputError(
                "privacy: a plan updates tensors separately, so it cannot clip a client's whole "
                "change: use examples(clip=1, noise=1.1)"
            )
        others = [change for change in self.what_if if not changes_cluster(change)]
        refuse_changes(others, "plan", "how fast workers and servers compute, and values of links")
        for algorithm in self.algorithm:
            for workers in self.workers:
                algorithm.check(workers, self.servers or 1)
                rule = algorithm.rule(workers)
                if rule is None and self.cluster is not None:
                    raise InputError(
                        f"cluster: {algorithm} decides by value, and runs on all workers of a "
                        "cluster file: describe links by --bandwidth and --latency instead"
                    )
                if rule is not None:
                    self.job_failures(workers, self.servers or 1, rule.needs_all)

    def with_batch(self, profiled: int | None) -> PlanConfig:
        """Return the configuration with the profiled batch, unless it sets one."""
        if profiled is None or "batch" in self.model_fields_set:
            return self
        return self.model_copy(update={"batch": profiled})

    def learning(self) -> dict[str, Any]:
        """Return the training arguments common to all runs."""
        names = (*LearningFields.model_fields, "evaluate_every", "updates")
        common = {name: getattr(self, name) for name in names}
        if self.privacy_of("examples"):
            del common["lookahead"]
        if isinstance(
            self.lr_schedule, Decay
        ):  # shorter runs follow the beginning of the same schedule
            common["lr_schedule"] = self.lr_schedule.until(self.updates)
        return common


def _text(value: Any) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return format_number(value) if is_number else str(value)
