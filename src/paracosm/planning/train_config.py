"""The forms of `train` whose schedule is predicted: over a profile, and over a strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from paracosm.cluster.changes import changes_cluster, refuse_changes
from paracosm.cluster.fields import LINK_FIELDS, ClusterFields, WorkerCount
from paracosm.errors import InputError
from paracosm.faults.node_failures import FailureFields
from paracosm.models.data_sets import load_data
from paracosm.models.shards import ALL
from paracosm.prediction.config import AUTO, PredictConfig
from paracosm.training.config import WORKERS, SimulatedFields, TrainingFields
from paracosm.training.fields import ProfiledFields
from paracosm.validation import given_fields, validated

LEARNING = (*TrainingFields.model_fields, "topology")
"""Training arguments of a run over a schedule."""


def _check_batch(batch: int, source: str) -> None:
    if batch == ALL:
        raise ValueError(f"batch: a {source} predicts minibatches of one size: give a number")


class ProfileTrainConfig(ProfiledFields, FailureFields, SimulatedFields):
    """Training on a simulated cluster, op by op as one worker was profiled."""

    @model_validator(mode="after")
    def _consistent(self) -> ProfileTrainConfig:
        _check_batch(self.batch, "profile")
        self.refuse_idle()
        self.check_recipe(self.last_update)
        self.check_training()
        if self.cluster is None:
            self.resolve_cluster()
        self.check_changes()
        return self

    def idle(self) -> dict[str, set[str]]:
        idle = super().idle() | self.idle_of_start()
        rule = self.algorithm.rule(self.workers)
        if rule is not None:
            return idle | self.idle_of_failures([rule.needs_all])
        values = f"{self.algorithm} depends on values, so its"
        idle[f"{values} nodes do not fail"] = set(FailureFields.model_fields)
        idle[f"{values} workers begin together"] = {"start", "stagger"}
        return idle

    def check(self) -> None:
        """Raise InputError for what can be found without reading the profile."""
        self.refuse_power("train over a profile or a strategy")
        cluster = self.resolve_cluster()
        self.check_learning()
        self.check_nodes(cluster)
        workers, servers = len(cluster.workers), len(cluster.servers)
        rule = self.algorithm.rule(workers)
        if rule is not None:
            self.job_failures(workers, servers, rule.needs_all)


class StrategyTrainConfig(FailureFields, TrainingFields, ClusterFields):
    """Synchronous training by iterations that are predicted for a strategy."""

    strategy: str = Field(
        description="how workers share the work, as in predict: ddp, fsdp, ps, ...; updates are "
        "those of ssgd, at the ends of predicted iterations"
    )
    db: Path = Field(Path("profiles.db"), description="profile database, for a strategy")
    hardware: str | None = Field(
        None, description='of whose timings, for a strategy: part of a name, "H100" (this machine)'
    )
    workers: WorkerCount = WORKERS

    @model_validator(mode="before")
    @classmethod
    def _synchronous(cls, given: Any) -> Any:
        return {"algorithm": "ssgd", **given} if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _consistent(self) -> StrategyTrainConfig:
        if self.algorithm.name != "ssgd":
            raise ValueError(
                f"algorithm: the workers of a strategy are synchronous, not {self.algorithm}: "
                "leave it out"
            )
        _check_batch(self.batch, "strategy")
        self.refuse_idle()
        self.check_recipe(self.last_update)
        self.check_training()
        others = [change for change in self.what_if if not changes_cluster(change)]
        refuse_changes(others, "train", "how fast workers and servers compute, and values of links")
        return self

    def idle(self) -> dict[str, set[str]]:
        idle = super().idle() | self.idle_of_failures([True])
        if self.cluster is not None:
            reason = "the cluster file defines the nodes and links"
            idle[reason] = {"workers", *LINK_FIELDS}
        return idle

    def check(self) -> None:
        """Raise InputError for what can be found without predicting anything."""
        self.refuse_power("train over a profile or a strategy")
        cluster = self.cluster_of(self.workers, 1)
        self.check_learning()
        self.algorithm.check(len(cluster.workers), len(cluster.servers))
        self.changed(cluster)
        self.job_failures(len(cluster.workers), len(cluster.servers), stops_together=True)
        self.prediction().check()

    def prediction(self) -> PredictConfig:
        """Return the prediction of an iteration.

        Raises:
            InputError: a strategy that is none of plain data parallelism, or is to be searched for.
        """
        plain = "give ddp, fsdp, zero1 or ps"
        if self.strategy.strip() == AUTO:
            raise InputError(
                f"strategy: auto is found for transformers, none of which train trains: {plain}"
            )
        shape = load_data(self.data, self.data_dir).input_shape
        names = ("cluster", "db", "hardware", "what_if", *sorted(LINK_FIELDS))
        arguments = given_fields(self, names) | {
            "model": self.model,
            "shape": shape,
            "batch": self.batch,
            "optimizer": str(self.optimizer),
            "strategy": self.strategy,
        }
        if self.cluster is None:
            arguments["workers"] = (self.workers,)
        config = validated(PredictConfig, arguments, "train")
        workers, strategy = config.jobs[-1]
        if strategy.asynchronous or strategy.data != workers:
            raise InputError(f'strategy: "{self.strategy}" is not plain data parallelism: {plain}')
        return config
