"""The arguments of a relaxation, shared by flags, study files and Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, cast, get_args

import numpy as np
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
    field_validator,
    model_validator,
)

from paracosm.cluster import Cluster
from paracosm.cluster.changes import changes_cluster, refuse_changes
from paracosm.cluster.fields import LINK_FIELDS, ClusterFields, WorkerCount
from paracosm.errors import InputError, unknown
from paracosm.expression import parse_expression
from paracosm.faults.checkpoint import CheckpointPolicy, parse_checkpoint
from paracosm.faults.fault import Faults, mean_time_between_faults
from paracosm.quantities import Duration
from paracosm.relaxation.methods import Method, parse_method
from paracosm.relaxation.partition import check_processors
from paracosm.relaxation.patterns import Patterns, parse_patterns
from paracosm.relaxation.problems import (
    Given,
    Problem,
    as_csr,
    refuse_given,
    unknowns_of,
    written_problem,
)
from paracosm.relaxation.times import MeasuredTimes, Times, parse_times
from paracosm.rng import RelaxationStream, generator
from paracosm.timing import Distribution, parse_distribution
from paracosm.timing.distribution import NUMBER
from paracosm.units import parse_number

By = Literal["ideal", "processor", "local", "tree", "snapshot"]


@dataclass(frozen=True)
class Detection:
    """The residual test.

    Attributes:
        by: "ideal": an observer sees the norm of the residual at every instant, at no cost.
            "processor": a separate processor reads x, computes the norm, and knows it a while later
            (Algorithm 3 of Coleman, Jensen, Sosonkina). "local": every processor adds the residual
            of its own rows to a shared sum at every k-th update, and processor 0 looks at the sum
            after each of its updates (Algorithm 4). "tree": the same sum, by messages: with every
            k-th update, processor i sends its own residual and what it last received from 2 i + 1
            and 2 i + 2 to (i - 1) // 2, and processor 0 decides (after Gbikpi-Benissan, Magoules,
            "Distributed asynchronous convergence detection without detection protocol", 2019).
            "snapshot": processor 0 asks for one; the request goes down the same tree, and with the
            first update that it begins after it came, each processor records its block, which goes
            to those who read it. From what it and they have recorded, each computes its residual,
            and the sums go up the tree: the residual of one vector (after Savari, Bertsekas,
            "Finite termination of asynchronous iterative algorithms", 1996; Magoules,
            Gbikpi-Benissan, "Distributed convergence detection based on global residual error under
            asynchronous iterations", 2018).
        time: how long the residual processor takes; None: as long as measured, or an update.
        every: k; processor 0 starts a snapshot at every k-th update, unless one is under way.
    """

    by: By = "ideal"
    time: Distribution | None = None
    every: int = 1

    def __str__(self) -> str:
        if self.by == "processor":
            return "processor" if self.time is None else f"processor(time={self.time})"
        return self.by if self.by == "ideal" else f"{self.by}(every={self.every})"


def parse_detection(value: str | Detection) -> Detection:
    """Return the test of "ideal", "processor(time=20ms)", "local(every=10)" and so on."""
    if isinstance(value, Detection):
        return value
    if not isinstance(value, str):
        raise InputError(f"residual test: write {', '.join(get_args(By))}, not {value!r}")
    text = value.strip()
    if text.startswith("processor(") and text.endswith(")"):
        inside = text[len("processor(") : -1].strip()
        return Detection("processor", parse_distribution(inside.removeprefix("time=").strip()))
    name, positional, named = parse_expression(text, "residual test")
    if name not in get_args(By):
        raise unknown("residual test", name, get_args(By))
    arguments = [*positional, *named.values()]
    if (
        (arguments and name in ("ideal", "processor"))
        or set(named) - {"every"}
        or len(arguments) > 1
    ):
        raise InputError(
            f'cannot read "{text}": write ideal, processor(time=20ms), local(every=10), '
            "tree(every=10) or snapshot(every=10)"
        )
    if not arguments:
        return Detection(cast(By, name))
    every = parse_number(arguments[0])
    if not 1 <= every <= 1e9 or every != int(every):
        raise InputError(f"{name}: every is a whole number from 1 to 1e9, not {arguments[0]}")
    return Detection(cast(By, name), every=int(every))


Function = Callable[..., Any]
"""A function of the user's."""

_TEXT = PlainSerializer(lambda value: None if value is None else str(value))


def _norm(value: Any) -> Any:
    names = {"2": 2, "inf": "inf", "infinity": "inf"}
    return names.get(str(value).lower(), value)


def _speeds(value: Any) -> Any:
    if isinstance(value, str) and "(" in value:
        return parse_distribution(value, NUMBER)
    if not isinstance(value, str):
        return value
    try:
        return tuple(map(float, value.split(",")))
    except ValueError:
        raise InputError(
            f'cannot read "{value}": write one number per processor, as in 1,1,0.5, or what they '
            'are drawn from, "uniform(0.5, 2)"; to change a single one, use --what-if "worker 3: '
            'compute 10x slower"'
        ) from None


def _matrix(value: Any) -> Path | Given | None:
    """Return where a matrix is, or the matrix that Python gave."""
    if value is None or isinstance(value, Path | Given):
        return value
    if isinstance(value, str):
        refuse_given(value, "matrix")
        return Path(value)
    return Given(as_csr(value, "matrix"))


def _vector(value: Any) -> str | Given:
    """Return the word or file that says a vector, or the vector that Python gave."""
    if isinstance(value, str):
        refuse_given(value, "vector")
        return value
    if isinstance(value, Given):
        return value
    return str(value) if isinstance(value, Path) else Given(np.asarray(value))


_NETWORK = LINK_FIELDS | {"latency_jitter", "order"}
_PROCESSORS = 4


class RelaxConfig(ClusterFields):
    """An asynchronous iteration: problem, method, and simulated processors. Fields hold parsed
    objects. In Python `problem` may be a `Problem`, `matrix` a matrix of SciPy or NumPy, `rhs` and
    `start` vectors, `method`, `pattern` and `time` functions (`relax` says which), and `cluster` a
    `Cluster`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    SYNONYMS: ClassVar[dict[str, str]] = {"workers": "processors", "twin": "baseline"}

    # What is solved.
    problem: Annotated[Any, PlainSerializer(written_problem)] = Field(
        None, description="grid problem: laplace2d:100, laplace3d:20, convection-diffusion:50, ..."
    )
    matrix: Annotated[Any, PlainValidator(_matrix), _TEXT] = Field(
        None, description="a matrix in a file instead: .mtx, .mtx.gz, .npz, .npy or .mat"
    )
    rhs: Annotated[Any, PlainValidator(_vector), _TEXT] = Field(
        "default", description="right-hand side: uniform, ones-solution, ones, boundary or a file"
    )
    start: Annotated[Any, PlainValidator(_vector), _TEXT] = Field(
        "zeros", description="first iterate: zeros, random or a file"
    )
    matrix_free: bool = Field(False, description="use the grid's stencil in place of its matrix")

    # How.
    method: Annotated[
        Method | Function,
        PlainValidator(lambda value: value if callable(value) else parse_method(value)),
        _TEXT,
    ] = Field(
        "jacobi",
        validate_default=True,
        description="jacobi, gauss-seidel, sor(1.5), block-jacobi, richardson, "
        "second-order-richardson, coordinate, anderson, ...",
    )
    read: Literal["start", "completion", "gauss-seidel"] = Field(
        "start",
        description=(
            "when a processor reads: at the start of its update, at its completion, or at "
            "completion row by row (gauss-seidel)"
        ),
    )
    processors: WorkerCount | None = Field(
        None, description="number of processors (4, or the cluster's)"
    )
    pattern: Annotated[Patterns, PlainValidator(parse_patterns), _TEXT] = Field(
        "contiguous",
        validate_default=True,
        description="assignment of rows to processors: contiguous, nonzeros, graph, cyclic, "
        "random, "
        "rotating, overlapping(rows=5), or several: contiguous; cyclic after 100s",
    )
    synchronous: bool = Field(False, description="all wait for the slowest at a barrier")
    barrier: Annotated[Duration, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="what a barrier costs"
    )

    # How long it takes.
    time: Annotated[
        Times | MeasuredTimes,
        PlainValidator(parse_times),
        PlainSerializer(lambda times: times.as_written()),
    ] = Field(
        "normal(10, 1)",
        validate_default=True,
        description='duration of an update: a distribution; one for each processor ("1s; 2s"); one '
        'for each phase ("copy=2ms, compute=10ms, update=1ms"); or a file that relax measure wrote',
    )
    speeds: Annotated[
        tuple[float, ...] | InstanceOf[Distribution] | None,
        BeforeValidator(_speeds),
        PlainSerializer(lambda v: v.written(NUMBER) if isinstance(v, Distribution) else v),
    ] = Field(
        None,
        description='relative speed of each processor: 1,1,0.5,..., or drawn: "uniform(0.5, 2)"',
    )
    scale_factor: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="factor of durations before rounding to whole ticks, as in the paper",
    )

    cores: int | None = Field(
        None, ge=1, description="cores that the processors share, in turn; each has its own"
    )
    time_slice: Duration | Literal["measured"] | None = Field(
        None, description='how long a processor keeps a core: 4ms, or "measured" as in the file'
    )

    # On which network, besides the fields of every command.
    memory: Literal["shared", "distributed"] = Field(
        "shared",
        description="distributed: halo values are messages (default with a network)",
    )
    cluster: Annotated[
        Any, PlainSerializer(lambda value: value if isinstance(value, dict | None) else str(value))
    ] = Field(None, description="cluster file, in place of the fields of links: its workers relax")
    latency_jitter: Annotated[
        Distribution | None,
        PlainValidator(lambda value: None if value is None else parse_distribution(value)),
        _TEXT,
    ] = Field(None, description="distribution added to a message's latency")
    order: Literal["ordered", "overtaking"] = Field(
        "ordered", description="whether messages of a link keep their order"
    )

    # When it ends.
    tolerance: Annotated[
        float | None, BeforeValidator(lambda v: None if str(v).lower() == "none" else v)
    ] = Field(1e-6, ge=0, allow_inf_nan=False, description="norm of the residual to reach, or none")
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
    max_sweeps: float = Field(100_000.0, gt=0, le=1e9, description="sweeps to stop after")
    growth_limit: float | None = Field(
        None,
        gt=1,
        allow_inf_nan=False,
        description="growth of the residual, over the first one, at which to stop (1e10, or none "
        "where the iteration is sure to converge)",
    )
    detect: Annotated[Detection, PlainValidator(parse_detection), _TEXT] = Field(
        "ideal",
        validate_default=True,
        description="residual test: ideal, processor(time=20ms), local(every=10), tree(every=10) "
        "or snapshot(every=10)",
    )

    # Faults and recovery.
    fault: Faults = Field(
        (), description='faults: "uniform(-100, 100) at random", several separated by ;'
    )
    checkpoint: Annotated[CheckpointPolicy | None, _TEXT] = Field(
        None, description='policy: "alpha=2, omega=10s" and scope, monitor, cost, restore'
    )
    baseline: bool = Field(
        True, description="run the same iteration synchronously as well, to compare"
    )
    timeline: int = Field(
        20_000, ge=0, le=10**8, description="updates that the timeline records, from the first on"
    )

    @field_validator("problem")
    @classmethod
    def _require_problem(cls, value: Any) -> str | Problem | None:
        if isinstance(value, str):
            refuse_given(value, "problem")
        if value is None or isinstance(value, str | Problem):
            return value
        raise ValueError(f"write the name of a grid problem, such as laplace2d:100, not {value!r}")

    @field_validator("cluster")
    @classmethod
    def _require_cluster(cls, value: Any) -> Path | dict[str, Any] | Cluster | None:
        if isinstance(value, str):
            return Path(value)
        if value is None or isinstance(value, Path | dict | Cluster):
            return value
        raise ValueError(f"write the path of a cluster file, not {value!r}")

    @field_validator("checkpoint", mode="plain")
    @classmethod
    def _policy(cls, value: Any, info: ValidationInfo) -> CheckpointPolicy | None:
        """Read a policy; its intervals "young" and "daly" come from the rate of the faults."""
        between = mean_time_between_faults(info.data.get("fault", ()))
        return None if value is None else parse_checkpoint(value, between)

    @model_validator(mode="before")
    @classmethod
    def _distributed_by_default(cls, given: Any) -> Any:
        """Settings of the network imply distributed memory."""
        named = isinstance(given, dict) and any(
            given.get(key) is not None for key in (*_NETWORK, "cluster")
        )
        if named and given.get("memory") is None:
            return {**given, "memory": "distributed"}
        return given

    @model_validator(mode="after")
    def _consistent(self) -> RelaxConfig:
        if (self.problem is None) == (self.matrix is None):
            what = "nothing to solve" if self.problem is None else "two systems to solve"
            raise ValueError(
                f"{what}: give either problem or matrix: --problem laplace2d:100, or --matrix A.mtx"
            )
        self.refuse_idle()
        if (self.cores is None) != (self.time_slice is None):
            raise ValueError("cores and time_slice go together: --cores 2 --time-slice 4ms")
        limited = self.max_time is not None or "max_sweeps" in self.model_fields_set
        if self.tolerance is None and self.error_tolerance is None and not limited:
            raise ValueError("tolerance: without one, give max_time or max_sweeps")
        return self

    def idle(self) -> dict[str, set[str]]:
        idle: dict[str, set[str]] = {}
        if self.memory == "shared":
            idle["shared memory has no messages (memory: distributed has)"] = set(_NETWORK)
        elif self.cluster is not None:
            idle["the cluster file defines the nodes and links"] = set(LINK_FIELDS)
        if self.cluster is not None:
            idle["the cluster defines their speeds"] = {"speeds"}
        if self.synchronous:
            idle["a synchronous iteration is its own baseline"] = {"baseline"}
        else:
            idle["an asynchronous iteration has no barrier (synchronous has)"] = {"barrier"}
        if self.memory == "distributed" and self.latency_jitter is None:
            idle["without latency_jitter no message is overtaken"] = {"order"}
        if self.tolerance is None:
            idle["there is no tolerance of the residual"] = {"relative"}
        if isinstance(self.problem, Problem):
            idle["the problem has its own"] = {"rhs", "start"}
            if self.problem.map is not None:
                idle["a map defines its own update"] = {"method", "matrix_free"}
        return idle

    def check(self) -> None:
        """Raise InputError for errors that do not need the matrix."""
        if isinstance(self.problem, str):  # before so many nodes are made
            check_processors(unknowns_of(self.problem), self.count)
        self.times_of(self.target_cluster)
        if isinstance(self.matrix, Path) and not self.matrix.is_file():
            what = "not a file" if self.matrix.exists() else "no such file"
            raise InputError(f"{self.matrix}: {what}")

    @cached_property
    def cluster_in_file(self) -> Cluster | None:
        """The cluster of `cluster`, without changes; None where flags describe it."""
        return self.cluster if isinstance(self.cluster, Cluster) else super().cluster_in_file

    @property
    def count(self) -> int:
        """The number of processors."""
        if self.cluster_in_file is not None:
            workers = len(self.cluster_in_file.workers)
            if self.processors not in (None, workers):
                raise InputError(
                    f"cluster: it has {workers} workers for {self.processors} processors"
                )
            return workers
        if self.processors is not None:
            return self.processors
        return self.pattern.processors or self.time.processors or _PROCESSORS

    @cached_property
    def target_cluster(self) -> Cluster:
        """The processors and the links between them, with the changes of `what_if`."""
        shared = self.memory == "shared"
        refuse_changes(
            (
                change
                for change in self.what_if
                if not changes_cluster(change)
                or change.subject == "servers"
                or (shared and change.subject != "workers")
            ),
            "a relaxation in shared memory" if shared else "a relaxation",
            "how fast workers compute" + ("" if shared else ", and links"),
        )
        cluster = self.cluster_of(self.count, 0)
        if cluster.servers:
            raise InputError("cluster: servers: a relaxation has no servers: remove the key")
        if isinstance(self.speeds, tuple):
            cluster = _at_speeds(cluster, self.speeds)
        return self.changed(cluster)

    def with_drawn_speeds(self, seed: int) -> RelaxConfig:
        """Return the configuration with the speed of each processor, drawn where one is random."""
        if not isinstance(self.speeds, Distribution):
            return self
        drawn = self.speeds.sample(generator(seed, RelaxationStream.SPEEDS), self.count)
        return self.model_copy(update={"speeds": tuple(drawn.tolist())})

    def times_of(self, cluster: Cluster) -> Times:
        """Return how long updates take on the workers of a cluster."""
        speeds = [cluster.node(name).speed for name in cluster.workers]
        return self.time.on(speeds, on_core=self.cores is not None)


def _at_speeds(cluster: Cluster, speeds: tuple[float, ...]) -> Cluster:
    if len(speeds) != len(cluster.nodes):
        raise InputError(
            f"speeds: {len(speeds)} for {len(cluster.nodes)} processors: give one for each, or "
            f"--processors {len(speeds)}"
        )
    if not all(0 < speed < inf for speed in speeds):
        raise InputError("speeds: must be finite and above 0")
    nodes = zip(cluster.nodes, speeds, strict=True)
    return replace(cluster, nodes=tuple(replace(node, speed=speed) for node, speed in nodes))
