"""What `relax` can be asked for: the one description behind the command line and the study file."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from paracosm.cluster import Cluster, Link, cluster_from_mapping, load_cluster, switch
from paracosm.errors import InputError
from paracosm.faults import CheckpointPolicy, Fault, parse_checkpoint, parse_faults
from paracosm.relaxation.detection import parse_detection
from paracosm.relaxation.methods import Method, parse_method
from paracosm.relaxation.times import read_spelling
from paracosm.timing import parse_distribution
from paracosm.units import parse_bandwidth, parse_duration

__all__ = ["RelaxConfig"]

Duration = Annotated[float, BeforeValidator(parse_duration)]
Bandwidth = Annotated[float, BeforeValidator(parse_bandwidth)]

Time = str | list[str] | dict[str, Any]


def _method(value: Any) -> str:
    return str(parse_method(value))


def _detection(value: Any) -> str:
    return str(parse_detection(value))


def _faults(value: Any) -> list[str] | None:
    return None if value is None else [str(fault) for fault in parse_faults(value)]


def _checkpoint(value: Any) -> Any:
    """Keep a policy as it is written: its interval may depend on the faults."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={part}" for key, part in value.items())
    return value


def _or_none(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() == "none" else value


def _norm(value: Any) -> Any:
    names = {"2": 2, "inf": "inf", "infinity": "inf"}
    return names.get(str(value).lower(), value)


def _time(value: Any) -> Any:
    """Keep durations as the strings that say them best."""
    value = read_spelling(value)
    if isinstance(value, str) and ".json" in value.split("(", 1)[0]:
        return value
    if isinstance(value, list):
        return [str(parse_distribution(part)) for part in value]
    if isinstance(value, dict) and set(value) & {"copy", "compute", "update", "joint"}:
        return {
            key: part if key == "joint" else str(parse_distribution(part))
            for key, part in value.items()
        }
    return str(parse_distribution(value))


_NETWORK = {"latency", "bandwidth", "overhead", "jitter", "order"}


class RelaxConfig(BaseModel):
    """An asynchronous iteration: what is solved, how, and on which imagined processors."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    # What is solved.
    problem: str | None = Field(
        None, description="grid problem: laplace2d:100, laplace3d:20, convection-diffusion:50, ..."
    )
    matrix: Path | None = Field(None, description="Matrix Market file, gzipped or not, instead")
    rhs: str = Field(
        "default", description="right-hand side: uniform, ones-solution, ones, boundary or a file"
    )
    start: str = Field("zeros", description="first iterate: zeros, random or a file")
    matrix_free: bool = Field(False, description="use the grid's stencil in place of its matrix")

    # How.
    method: Annotated[str, BeforeValidator(_method)] = Field(
        "jacobi",
        description="jacobi, gauss-seidel, sor(1.5), block-jacobi, richardson, "
        "second-order-richardson, coordinate, ...",
    )
    read: Literal["start", "completion", "gauss-seidel"] = Field(
        "start",
        description="when a processor reads what it computes from: at the start of its update, at "
        "its completion, or there and row after row (gauss-seidel)",
    )
    processors: int | None = Field(
        None, ge=1, description="number of processors (4, or the cluster's)"
    )
    pattern: str = Field(
        "contiguous",
        description="who updates which rows: contiguous, nonzeros, graph, cyclic, random, "
        "rotating, overlapping(rows=5), or several: contiguous; cyclic after 100s",
    )
    synchronous: bool = Field(False, description="all wait for the slowest at a barrier")
    barrier: Duration = Field(0.0, ge=0, description="what a barrier costs")

    # How long it takes.
    time: Annotated[Time, BeforeValidator(_time)] = Field(
        "normal(10, 1)",
        validate_default=True,
        description='duration of an update: a distribution; one for each processor ("1; 2"); one '
        'for each phase ("copy=2, compute=10, update=1"); or a file of paracosm relax measure',
    )
    speeds: list[float] | str | None = Field(
        None, description="relative speed of each processor: 1,1,0.5,... or 3:0.1 for one of them"
    )
    scale_factor: float | None = Field(
        None, gt=0, description="round durations times this to whole ticks, as in the paper"
    )

    # On which network.
    memory: Literal["shared", "distributed"] = Field(
        "shared",
        description="distributed: halo values travel as messages, as where a network is given",
    )
    cluster: Path | dict[str, Any] | None = Field(
        None, description="cluster file: its workers are the processors"
    )
    latency: Duration = Field(0.0, ge=0, description="latency of every link")
    bandwidth: Bandwidth = Field(inf, gt=0, description="bandwidth of every link")
    overhead: Duration = Field(0.0, ge=0, description="time that each message costs besides")
    jitter: str | None = Field(None, description="distribution that adds to a message's latency")
    order: Literal["ordered", "overtaking"] = Field(
        "ordered", description="whether messages of a link keep their order"
    )

    # When it ends.
    tolerance: Annotated[float | None, BeforeValidator(_or_none)] = Field(
        1e-6, ge=0, allow_inf_nan=False, description="norm of the residual to reach, or none"
    )
    norm: Annotated[Literal[2, "inf"], BeforeValidator(_norm)] = Field(
        2, description="norm of residual and error: 2 or inf"
    )
    relative: bool = Field(False, description="tolerance relative to the first residual")
    error_tolerance: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="norm of the error to reach; the solution is computed directly",
    )
    max_time: Duration | None = Field(None, gt=0, description="virtual time to stop at")
    max_sweeps: float = Field(100_000.0, gt=0, description="sweeps to stop after")
    detect: Annotated[str, BeforeValidator(_detection)] = Field(
        "ideal",
        description="who notices convergence: ideal, processor(time=20ms) or local(every=10)",
    )

    # What goes wrong, and what is done about it.
    fault: Annotated[list[str] | None, BeforeValidator(_faults)] = Field(
        None, description='faults: "uniform(-100, 100) at random", several separated by ;'
    )
    checkpoint: Annotated[str | None, BeforeValidator(_checkpoint)] = Field(
        None, description='policy: "alpha=2, omega=10" and scope, monitor, cost, restore'
    )
    timeline: int = Field(
        20_000, ge=0, description="updates that the timeline records, from the first on"
    )

    @model_validator(mode="before")
    @classmethod
    def _network_means_messages(cls, given: Any) -> Any:
        """Who says something about the network has distributed memory in mind."""
        named = isinstance(given, dict) and any(
            given.get(key) is not None for key in (*_NETWORK, "cluster")
        )
        if named and given.get("memory") is None:
            return {**given, "memory": "distributed"}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> RelaxConfig:
        if (self.problem is None) == (self.matrix is None):
            raise ValueError("what is to be solved? give either problem or matrix")
        for reason, fields in self._idle().items():
            given = sorted(fields & self.model_fields_set)
            if given:
                raise ValueError(f"{', '.join(given)}: no effect here, leave out: {reason}")
        for wrong, message in (
            (
                self.tolerance is None and self.error_tolerance is None and not self._limited(),
                "tolerance: without one, give max_time or max_sweeps",
            ),
        ):
            if wrong:
                raise ValueError(message)
        self.policy()
        return self

    def _limited(self) -> bool:
        return self.max_time is not None or "max_sweeps" in self.model_fields_set

    def without_effect(self) -> set[str]:
        """Return the fields that make no difference, whatever their values, to such a run."""
        return set().union(*self._idle().values())

    def _idle(self) -> dict[str, set[str]]:
        idle: dict[str, set[str]] = {}
        if self.memory == "shared":
            idle["shared memory has no messages (memory: distributed has)"] = set(_NETWORK)
        elif self.cluster is not None:
            idle["the cluster file says what there is"] = _NETWORK - {"jitter", "order"}
        if self.cluster is not None:
            idle.setdefault("the cluster file says how many there are", set()).update(
                {"processors", "speeds"}
            )
        if not self.synchronous:
            idle["an asynchronous iteration has no barrier (synchronous has)"] = {"barrier"}
        if self.memory == "distributed" and self.jitter is None:
            idle["without jitter no message is overtaken"] = {"order"}
        if self.tolerance is None:
            idle["there is no tolerance of the residual"] = {"relative"}
        return idle

    def check(self) -> None:
        """Raise InputError for what shows without the matrix: cluster, speeds, durations, files."""
        from paracosm.relaxation.times import read_times

        cluster = self.resolve_cluster()
        count = self.count(cluster)
        self.speed_of(count)
        read_times(self.time, count)
        if self.matrix is not None and not self.matrix.is_file():
            what = "not a file" if self.matrix.exists() else "no such file"
            raise InputError(f"{self.matrix}: {what}")

    def parsed_method(self) -> Method:
        """Return the method, without what `read` makes of it."""
        return parse_method(self.method)

    def faults(self) -> tuple[Fault, ...]:
        """Return the faults."""
        return parse_faults(self.fault)

    def policy(self) -> CheckpointPolicy | None:
        """Return the checkpoint policy; intervals "young" and "daly" from the faults' rate."""
        from paracosm.faults import mean_time_between_faults

        if self.checkpoint is None:
            return None
        return parse_checkpoint(self.checkpoint, mean_time_between_faults(self.faults()))

    def resolve_cluster(self) -> Cluster | None:
        """Return the cluster; None for processors in shared memory with speeds of their own.

        Raises:
            InputError: if the cluster file cannot be read.
        """
        if isinstance(self.cluster, Path):
            return load_cluster(self.cluster)
        if self.cluster is not None:
            return cluster_from_mapping(self.cluster)
        if self.memory == "shared":
            return None
        link = Link(self.bandwidth, self.latency, self.overhead)
        return switch(workers=self.count(None), servers=0, link=link)

    def count(self, cluster: Cluster | None) -> int:
        """Return the number of processors."""
        if cluster is not None:
            return len(cluster.workers)
        if self.processors is not None:
            return self.processors
        return len(self.time) if isinstance(self.time, list) else _PROCESSORS

    def speed_of(self, count: int) -> list[float]:
        """Return the relative speed of each of `count` processors.

        Raises:
            InputError: if there are not as many, or one is not above 0.
        """
        if self.speeds is None:
            return [1.0] * count
        parts = self.speeds.split(",") if isinstance(self.speeds, str) else self.speeds
        speeds = [1.0] * count
        try:
            if any(":" in str(part) for part in parts):
                named = dict(str(part).split(":") for part in parts)
                if len(named) < len(parts) or any(int(who) < 0 for who in named):
                    raise ValueError
                for who, speed in named.items():
                    speeds[int(who)] = float(speed)
            else:
                speeds = [float(part) for part in parts]
        except (ValueError, IndexError):
            raise InputError(
                f"speeds: cannot read {self.speeds!r} for {count} processors: write one number for "
                "each, or 3:0.1 for processor 3 alone"
            ) from None
        if len(speeds) != count:
            raise InputError(f"speeds: {len(speeds)} numbers for {count} processors")
        if not all(0 < speed < inf for speed in speeds):
            raise InputError("speeds: each has to be finite and above 0")
        return speeds


_PROCESSORS = 4
