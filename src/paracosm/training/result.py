"""The result of a training run: its summary and its data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from paracosm.cluster import Cluster
from paracosm.cluster.description import describe_cluster
from paracosm.engine import Recording
from paracosm.results import ThroughputRow, TrainingSummary
from paracosm.results.metrics import MetricSink
from paracosm.simulation.schedule import Schedule
from paracosm.timeline import Timeline
from paracosm.training.config import TrainConfig
from paracosm.training.learning_rate import describe_learning_rate
from paracosm.training.numerics.store import Numerics
from paracosm.training.record import RunRecord


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run."""

    summary: TrainingSummary  # the key figures by the names that `summary.json` uses
    recording: Recording | None  # the durations that were measured; None when they were modelled
    timeline: Timeline | None  # every span of the run; None when it was not recorded
    metrics: MetricSink  # recorded the metrics
    # The flat vector that the run ended with (of length zero in timing-only mode)
    parameters: Any = field(repr=False)
    # Who read and updated what; None where the engine ran and kept none
    schedule: Schedule | None = field(default=None, repr=False)
    # The flat vector that was evaluated in place of the parameters; None where these were
    average: Any = field(default=None, repr=False)


def summarise(
    config: TrainConfig,
    seed: int,
    cluster: Cluster,
    record: RunRecord,
    numerics: Numerics,
    *,
    status: str,
    end: float,  # virtual time
    servers: int,
    dropped: int,  # gradients that were not applied
    durations: Mapping[str, str],  # source of each kind of time
) -> TrainingSummary:
    """Return the summary of a run that has ended."""
    # A run that a time ends lasts until then, any other until its last update.
    lasted = end if end == config.until_time else record.end
    rate = record.examples / lasted if lasted else None
    row = ThroughputRow(
        workers=len(cluster.workers),
        steps_per_second=record.contributions / lasted if lasted else None,
        examples_per_second=rate,
    )
    passage = record.passage
    return TrainingSummary(
        status=status,
        algorithm=str(config.algorithm),
        workers=len(cluster.workers),
        servers=servers,
        topology=config.resolve_topology(),
        cluster=describe_cluster(cluster),
        model=config.model,
        data=config.data,
        seed=seed,
        updates=record.updates,
        examples=record.examples,
        dropped=dropped,
        final_loss=record.final.get("loss"),
        final_test_loss=record.final.get("test_loss"),
        final_accuracy=record.final.get("accuracy"),
        mean_staleness=(
            record.staleness_total / record.contributions if record.contributions else None
        ),
        virtual_time=end,
        examples_per_second=rate,
        throughput=[row],
        wall_time=record.wall_time,
        lookahead=numerics.describe(),
        epsilon=None if record.accountant is None else record.accountant.epsilon(),
        privacy=None if record.accountant is None else record.accountant.describe(),
        learning_rate=describe_learning_rate(
            numerics.recipe.lr,
            config.lr_schedule,
            config.warmup,
            config.last_update,
            numerics.recipe.lr_factor,
            record.updates,
        ),
        durations={**durations, "gradients": "computed" if numerics.real else "none (timing only)"},
        divergence=None if record.divergence is None else asdict(record.divergence),
        lr=None if not numerics.real else str(config.lr),
        chance=numerics.chance,
        target=None if passage is None else str(passage.target),
        reached_at=None if passage is None else passage.reached_at,
        reached_updates=None if passage is None else passage.reached_updates,
        best=None if passage is None else passage.best,
    )
