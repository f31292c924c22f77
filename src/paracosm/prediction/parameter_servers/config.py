"""The arguments of a prediction from a job profile, and settings of its simulation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isfinite
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, field_validator, model_validator

from paracosm.arrays import Floats, Ints
from paracosm.cluster import Cluster, star
from paracosm.cluster.cluster import first_workers
from paracosm.cluster.link import Star, Switch
from paracosm.configuration import Configuration
from paracosm.errors import InputError, unknown
from paracosm.files import read_bytes
from paracosm.graphs.capture.options import MOST_ELEMENTS
from paracosm.prediction.fields import PredictionFields
from paracosm.prediction.parameter_servers.orders import ORDERS
from paracosm.profiling.jobs import DOWNLINK, JobProfile
from paracosm.profiling.jobs.file import load_job_profile
from paracosm.profiling.jobs.job_profile import without_interrupted
from paracosm.profiling.nodes.calibration import NodeCalibration, load_calibration
from paracosm.quantities import Duration, Size, read_duration
from paracosm.simulation.system import Routes, cluster_routes
from paracosm.units import parse_whole

WINDOW = 28e6
"""Default of the bytes of a stream's first turn: what Li et al. (2020, section 3.2.2)
found on average."""

MOST_UNEVEN = 3.0
"""Standard deviation of ln(share): at 3 every third flow gets 20 times what is typical, or more, or
a 20th or less."""

MOST_WORKERS = 10_000
MOST_STEPS = 20_000_000


def parameters_on(profile: JobProfile, servers: int) -> Ints:
    """Return the parameters of a profile, by their downlinks; InputError if a server has none."""
    parameters = np.flatnonzero((profile.resource == DOWNLINK) & (profile.size > 0))
    if len(parameters) < servers:
        raise InputError(
            f"servers: {servers:,} servers for {len(parameters)} parameters: some would have none"
        )
    return parameters


class ThroughputFields(Configuration):
    """How workers of a profiled job share servers, and how long to simulate them."""

    profile: Path = Field(
        description=(
            "job profile, instead of a model: steps of one worker with parameter servers, "
            "to predict the throughput of several"
        ),
    )
    node: Path | None = Field(
        None,
        description=(
            "calibration of a node (paracosm calibrate): its parsing cost, flow-control "
            "window and bandwidth"
        ),
    )
    order: str | list[str] | None = Field(
        None,
        description="priority of transfers: scheduled (as profiled), tic, tac, reverse, random, "
        "a file with one op a line, in a study also a list (scheduled)",
    )
    flow_control: bool = Field(
        True, description="interleave streams (HTTP/2), or send each as a whole"
    )
    flow_control_window: Size | None = Field(
        None, gt=0, description="bytes of a stream's first turn: 16MiB (the node's, or 28MB)"
    )
    cores: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="cores of each server, shared by the updates of all workers (one for each)",
    )
    background: str | None = Field(
        None, description='other traffic at the servers: "2 flows", or "2 flows, 3s on, 10s off"'
    )
    uneven: float | None = Field(
        None,
        ge=0,
        le=MOST_UNEVEN,
        description=(
            "unfairness of TCP connections in one queue: standard deviation of ln(share), "
            "0 for fair queueing (from the node's calibration, or 0)"
        ),
    )
    synchronous: bool = Field(False, description="workers wait for each other after every step")
    backup: int | None = Field(
        None, ge=1, description="number of workers that a synchronous step does not wait for"
    )
    start: Literal["steady", "together", "staggered"] = Field(
        "steady",
        description=(
            "predict the start as well as the steady state: workers begin together, or staggered"
        ),
    )
    stagger: Duration | None = Field(
        None,
        ge=0,
        description="delay between starts of workers (one step, divided by their number)",
    )
    measure: Duration | None = Field(
        None,
        gt=0,
        description="length of a measurement, 75s: the spread is that between such (50 "
        "steps, but 10 of each worker)",
    )
    steps: int | None = Field(
        None,
        ge=100,
        le=1_000_000,
        description="simulated steps of each worker (a thousand or more; of many workers, 160)",
    )
    repeats: int = Field(100, ge=2, le=10_000, description="simulated measurements after a start")

    @field_validator("background", mode="before")
    @classmethod
    def _readable_background(cls, value: Any) -> Any:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if isinstance(text, str):
            parse_background(text)
        return text

    @field_validator("order")
    @classmethod
    def _some_order(cls, order: str | list[str] | None) -> str | list[str] | None:
        if order is not None and not (order.strip() if isinstance(order, str) else order):
            raise InputError("empty: write scheduled, tic, ..., or name ops")
        return order

    def idle_options(self) -> dict[str, set[str]]:
        idle: dict[str, set[str]] = {}
        if not self.flow_control:
            idle["there is no flow control"] = {"flow_control_window"}
        if not self.synchronous:
            idle["workers of asynchronous SGD do not wait"] = {"backup"}
        if self.start == "steady":
            idle["only a prediction of the start uses it"] = {"stagger", "repeats"}
        elif self.start == "together":
            idle["only start staggered has one"] = {"stagger"}
        return idle

    def resolve_bandwidth(self, asked: float | None, profile: JobProfile) -> float:
        """Return the bytes/s of links without a cluster file: as given, the node's, or as
        profiled.
        """
        node = self._calibration()
        on_loopback = node.over_loopback("bandwidth_out") or node.over_loopback("bandwidth_in")
        if asked is None and node.bandwidth is None and on_loopback:
            raise InputError(
                f"link bandwidth not specified: {self.node} has only that of loopback: add "
                "--bandwidth 10Gbit/s, or measure it between two hosts "
                "with paracosm calibrate --peer"
            )
        bandwidth = asked or node.bandwidth or profile.bandwidth
        if bandwidth is None:
            raise InputError(
                "link bandwidth not specified: add --bandwidth 10Gbit/s, or measure it between two "
                "hosts with paracosm calibrate, and give --node"
            )
        if not isfinite(bandwidth):
            raise InputError("bandwidth: throughput is predicted on links of a finite bandwidth")
        return bandwidth

    def resolve_settings(self, cluster: Cluster, workers: Sequence[int]) -> Settings:
        node = self._calibration()
        if self.backup is not None and self.backup >= workers[0]:
            raise InputError(
                f"backup: must be below the number of workers ({workers[0]}), not {self.backup}"
            )
        if self.steps is not None and workers[-1] * self.steps > MOST_STEPS:
            raise InputError(
                f"steps: {self.steps:,} of {workers[-1]:,} workers exceed {MOST_STEPS:,} in all: "
                "give fewer"
            )
        if cluster.sharing != "fair":
            for name in ("background", "uneven"):
                if getattr(self, name):
                    raise InputError(
                        f"{name}: has an effect only with fair sharing: leave it out, or leave "
                        f"sharing {cluster.sharing} out"
                    )
        window = self.flow_control_window or node.window or WINDOW
        return Settings(
            ports=ports_of(cluster),
            alpha=node.alpha or 0.0,
            beta=node.beta or 0.0,
            window=window if self.flow_control else inf,
            order=_read_order(self.order),
            cores=self.cores or 0,
            background=None if self.background is None else parse_background(self.background),
            share_sigma=self._share_sigma(node) if cluster.sharing == "fair" else 0.0,
            backup=(self.backup or 0) if self.synchronous else None,
            start=self.start,
            stagger=self.stagger,
            measure=self.measure,
            steps=self.steps,
            repeats=self.repeats,
        )

    def _calibration(self) -> NodeCalibration:
        return NodeCalibration() if self.node is None else load_calibration(self.node)

    def _share_sigma(self, node: NodeCalibration) -> float:
        """The configured value, or the one measured over a network, or fair queueing."""
        if self.uneven is not None:
            return self.uneven
        if node.uneven is None or node.over_loopback("uneven"):
            return 0.0
        if node.uneven > MOST_UNEVEN:
            raise InputError(
                f"uneven: {self.node} has {node.uneven:.3g}, at which connections starve; at most "
                f"{MOST_UNEVEN:g} is supported: give --uneven"
            )
        return node.uneven


class ThroughputConfig(ThroughputFields, PredictionFields):
    """A prediction from a job profile: the throughput of several workers."""

    batch: int | None = Field(
        None, ge=1, le=MOST_ELEMENTS, description="examples per profiled step"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.refuse_idle()
        return self

    def idle(self) -> dict[str, set[str]]:
        return self.idle_options() | super().idle()

    def without_effect(self) -> set[str]:
        return super().without_effect() | (set() if self.batch is not None else {"batch"})

    def _check(self) -> None:
        _ = self.settings

    @cached_property
    def profiled_workers(self) -> tuple[int, ...]:
        if self.workers is not None:
            workers = self.workers
        elif self.cluster_in_file is not None:
            workers = (len(self.cluster_in_file.workers),)
        else:
            raise InputError("missing number of workers: add --workers 8, or --workers 1..16")
        if workers[-1] > MOST_WORKERS:
            raise InputError(f"workers: of a profile {MOST_WORKERS:,} at most, not {workers[-1]:,}")
        return workers

    @cached_property
    def job_profile(self) -> JobProfile:
        return load_profile(self.profile, self.batch)

    @cached_property
    def profile_cluster(self) -> Cluster:
        workers = self.profiled_workers[-1]
        if self.cluster_in_file is not None:
            cluster = first_workers(self.cluster_in_file, workers)
        else:
            bandwidth = self.resolve_bandwidth(self.bandwidth, self.job_profile)
            link = replace(self.link, bandwidth=bandwidth)
            servers = self.servers or self.job_profile.servers
            if servers != self.job_profile.servers:
                parameters_on(self.job_profile, servers)
            cluster = star(workers, servers, link)
        return self.changed(cluster)

    @cached_property
    def settings(self) -> Settings:
        _ = self.job_profile  # report its own errors first
        return self.resolve_settings(self.profile_cluster, self.profiled_workers)


def load_profile(path: Path, batch: int | None) -> JobProfile:
    profile = without_interrupted(load_job_profile(path))
    if batch is None:
        return profile
    if profile.batch not in (None, batch):
        raise InputError(f"batch: a step of {path} has {profile.batch} examples, not {batch}")
    return replace(profile, batch=batch)


_MOST_ORDER = 2**24  # bytes


def _is_file(path: Path) -> bool:
    """Whether the file exists; not, if its name is longer than file systems take."""
    try:
        return path.is_file()
    except OSError:
        return False


def _read_order(asked: str | list[str] | None) -> str | Sequence[str]:
    if asked is None:
        return "scheduled"
    if not isinstance(asked, str):
        return asked
    if asked in ORDERS:
        return asked
    path = Path(asked)
    if not _is_file(path):
        raise InputError(f"order: {unknown('order', asked, ORDERS)} (or a file of ops)")
    data = read_bytes(path, _MOST_ORDER + 1)
    if len(data) > _MOST_ORDER:
        raise InputError(f"order: {path}: larger than {_MOST_ORDER >> 20} MiB")
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise InputError(f"order: {path}: cannot be read as text") from None
    names = [line.strip() for line in lines if line.strip()]
    if not names:
        raise InputError(f"order: {path}: empty: write one op a line")
    return names


@dataclass(frozen=True)
class Settings:
    """Settings of the simulation of a job on a cluster, for any number of its workers."""

    ports: Ports  # of all servers and the largest number of workers
    alpha: float = 0.0  # seconds a byte of parsing what was received
    beta: float = 0.0  # seconds of parsing anything received
    window: float = inf  # bytes of a stream's first turn; infinite without flow control
    order: str | Sequence[str] = "scheduled"  # a name, or the names of transfers in order
    cores: int = 0  # of each server, shared by the updates of all workers; 0: one for each worker
    background: Background | None = None  # traffic of others in the ports of servers
    share_sigma: float = 0.0  # standard deviation of ln(share) of flows that compete for a port
    backup: int | None = None  # workers that a synchronous step does not wait for; or asynchronous
    start: Literal["steady", "together", "staggered"] = "steady"
    stagger: float | None = None  # seconds between begins; None: a step spread over all workers
    measure: float | None = None  # seconds; None: as long as 50 steps take, but 10 of each worker
    steps: int | None = None  # simulated steps of each worker; None: as many as take a second or so
    repeats: int = 100  # simulated measurements after a start


@dataclass(frozen=True)
class Ports:
    """How fast nodes send, receive and compute."""

    routes: Routes  # between workers and servers
    speed: Floats  # of each worker's computing, (workers,)
    server_speed: Floats  # of each server's computing, (servers,)

    @property
    def workers(self) -> int:
        return len(self.speed)

    @property
    def server(self) -> Floats:
        """Bytes/s that each server can send, and receive, (servers,)."""
        capacity: Floats = self.routes.capacity[self.routes.ports].min(axis=0)
        return capacity

    @property
    def worker(self) -> Floats:
        """Bytes/s of the slowest link of each worker, (workers,)."""
        slowest: Floats = self.routes.bandwidth.min(axis=(0, 2))
        return slowest

    @property
    def latency(self) -> Floats:
        """Seconds from the last byte of a worker's transfer to its arrival, at most, (workers,)."""
        longest: Floats = self.routes.latency.max(axis=(0, 2))
        return longest

    def first(self, workers: int) -> Ports:
        return self._of(slice(workers))

    def only(self, worker: int) -> Ports:
        return self._of(slice(worker, worker + 1))

    def _of(self, chosen: slice) -> Ports:
        return replace(self, routes=self.routes.of_workers(chosen), speed=self.speed[chosen])


