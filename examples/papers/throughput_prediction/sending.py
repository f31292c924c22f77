"""How streams are sent: figure 12, and figures 17 to 19 (no flow control, enforced orders)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt
from finding import Finding
from measured_jobs import SEED, MeasuredJob

from paracosm.cluster import Link, star
from paracosm.prediction.parameter_servers.throughput import predict_throughput
from paracosm.profiling.jobs import DOWNLINK
from paracosm.simulation.simulate import simulate
from paracosm.simulation.system import System, Workload, cluster_routes

__all__ = [
    "ORDERS",
    "Sending",
    "Turn",
    "judge_sending",
    "judge_turns",
    "sending_of",
    "turns_of_figure_12",
]

SIZES = {"A": 5.0, "B": 2.0, "C": 7.0, "D": 3.0, "E": 4.0}
WINDOW = 3.0
AS_SENT = ("A0", "B0", "C0", "D0", "E0", "A1", "C1", "E1")
"""First turns of at most WIN in the order in which streams came; then what is left."""

ORDERS = ("scheduled", "tic", "tac", "reverse", "random")
WINDOWS = {"1 MiB": 2.0**20, "4 MiB": 2.0**22, "28 MB": 28e6, "off": inf}
WORKERS = 6


@dataclass(frozen=True)
class Turn:
    """A stream's first (0) or second (1) turn, from when to when."""

    stream: str
    turn: int
    begin: float
    end: float


@dataclass(frozen=True)
class Sending:
    """Figures 17 to 19, of one job: steps/s of 1, 2, ... workers.

    Attributes:
        job: which.
        windows: by flow-control window, streams in the order in which they are asked for.
        orders: by order, without flow control.
    """

    job: MeasuredJob
    windows: Mapping[str, Sequence[float]]
    orders: Mapping[str, Sequence[float]]


def turns_of_figure_12() -> list[Turn]:
    """Send streams A to E over a link of one unit of size in a unit of time, with WIN = 3."""
    streams = len(SIZES)
    none: npt.NDArray[np.int64] = np.zeros(0, np.int64)
    step = Workload(
        resource=np.full(streams, DOWNLINK, np.int8),
        server=np.zeros(streams, np.int64),
        size=np.array(list(SIZES.values())),
        seconds=np.zeros((1, streams)),
        waits=np.zeros(streams, np.int64),
        first_dependent=np.zeros(streams + 1, np.int64),
        dependents=none,
        roots=np.arange(streams)[None],
        release=np.zeros((1, streams)),
        gap=np.zeros(1),
    )
    link = Link(bandwidth=1.0)
    system = System(cluster_routes(star(1, 1, link)), np.ones(1), np.zeros(1), WINDOW)
    chunks = simulate(step, system, np.zeros((1, 1), np.int64), keep_chunks=True).chunks
    names = tuple(SIZES)
    return [
        Turn(names[chunk["op"]], int(chunk["turn"]), float(chunk["begin"]), float(chunk["end"]))
        for chunk in chunks
    ]


def sending_of(job: MeasuredJob) -> Sending:
    """Predict a job under flow-control windows, and without under orders."""

    def rates(window: float, order: str) -> list[float]:
        target = job.target(WORKERS, window=window, order=order)
        return [
            predict_throughput(target, workers, SEED).steps_per_second
            for workers in range(1, WORKERS + 1)
        ]

    return Sending(
        job=job,
        windows={name: rates(window, "scheduled") for name, window in WINDOWS.items()},
        orders={order: rates(inf, order) for order in ORDERS},
    )


def judge_turns(turns: Sequence[Turn]) -> list[Finding]:
    """Check the order of figure 12."""
    found = tuple(f"{turn.stream}{turn.turn}" for turn in turns)
    sizes = ", ".join(f"{name} {size:g}" for name, size in SIZES.items())
    return [
        Finding(
            "Figure 12",
            f"streams of {sizes} with WIN = {WINDOW:g}: first turns in order, then the rest",
            " ".join(AS_SENT),
            " ".join(found),
            found == AS_SENT,
        )
    ]


def judge_sending(found: Sending) -> list[Finding]:
    """Check what flow control and orders do."""
    switched, whole = (1 / found.windows[name][0] for name in ("1 MiB", "off"))
    largest = float(found.job.target(1).workload.size.max())
    alone = {order: 1 / rates[0] for order, rates in found.orders.items()}
    gains, by_chance = (
        np.array(found.orders[order]) / np.array(found.orders["scheduled"]) - 1
        for order in ("tic", "random")
    )
    by_order = ", ".join(f"{order} {seconds:.2f} s" for order, seconds in alone.items())
    return [
        Finding(
            "Figure 17",
            f"{found.job.name}: flow control with WIN = 1 MiB makes a step of one worker longer "
            f"than none does (largest tensor: {largest / 1e6:.1f} MB)",
            "switching may delay steps",
            f"{switched:.2f} s with, {whole:.2f} s without",
            switched > 1.001 * whole,
        ),
        Finding(
            "Figure 18",
            f"{found.job.name}, no flow control: a step of one worker by order",
            "enforced orders give shorter steps (TicTac)",
            by_order,
            alone["tic"] < 0.99 * min(alone["random"], alone["reverse"]),
        ),
        Finding(
            "Figures 18, 19",
            f"{found.job.name}, no flow control: what TIC brings, against the order as scheduled",
            "enforced orders improve performance (section 3.3)",
            f"1 worker {gains[0]:+.0%}, {WORKERS} workers {gains[-1]:+.0%}; an order by chance "
            f"that all keep {by_chance[0]:+.0%} and {by_chance[-1]:+.0%}",
            bool(min(gains[0], gains[-1]) > 0),
        ),
    ]
