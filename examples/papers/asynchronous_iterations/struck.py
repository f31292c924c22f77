"""Figure 11: a fault, with and without checkpoints; and how often to take them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from grid import READS, solve, whole_units
from numpy.typing import NDArray

from paracosm.faults import young_interval
from paracosm.relaxation import RelaxationResult

Array = NDArray[np.float64]
Case = tuple[str, str]  # read, policy

TIME = whole_units(4)  # the paper does not say how long its updates take here
POLICIES = {
    "none": None,
    "alpha = 1": "alpha=1, omega=10s",
    "alpha = 2": "alpha=2, omega=10s",
    "alpha = 10": "alpha=10, omega=10s",
}
PATIENCE = 20  # times the fault-free run time
ALPHAS = (1.05, 1.11)

# Cost of a checkpoint and mean time between faults, in units of time: Young's interval is 20, 45,
# 71 and 200. Intervals are tried at these multiples of it.
COSTS = ((1, 200), (1, 1000), (5, 500), (20, 1000))
MULTIPLES = tuple(2 ** (power / 2) for power in range(-4, 5))


@dataclass(frozen=True)
class Struck:
    """Figure 11: uniform(-100, 100) is added to all of x once, at a time before convergence.

    By read and policy: `ratios` to the fault-free run time of each run, at most `PATIENCE`;
    `converged`: how many did; `runs`: one of them, for the panels; `free`: that without a fault.
    """

    ratios: dict[Case, Array]
    converged: dict[Case, int]
    runs: dict[Case, RelaxationResult]
    free: dict[str, RelaxationResult]


@dataclass(frozen=True)
class Intervals:
    """Mean run times by the interval between checkpoints, faults being a Poisson process.

    By read: `times`, a row for each of `COSTS`, a column for each of `MULTIPLES`.
    """

    young: Array
    times: dict[str, Array]

    def best(self, read: str) -> Array:
        """Return the multiple of Young's interval with the least run time, for each of `COSTS`."""
        return np.array(MULTIPLES)[self.times[read].argmin(axis=1)]

    def excess(self, read: str) -> Array:
        """Return what Young's interval costs over the best one, as a share, for each of `COSTS`."""
        at_young = self.times[read][:, MULTIPLES.index(1.0)]
        return at_young / self.times[read].min(axis=1) - 1


def struck(seeds: int, stagnating: int) -> Struck:
    """Run figure 11 for so many right-hand sides, alpha = 1 for `stagnating` of them.

    The faults' times are spread evenly over the fault-free run time; a run with alpha = 1 takes as
    long as it is allowed to.
    """
    ratios, converged, shown, free = {}, {}, {}, {}
    for read in READS:
        plain = [solve(seed, TIME, read=read) for seed in range(seeds)]
        middle = seeds // 2
        free[read] = plain[middle]
        for policy, checkpoint in POLICIES.items():
            # Those in the middle: their faults strike halfway.
            few = stagnating if policy == "alpha = 1" else seeds
            chosen = range(middle - few // 2, middle - few // 2 + few)
            runs = {}
            for seed in chosen:
                length = plain[seed].virtual_time
                instant = (seed + 0.5) / seeds * length
                runs[seed] = solve(
                    seed,
                    TIME,
                    read=read,
                    fault=f"uniform(-100, 100) at {instant!r}s",
                    checkpoint=checkpoint,
                    max_time=PATIENCE * length,
                )
            case = read, policy
            ratios[case] = np.array(
                [r.virtual_time / plain[s].virtual_time for s, r in runs.items()]
            )
            converged[case] = sum(run.status == "converged" for run in runs.values())
            shown[case] = runs[middle]
    return Struck(ratios, converged, shown, free)


def false_rollbacks(seeds: int) -> dict[tuple[str, float], int]:
    """Return how many of so many runs without a fault were rolled back, by read and alpha."""
    return {
        (read, alpha): sum(
            solve(seed, TIME, read=read, checkpoint=f"alpha={alpha}, omega=10s").rollbacks > 0
            for seed in range(seeds)
        )
        for read in READS
        for alpha in ALPHAS
    }


def intervals(seeds: int) -> Intervals:
    """Try intervals between checkpoints around Young's, under faults at random times."""
    young = np.array([young_interval(cost, mtbf) for cost, mtbf in COSTS])
    times = {
        read: np.array(
            [
                [_mean_time(read, cost, mtbf, multiple * interval, seeds) for multiple in MULTIPLES]
                for (cost, mtbf), interval in zip(COSTS, young.tolist(), strict=True)
            ]
        )
        for read in READS
    }
    return Intervals(young, times)


def _mean_time(read: str, cost: float, mtbf: float, interval: float, seeds: int) -> float:
    runs = [
        solve(
            seed,
            TIME,
            read=read,
            fault=f"uniform(-100, 100) every {mtbf}s",
            checkpoint=f"alpha=2, omega={interval!r}, cost={cost}",
            max_time=1e5,
        )
        for seed in range(seeds)
    ]
    return float(np.mean([run.virtual_time for run in runs]))
