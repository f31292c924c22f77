"""What the paper leaves to the future, and methods that it does not try: on a 20 x 20 grid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from grid import UPDATE, right_hand_side

from paracosm.cluster import Link, switch
from paracosm.relaxation import RelaxationResult, relax
from paracosm.relaxation.problems import load_problem

SIDE = PROCESSORS = 20
TIME = "normal(10, 1)"
LATENCIES = (0, 1, 5, 10, 50)  # durations of an update


@dataclass(frozen=True)
class Further:
    """Sweeps to 1e-6: by latency in distributed memory; by method.

    `diverged`: second-order Richardson, with the parameters that are best in step, out of step.
    """

    by_latency: dict[int, float]
    jacobi: float
    block_jacobi: float
    momentum_in_step: float
    half_momentum: float
    diverged: bool


def further(seeds: int) -> Further:
    """Run all of it: latencies for so many right-hand sides, methods for the first one."""
    by_latency = {}
    for latency in LATENCIES:
        cluster = switch(PROCESSORS, servers=0, link=Link(float("inf"), UPDATE * latency, 0.0))
        runs = [_solve(seed, cluster=cluster) for seed in range(seeds)]
        by_latency[latency] = float(np.mean([run.sweeps[-1] for run in runs]))
    best = _best_in_step()
    return Further(
        by_latency,
        float(_solve(0).sweeps[-1]),
        float(_solve(0, method="block-jacobi").sweeps[-1]),
        float(_solve(0, method=best, synchronous=True, time=UPDATE).sweeps[-1]),
        float(_solve(0, method="second-order-richardson(0.25, 0.5)").sweeps[-1]),
        _solve(0, method=best).status == "diverged",
    )


def _best_in_step() -> str:
    """Return second-order Richardson with Frankel's parameters for the 5-point Laplacian."""
    least = 8 * np.sin(np.pi / (2 * (SIDE + 1))) ** 2  # its eigenvalues go from here to 8 - least
    low, high = np.sqrt(least), np.sqrt(8 - least)
    return f"second-order-richardson({4 / (low + high) ** 2}, {((high - low) / (high + low)) ** 2})"


def _solve(seed: int, **more: Any) -> RelaxationResult:
    given: dict[str, Any] = {"processors": PROCESSORS, "time": TIME, "seed": seed, **more}
    return relax(_matrix(), right_hand_side(seed, SIDE), **given)


@cache
def _matrix() -> Any:
    return load_problem(f"laplace2d:{SIDE}").A