def ports_of(cluster: Cluster) -> Ports:
    """Of a star or a switch with servers on nodes of their own, and links of finite bandwidth."""
    topology = cluster.topology
    if not isinstance(topology, Star | Switch):
        raise InputError(
            f"cluster: throughput is predicted on a switch or a star, not on a {topology.name}"
        )
    if not cluster.servers:
        raise InputError("cluster: it has no server, and a profile needs parameter servers")
    if cluster.placement != "own":
        raise InputError(
            "cluster: servers live on nodes of workers: a profile needs servers on nodes of their "
            "own (placement: own)"
        )
    if not isfinite(topology.link.bandwidth):
        raise InputError("cluster: its default link needs a finite bandwidth")
    for a, b, link in cluster.overrides:
        if not isfinite(link.bandwidth):
            raise InputError(f"cluster: the link between {a} and {b} needs a finite bandwidth")
    return Ports(
        routes=cluster_routes(cluster),
        speed=np.array([cluster.node(worker).speed for worker in cluster.workers]),
        server_speed=np.array([cluster.node(server).speed for server in cluster.servers]),
    )


MOST = 1_000_000  # changes of the background traffic in one simulation
_MOST_FLOWS = 1_000_000_000
EXAMPLE = 'write "2 flows", or "2 flows, 3s on, 10s off"'


