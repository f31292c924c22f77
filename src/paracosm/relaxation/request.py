"""What a simulation is asked to do: everything resolved, nothing left to parse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paracosm.cluster import Link
from paracosm.faults import CheckpointPolicy, Fault
from paracosm.relaxation.detection import Detection
from paracosm.relaxation.methods import Method
from paracosm.relaxation.patterns import Pattern
from paracosm.relaxation.problems import Problem
from paracosm.relaxation.times import Times
from paracosm.timing import Distribution

__all__ = ["FixedPoint", "Network", "Read", "Request", "Stop"]

Array = NDArray[np.float64]
Read = Literal["start", "completion"]


@dataclass(frozen=True)
class Stop:
    """When the iteration ends.

    Attributes:
        tolerance: norm of the residual at which it has converged; None: never.
        norm: 2 or infinity.
        relative: whether `tolerance` is relative to the norm of the first residual.
        error: norm of x - solution at which it has converged; None: not looked at.
        time: virtual time at which it is stopped, seconds.
        relaxations: number of relaxations after which it is stopped.
        growth: factor over the first residual at which it counts as diverged.
    """

    tolerance: float | None = 1e-6
    norm: float = 2
    relative: bool = False
    error: float | None = None
    time: float = inf
    relaxations: float = inf
    growth: float = 1e10


@dataclass(frozen=True)
class Network:
    """Distributed memory: how halo values travel.

    Attributes:
        link: the link from one processor to another, by their numbers.
        jitter: adds to the latency of each message; None: nothing.
        ordered: whether a message never arrives before an older one of its link.
    """

    link: Callable[[int, int], Link]
    jitter: Distribution | None = None
    ordered: bool = True


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """A map x = G(x) without a matrix; `problem.A` is empty.

    Attributes:
        map: (x, rows, out) writes the new values of `rows` to `out`.
    """

    map: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Request:
    """One asynchronous iteration on simulated processors.

    Attributes:
        problem: A, b and where to begin.
        method: how new values are computed; None where `update` or `fixed_point` says it.
        patterns: (from when on, pattern), the first from 0.
        times: how long updates take.
        read: when a processor reads what it computes from.
        barrier: of a synchronous iteration: all wait for the slowest, and the barrier costs so many
            seconds; None: asynchronous.
        ticks: the paper's scale_factor: durations are multiplied with it and rounded; None: time is
            continuous.
        detection: who notices convergence.
        stop: when the iteration ends.
        network: distributed memory; None: shared.
        faults: what goes wrong.
        horizon: run time of the same iteration without faults, for faults at a random time.
        checkpoint: the policy; None: none.
        update: (x, rows, A, b, out), an update function of the user's.
        choose: (processor, update, u) -> rows, an update-pattern function of the user's.
        fixed_point: a map in place of a linear system.
        matrix_free: use the problem's stencil in place of its matrix.
        spans: how many updates the timeline records.
        seed: decides everything that is random.
    """

    problem: Problem
    method: Method | None
    patterns: tuple[tuple[float, Pattern], ...]
    times: Times
    read: Read = "start"
    barrier: float | None = None
    ticks: float | None = None
    detection: Detection = field(default_factory=Detection)
    stop: Stop = field(default_factory=Stop)
    network: Network | None = None
    faults: tuple[Fault, ...] = ()
    horizon: float | None = None
    checkpoint: CheckpointPolicy | None = None
    update: Callable[..., Any] | None = None
    choose: Callable[..., Any] | None = None
    fixed_point: FixedPoint | None = None
    matrix_free: bool = False
    spans: int = 0
    seed: int = 0

    @property
    def pattern(self) -> Pattern:
        """The pattern that the iteration begins with."""
        return self.patterns[0][1]

    @property
    def processors(self) -> int:
        """How many processors there are."""
        return self.pattern.processors
