"""What `predict` can be asked for: the one description behind the command line and study file."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from paracosm.cluster import Cluster, cluster_from_mapping, cluster_from_shorthand, load_cluster
from paracosm.cluster.subset import first_workers
from paracosm.errors import InputError
from paracosm.graphs.capture.options import DTYPES, OPTIMIZERS, parse_shape
from paracosm.prediction.jobs.shown_ranks import check_ranks, parse_ranks
from paracosm.prediction.jobs.stragglers import parse_stragglers, slowed
from paracosm.prediction.jobs.workers_range import parse_workers
from paracosm.prediction.parameter_servers.config import THROUGHPUT, ThroughputFields
from paracosm.units import parse_bandwidth, parse_duration, parse_number

if TYPE_CHECKING:
    from paracosm.graphs.capture import CaptureOptions
    from paracosm.graphs.strategies import Strategy
    from paracosm.prediction.parameter_servers.settings import Settings
    from paracosm.profiling.jobs import JobProfile

__all__ = ["PredictConfig"]

MOST_NODES = 1_000_000
"""Workers of one job, and servers: so many workers take a minute and 2 GB."""


def _with_unit(parse: Callable[[Any], float], what: str, example: str) -> Callable[[Any], float]:
    """Return `parse` without plain numbers in texts: nobody means 25 bytes/s by --bandwidth 25."""

    def read(value: Any) -> float:
        found = parse(value)
        if isinstance(value, str) and found and math.isfinite(found) and _is_plain(value):
            raise InputError(f"{value} of what? write a {what} with its unit, such as {example}")
        return found

    return read


def _is_plain(text: str) -> bool:
    try:
        parse_number(text)
    except InputError:
        return False
    return True


Duration = Annotated[float, BeforeValidator(_with_unit(parse_duration, "duration", "20us"))]
Bandwidth = Annotated[float, BeforeValidator(_with_unit(parse_bandwidth, "bandwidth", "25Gbit/s"))]


def _sizes(value: Any) -> Any:
    """Read "3x32x32"."""
    return parse_shape(value) if isinstance(value, str) else value


def _workers(value: Any) -> Any:
    """Read "1,2,4..1024"."""
    return None if value is None else parse_workers(value)


class PredictConfig(ThroughputFields):
    """A prediction: which computation, on which cluster, from whose timings."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    # Which computation.
    model: str | None = Field(
        None, description="model: resnet50, gpt2, ..., or package.module:factory of your own"
    )
    graph: Path | None = Field(None, description=".graph file, instead of a model")
    op_latencies: Path | None = Field(
        None,
        description="folder of measured op latencies and whole-model latencies (NeuSight's form), "
        "instead of a model: predicts the one from the other and compares",
    )
    batch: int = Field(
        64,
        ge=1,
        description="examples of one forward and backward pass of a replica, or of a profiled step",
    )
    shape: Annotated[tuple[int, ...] | None, BeforeValidator(_sizes)] = Field(
        None, description="of one example: 3x32x32, or a number of tokens (the model's own)"
    )
    classes: int | None = Field(
        None, ge=1, description="classes of a model of images (1000, or 10 of small ones)"
    )
    dtype: str = Field("float32", description=f"of parameters and activations: {', '.join(DTYPES)}")
    optimizer: str = Field("sgd", description=", ".join(OPTIMIZERS))
    foreach: bool = Field(False, description="update all parameters in one op")
    dropout: bool = Field(False, description="train with the model's dropout, in place of none")
    train: bool = Field(True, description="a training step, or the forward pass alone")

    # On which cluster.
    strategy: str | None = Field(
        None,
        description="how workers share the work: ddp, fsdp, zero1, ps, ps-async, or "
        '"dp=64, tp=8, pp=4, schedule=1f1b, microbatches=32" (ddp, where there is a cluster)',
    )
    workers: Annotated[tuple[int, ...] | None, BeforeValidator(_workers)] = Field(
        None,
        description="numbers of workers: 16, or several, as 1,2,4..1024, which goes on by the same "
        "factor where the number before the dots is a multiple of the one before it, else by their "
        "difference; 1..8 goes on by ones",
    )
    cluster: Path | dict[str, Any] | None = Field(
        None, description="a cluster file; workers then says how many of its own, the first ones"
    )
    latency: Duration = Field(0.0, description="latency of every link, without a cluster file")
    bandwidth: Bandwidth | None = Field(
        None,
        gt=0,
        description="bandwidth of every link, without a cluster file: 25Gbit/s, inf (of a profile: "
        "the node's, or what it was profiled on)",
    )
    servers: int | None = Field(
        None,
        ge=1,
        description="parameter servers of strategies ps and ps-async (1), or of a profiled job "
        "(its own)",
    )
    straggler: str | None = Field(
        None, description='workers that are slower: "worker3 x0.5, worker7 x0.8"'
    )
    jitter: float = Field(
        0.0, ge=0, le=1, description="relative standard deviation of the durations of tasks"
    )
    timeline_ranks: str | None = Field(
        None,
        description="whose timeline is written: ranks 0,8..15, or all (one of each kind, at most "
        "16)",
    )

    # From whose timings.
    db: Path = Field(Path("profiles.db"), description="profile database")
    hardware: str | None = Field(
        None, description='of whose timings: part of a name, "H100" (this machine)'
    )
    threads: int = Field(1, ge=1, description="threads of one op, where this machine is meant")
    device: Literal["cpu", "cuda"] = Field("cpu", description="which device of this machine")
    cache: Literal["cold", "warm"] = Field(
        "cold", description="timings with cold data, as in a real iteration, or the op in a row"
    )
    estimator: str | None = Field(
        None, description="how ops are estimated that nobody timed (what cross-validation chooses)"
    )
    new_ops: Literal["profile", "estimate", "refuse"] | None = Field(
        None,
        description="ops of a type that nobody timed: profile them now, estimate them from flops "
        "and bytes, or refuse (profile on this machine, else estimate)",
    )
    exact: bool = Field(False, description="profile every op that was not timed as it is")
    launch: Duration | None = Field(
        None,
        ge=0,
        description="time that the host spends on issuing an op of a GPU (the shortest timing)",
    )

    @property
    def is_on_cluster(self) -> bool:
        """Whether a job on a cluster is meant, not one device."""
        return any(getattr(self, name) is not None for name in ("cluster", "workers", "strategy"))

    @property
    def predictions(self) -> int | None:
        """How many numbers of workers a sweep has; None where there is one only."""
        return len(self.workers) if self.workers is not None and len(self.workers) > 1 else None

    @model_validator(mode="after")
    def _consistent(self) -> PredictConfig:
        given = [name for name in SUBJECTS if getattr(self, name)]
        if len(given) != 1:
            found = f", not {' and '.join(given)}" if given else ""
            raise ValueError(f"what is to be predicted? give one of {', '.join(SUBJECTS)}{found}")
        if self.shape is not None and any(size < 1 for size in self.shape):
            raise ValueError(f"shape: sizes are 1 or more, not {'x'.join(map(str, self.shape))}")
        for reason, fields in self._idle().items():
            idle = sorted(fields & self.model_fields_set)
            if idle:
                raise ValueError(f"{', '.join(idle)}: no effect here, leave out: {reason}")
        if self.exact and self.new_ops in ("estimate", "refuse"):
            raise ValueError(f"exact profiles what is missing, new_ops {self.new_ops} does not")
        return self

    @field_validator("strategy")
    @classmethod
    def _some_strategy(cls, text: str | None) -> str | None:
        if text is not None and not text.strip():
            raise InputError('empty: write ddp, or "dp=8, tp=2", or leave it out')
        return text

    @field_validator("straggler")
    @classmethod
    def _readable_stragglers(cls, text: str | None) -> str | None:
        if text is not None:
            parse_stragglers(text)
        return text

    @field_validator("timeline_ranks")
    @classmethod
    def _readable_ranks(cls, text: str | None) -> str | None:
        if text is not None:
            parse_ranks(text)
        return text

    def without_effect(self) -> set[str]:
        """Return the fields that make no difference, whatever their values, to such a run."""
        idle = set().union(*self._idle().values())
        batch_unknown = self.profile is not None and "batch" not in self.model_fields_set
        return idle | {"batch"} if batch_unknown else idle

    def _idle(self) -> dict[str, set[str]]:
        idle: dict[str, set[str]] = {}
        if self.profile is not None:
            return self._idle_of_profile()
        idle["only a job profile is simulated so: give --profile"] = set(THROUGHPUT) - {"profile"}
        if self.op_latencies is not None:
            idle["the folder says what there is"] = set(CAPTURE | TIMINGS | CLUSTER)
        elif self.graph is not None:
            idle["the graph is captured already"] = set(CAPTURE)
        if self.hardware is not None:
            idle["hardware says whose timings are meant"] = {"threads", "device"}
        elif self.device == "cuda":
            idle["the device decides"] = {"threads"}
        if self.op_latencies is None and not self.is_on_cluster:
            idle["one device is predicted: workers, cluster or strategy makes it a job"] = {
                *CLUSTER
            } - {"workers", "cluster", "strategy"}
        if self.cluster is not None:
            idle["the cluster says what there is"] = {"latency", "bandwidth", "servers"}
        return idle

    def _idle_of_profile(self) -> dict[str, set[str]]:
        idle = self.idle_habits()
        idle["the profile says what a step is"] = set(CAPTURE) - {"batch"}
        idle["the profile has its own timings"] = set(TIMINGS)
        idle["a profile is of parameter servers, and its steps differ as they did"] = {
            *("strategy", "jitter", "timeline_ranks")
        }
        if self.cluster is not None:
            idle["the cluster says what there is"] = {"latency", "bandwidth", "servers"}
        return idle

    def check(self) -> None:
        """Raise InputError for files that are not there, and options that no capture takes."""
        if self.profile is not None:
            _ = self.settings
            return
        if self.op_latencies is not None:
            if not self.op_latencies.is_dir():
                raise InputError(f"{self.op_latencies}: no such folder")
            return
        if self.graph is not None and not self.graph.is_file():
            raise InputError(f"{self.graph}: no such file")
        if self.model is not None:
            self.options(self.device)
        if self.is_on_cluster:
            for workers, strategy in self.jobs:
                self.resolve_cluster(workers, strategy)
            if self.timeline_ranks is not None:
                check_ranks(self.timeline_ranks, workers + strategy.servers)
        if self.db.is_dir():
            raise InputError(f"{self.db}: a folder, not a profile database: --db names its file")
        if not self.db.is_file() and not self.is_timed:
            raise InputError(
                f"{self.db}: no such database: paracosm profile ops writes one, --db names it"
            )

    @cached_property
    def is_timed(self) -> bool:
        """Whether a graph has the durations of all that a device does, and no database is there."""
        if self.graph is None or "db" in self.model_fields_set or self.db.exists():
            return False
        from paracosm.graphs import load_graph

        return load_graph(self.graph).is_timed

    def options(self, device: str, tensor: int = 1) -> CaptureOptions:
        """Return what the capture of the model on `device` is asked for.

        Args:
            device: "cpu" or "cuda".
            tensor: ranks that split each layer between them.

        Raises:
            InputError: an option that it does not take.
        """
        from paracosm.graphs.capture import CaptureOptions

        asked = {name: getattr(self, name) for name in ("model", *sorted(CAPTURE))}
        if tensor > 1:
            asked |= {"parallel": "tensor", "ranks": tensor}
        return CaptureOptions(**asked, device=device)

    @cached_property
    def jobs(self) -> list[tuple[int, Strategy]]:
        """Return the numbers of workers that are asked for, each with its strategy.

        Raises:
            InputError: the strategy cannot be read, or does not fit a number of workers.
        """
        from paracosm.prediction.jobs.strategies_by_workers import strategies_by_workers

        workers, held = self.workers, None
        if self.cluster is not None:
            held = len(self._given_cluster.servers)
            workers = workers or (len(self._given_cluster.workers),)
        return strategies_by_workers(self.strategy or "ddp", workers, self.servers, held)

    def resolve_cluster(self, workers: int, strategy: Strategy) -> Cluster:
        """Return the cluster that a job of so many workers is imagined on.

        Raises:
            InputError: more than `MOST_NODES`; the cluster cannot be read or has fewer workers;
                nobody says how fast its links are; servers that the strategy has no use for, or
                lacks; a straggler that is no worker.
        """
        for what, number in (("workers", workers), ("servers", strategy.servers)):
            if number > MOST_NODES:
                raise InputError(f"{what}: a job has {MOST_NODES:,} at most, not {number:,}")
        if self.cluster is not None:
            cluster = first_workers(self._given_cluster, workers)
        else:
            cluster = self._shorthand(workers, strategy)
        return self._with_stragglers(cluster, self.jobs[-1][0])

    def cluster_of_profile(self, servers: int, bandwidth: float) -> Cluster:
        """Return the cluster that a profiled job is imagined on, with all workers ever asked for.

        Args:
            servers: how many, without a cluster file.
            bandwidth: bytes/s of every link, without a cluster file.

        Raises:
            InputError: as `resolve_cluster`; nobody says how many workers.
        """
        workers = self.profiled_workers[-1]
        if self.cluster is not None:
            cluster = first_workers(self._given_cluster, workers)
        else:
            cluster = cluster_from_shorthand(
                workers, servers, self.latency, bandwidth, pipelined=True
            )
        return self._with_stragglers(cluster, workers)

    @cached_property
    def profiled_workers(self) -> tuple[int, ...]:
        """The numbers of workers that a profile is to predict.

        Raises:
            InputError: nobody says how many.
        """
        if self.workers is not None:
            return self.workers
        if self.cluster is None:
            raise InputError("workers: how many? --workers 1..16")
        return (len(self._given_cluster.workers),)

    def _with_stragglers(self, cluster: Cluster, most: int) -> Cluster:
        """Return a cluster with the slower workers; `most` is the largest number of any."""
        if self.straggler is None:
            return cluster
        factors = parse_stragglers(self.straggler)
        known = {f"worker{number}" for number in range(most)}
        for name in factors:
            if name not in known:
                raise InputError(
                    f'straggler: there is no "{name}": workers are worker0 to worker{most - 1}'
                )
        return slowed(cluster, factors)

    @cached_property
    def job_profile(self) -> JobProfile:
        """The profile, with its batch if that is given.

        Raises:
            InputError: it cannot be read, or has another batch.
        """
        from paracosm.prediction.parameter_servers.asked import asked_profile

        return asked_profile(self)

    @cached_property
    def settings(self) -> Settings:
        """What is imagined of the profiled job.

        Raises:
            InputError: files that cannot be read, a bandwidth that nobody knows, a cluster or an
                option that does not fit the profile.
        """
        from paracosm.prediction.parameter_servers.asked import asked_settings

        return asked_settings(self, self.job_profile)

    @cached_property
    def _given_cluster(self) -> Cluster:
        if isinstance(self.cluster, Path):
            return load_cluster(self.cluster)
        return cluster_from_mapping(self.cluster or {})

    def _shorthand(self, workers: int, strategy: Strategy) -> Cluster:
        if self.bandwidth is None and workers + strategy.servers > 1:
            raise InputError(
                "bandwidth: nobody says how fast the links between nodes are: --bandwidth "
                "25Gbit/s (or inf, for a network that costs nothing), or --cluster"
            )
        return cluster_from_shorthand(
            workers=workers,
            servers=strategy.servers,
            latency=self.latency,
            bandwidth=float("inf") if self.bandwidth is None else self.bandwidth,
            pipelined=True,
        )


SUBJECTS = ("model", "graph", "op_latencies", "profile")
CLUSTER = frozenset(
    {
        *("strategy", "workers", "cluster", "latency", "bandwidth", "servers"),
        *("straggler", "jitter", "timeline_ranks"),
    }
)
CAPTURE = frozenset(
    {"batch", "shape", "classes", "dtype", "optimizer", "foreach", "dropout", "train"}
)
TIMINGS = frozenset(
    {"db", "hardware", "threads", "device", "cache", "estimator", "new_ops", "exact", "launch"}
)