@dataclass(frozen=True)
class Background:
    """Flows that share each port of a server, in both directions, like those of a worker each."""

    flows: int  # number at a time
    on: float = float("inf")  # seconds for which they are there
    off: float = 0.0  # seconds for which they are then not; 0: they are always there


def parse_background(text: str) -> Background:
    match = re.fullmatch(
        r"(\d+)(?:\s*flows?)?(?:\s*,\s*([^,]+?)\s+on\s*,\s*([^,]+?)\s+off)?", text.strip()
    )
    if match is None:
        raise InputError(f'cannot read "{text}" as background traffic: {EXAMPLE}')
    flows = parse_whole(match[1], _MOST_FLOWS)
    if flows is None:
        raise InputError(f"background traffic has {_MOST_FLOWS:,} flows at most: {EXAMPLE}")
    if match[2] is None:
        return Background(flows)
    on, off = read_duration(match[2]), read_duration(match[3])
    for what, seconds in (("on", on), ("off", off)):
        if not (seconds > 0 and np.isfinite(seconds)):
            raise InputError(f"the time {what} is above 0 and finite: {EXAMPLE}")
    return Background(flows, on, off)


def background_changes(background: Background, horizon: float) -> tuple[Floats, Ints]:
    """Return when the number of flows changes, in seconds, and what it is from then on."""
    if not background.off:
        return np.zeros(1), np.full(1, background.flows)
    period = background.on + background.off
    count = np.ceil(horizon / period)
    if 2 * count > MOST:
        raise InputError(
            f"background: changes more than {MOST:,} times in the simulated time: take longer times"
        )
    begins = period * np.arange(int(count))
    times = np.stack([begins, begins + background.on], axis=1).ravel()
    return times, np.tile([background.flows, 0], len(begins))
