"""How often nodes of a job fail, and when; and its checkpoints and restarts.

A node fails at exponential intervals, independently of the others. Whether that stops the whole job
depends on the job: if every update needs a gradient of every worker, any failure does; if the
parameters are on servers that answer each worker, the others continue.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace, merge
from math import inf
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, InstanceOf, PlainSerializer

from paracosm.configuration import Configuration
from paracosm.errors import InputError, unknown
from paracosm.faults.checkpoint import INTERVALS
from paracosm.faults.fault import Node, OnNode
from paracosm.quantities import Duration, read_duration
from paracosm.rng import FailureStream, generator
from paracosm.units import format_duration, format_number

DAY = 86400.0

_ADD_CHECKPOINT = "--checkpoint-cost 10s, how long the job waits until its parameters are saved"

_NODES: Mapping[str, tuple[str, ...]] = {
    "worker": ("worker",),
    "server": ("server",),
    "node": ("worker", "server"),
}
_PART = re.compile(r"(?P<time>.+?)\s+a\s+(?P<node>\w+)")
_USAGE = 'write "30 days a worker", "90 days a server", both with a comma, or "60 days a node"'


@dataclass(frozen=True)
class Mtbf:
    """Mean times between the failures of one node, in seconds; infinite where none fails."""

    worker: float = inf
    server: float = inf

    def __str__(self) -> str:
        """Return the shortest spelling; `parse_mtbf` reads it back as an equal one."""
        if self.worker == self.server:
            return f"{_text(self.worker)} a node"
        seconds = {"worker": self.worker, "server": self.server}
        return ", ".join(f"{_text(time)} a {node}" for node, time in seconds.items() if time != inf)

    def of_job(self, workers: int, servers: int) -> float:
        """Return the mean seconds between failures of any of so many nodes."""
        rate = workers / self.worker + servers / self.server
        return 1 / rate if rate else inf


def parse_mtbf(value: object) -> Mtbf:
    """Read "30 days a worker", "8h a worker, 90 days a server" or "60 days a node"."""
    if isinstance(value, Mtbf):
        return value
    means: dict[str, float] = {}
    for part in str(value).split(","):
        match = _PART.fullmatch(part.strip())
        if not match:
            raise InputError(f'"{part.strip()}" does not say of what: {_usage(part.strip())}')
        if match["node"] not in _NODES:
            raise unknown("node of an mtbf", match["node"], _NODES)
        seconds = read_duration(match["time"])
        if not 0 < seconds < inf:
            raise InputError(f'an mtbf must be above 0 and finite, not "{part.strip()}"')
        for node in _NODES[match["node"]]:
            if node in means:
                raise InputError(f"the mtbf of a {node} is given twice")
            means[node] = seconds
    return Mtbf(**means)


def _usage(time: str) -> str:
    """Return what to write for a time without a node."""
    try:
        read_duration(time)
    except InputError:
        return _USAGE
    return f'write "{time} a worker", or of a server or a node'


def _text(seconds: float) -> str:
    days = seconds / DAY
    if days >= 1 and days * DAY == seconds and days == round(days, 6):
        return f"{format_number(days)} {'day' if days == 1 else 'days'}"
    return format_duration(seconds, exact=True)


@dataclass(frozen=True)
class JobFailures:
    """The effect of failures on one job, and its measures against them; times in seconds."""

    mtbf: float  # between failures that stop the whole job; infinite: nothing stops it
    worker_mtbf: float  # between failures of one worker that stop that worker alone
    restart: float  # from a failure until the job, or the worker, begins a step
    interval: float | None  # of work between two checkpoints; None: there are none
    cost: float  # that a checkpoint takes
    nodes: Mtbf  # between failures of one node

    def __str__(self) -> str:
        shown = [f"{self.nodes}, restarts of {format_duration(self.restart)}"]
        if self.interval is not None:
            every, cost = format_duration(self.interval), format_duration(self.cost)
            shown.append(f"checkpoints of {cost} after {every} of work")
        return ", ".join(shown)


def _interval(value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip()
        if text in INTERVALS:
            return text
        if text[:1].isalpha():
            raise unknown("interval between checkpoints", text, [*INTERVALS, "a duration"])
    seconds = read_duration(value)
    if not 0 < seconds < inf:
        raise InputError(f"an interval between checkpoints is above 0 and finite, not {value}")
    return seconds


class FailureFields(Configuration):
    """The fields of a configuration for failures of nodes, and for checkpoints."""

    mtbf: Annotated[
        InstanceOf[Mtbf] | None,
        BeforeValidator(lambda value: None if value is None else parse_mtbf(value)),
        PlainSerializer(lambda value: None if value is None else str(value)),
    ] = Field(
        None,
        description='mean time between failures: "30 days a worker", "90 days a server", both '
        'with a comma, or "60 days a node"',
    )
    restart_cost: Duration | None = Field(
        None,
        le=1e6,
        description="from a failure until work resumes (default: the time of a checkpoint)",
    )
    checkpoint_cost: Duration | None = Field(
        None, gt=0, le=1e6, description="how long all wait for a checkpoint: 10s"
    )
    checkpoint_every: Annotated[Literal["young", "daly"] | Duration, BeforeValidator(_interval)] = (
        Field(
            "daly",
            description=(
                "work between two checkpoints: a duration, or young or daly for their formulas"
            ),
        )
    )

    def job_failures(self, workers: int, servers: int, stops_together: bool) -> JobFailures | None:
        """Return the effect of failures on a job of so many nodes; None if nothing fails.

        `stops_together` is whether the failure of a worker stops the whole job.

        Raises:
            InputError: nobody said what a restart costs or, where the whole job may stop, a
                checkpoint; none of the job's nodes fails.
        """
        if self.mtbf is None:
            return None
        together = self.mtbf.of_job(workers if stops_together else 0, servers)
        if self.mtbf.of_job(workers, servers) == inf:
            raise InputError(f"mtbf: the job has no servers, which are all that {self.mtbf} is of")
        restart = self.checkpoint_cost if self.restart_cost is None else self.restart_cost
        if restart is None:
            saved = f", and {_ADD_CHECKPOINT}" if together < inf else ""
            raise InputError(
                f"restart cost{' and checkpoint cost' * bool(saved)} not specified: add "
                f"--restart-cost 60s, the time from a failure until work resumes{saved}"
            )
        interval = None if together == inf else self.checkpoint_interval(together)
        return JobFailures(
            mtbf=together,
            worker_mtbf=inf if stops_together else self.mtbf.worker,
            restart=restart,
            interval=interval,
            cost=self.checkpoint_cost or 0.0,
            nodes=self.mtbf,
        )

    def checkpoint_interval(self, mtbf: float) -> float:
        """Return the seconds of work between two checkpoints of a job that may stop.

        `mtbf` is in seconds between its failures; infinite if they come at given times.

        Raises:
            InputError: nobody said what a checkpoint costs or, without an mtbf, when it is due.
        """
        if self.checkpoint_cost is None:
            raise InputError(f"checkpoint cost not specified: add {_ADD_CHECKPOINT}")
        every = self.checkpoint_every
        if not isinstance(every, str):
            return every
        if mtbf == inf:
            raise InputError(
                f"checkpoint interval not specified: {every} suggests one for an mtbf, and there "
                "is none: add --checkpoint-every 60s"
            )
        return INTERVALS[every](self.checkpoint_cost, mtbf)

    def idle_of_failures(self, stops_together: Collection[bool]) -> dict[str, set[str]]:
        """Return fields without effect, by reason.

        `stops_together` is whether one worker's failure stops each of the requested jobs.
        """
        if self.mtbf is None:
            costs = {"restart_cost", "checkpoint_cost", "checkpoint_every"}
            return {"nothing fails: give --mtbf": costs}
        if self.mtbf.server != inf or any(stops_together):
            return {}
        idle = {"checkpoint_every"}
        if self.restart_cost is not None:
            idle.add("checkpoint_cost")
        return {"the job continues without failed workers, from its current state": idle}


def failure_instants(mtbf: Mtbf, workers: int, servers: int, seed: int) -> Iterator[float]:
    """Yield the seconds of failures of any node, ascending; each node has its own stream."""
    return (instant for instant, _ in node_failures(mtbf, workers, servers, seed))


def node_failures(
    mtbf: Mtbf, workers: int, servers: int, seed: int
) -> Iterator[tuple[float, OnNode]]:
    """Yield the same instants, and who fails at each."""
    return merge(
        _failures(mtbf.worker, workers, seed, FailureStream.WORKERS, "worker"),
        _failures(mtbf.server, servers, seed, FailureStream.SERVERS, "server"),
        key=lambda failure: failure[0],
    )


def _failures(
    mtbf: float, nodes: int, seed: int, stream: FailureStream, kind: Node
) -> Iterator[tuple[float, OnNode]]:
    if mtbf == inf or not nodes:
        return
    sources = [generator(seed, stream, node) for node in range(nodes)]
    following = [(source.exponential(mtbf), node) for node, source in enumerate(sources)]
    heapify(following)
    while True:
        instant, node = following[0]
        yield instant, OnNode(kind, node)
        heapreplace(following, (instant + sources[node].exponential(mtbf), node))
