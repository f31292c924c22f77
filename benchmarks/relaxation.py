"""Cost of the simulated asynchronous iteration, beside a plain sweep and the paper's Algorithm 2.

    python benchmarks/relaxation.py

Three tables, all ratios of two things that ran by turns in this process:

1. seconds a relaxation over those of a plain compiled sequential Jacobi sweep (CSR, no events, no
   residual); the residual's norm is known at every instant of the simulation;
2. Algorithm 2 as the paper prints it, a loop over ticks with blocks vectorised by NumPy, over the
   simulation of the same updates;
3. whole solves, and the first call of the command line once compile caches are warm.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np

from paracosm.relaxation import relax
from paracosm.relaxation.partition import contiguous
from paracosm.relaxation.problems import Problem, load_problem
from paracosm.rng import stream_keys
from paracosm.timing.compiled import uniform

sys.path.append(str(Path(__file__).parents[1] / "tests" / "relaxation"))

from literal_algorithms import algorithm_2

ROUNDS = 7

# grid, processors, sweeps, and the ratio aimed at (None: 150 ns an event instead)
SWEEPS = (
    (10, 10, 20_000, None),
    (20, 20, 8_000, None),
    (100, 10, 300, 2.2),
    (100, 100, 300, 2.2),
    (100, 200, 300, 2.2),
    (100, 1_000, 150, None),
    (100, 10_000, 40, None),
    (1_000, 200, 4, 2.2),
    (1_000, 1_000, 4, 2.2),
    (1_000, 10_000, 4, 3.5),
)
# grid, processors, mean ticks of an update, updates of each processor, aim
LITERAL = (
    (20, 20, 10, 200, None),
    (20, 20, 1_000, 10, 200.0),
    (20, 100, 1_000, 10, 200.0),
    (100, 100, 10, 40, 20.0),
    (100, 100, 1_000, 5, 450.0),
)


@numba.njit(cache=True)
def plain_sweeps(
    pointer: Any, index: Any, data: Any, diagonal: Any, b: Any, x: Any, new: Any, sweeps: Any
) -> Any:
    """Relax all rows one after the other, `sweeps` times: the floor."""
    for _ in range(sweeps):
        for row in range(b.size):
            total = b[row]
            for entry in range(pointer[row], pointer[row + 1]):
                column = index[entry]
                if column != row:
                    total -= data[entry] * x[column]
            new[row] = total / diagonal[row]
        x, new = new, x
    return x


def seconds(function: Callable[..., Any], *arguments: Any, **options: Any) -> float:
    begin = time.perf_counter()
    function(*arguments, **options)
    return time.perf_counter() - begin


def simulate(problem: Problem, processors: int, sweeps: float, **options: Any) -> Any:
    """Run so many sweeps; the loop stops for nothing else."""
    options = {"time": "uniform(5, 15)", **options}
    return relax(
        problem, processors=processors, tolerance=1e-200, max_sweeps=sweeps, seed=1, **options
    )


def over_a_plain_sweep() -> None:
    print("relaxations, over a plain compiled Jacobi sweep\n")
    print(f"{'grid':>11} {'processors':>10} {'plain':>9} {'simulated':>10} {'ratio':>6} {'aim':>5}")
    for grid, processors, sweeps, aim in SWEEPS:
        problem = load_problem(f"laplace2d:{grid}")
        plain, simulated = [], []
        for _ in range(ROUNDS):
            plain.append(_plain(problem, sweeps) / (sweeps * problem.n))
            # Preparation is not a cost of relaxing: it cancels between a long and a short run.
            short = seconds(simulate, problem, processors, sweeps)
            long = seconds(simulate, problem, processors, 3 * sweeps)
            simulated.append((long - short) / (2 * sweeps * problem.n))
        ratio = statistics.median(s / p for s, p in zip(simulated, plain, strict=True))
        one = statistics.median(simulated)
        event = one * problem.n / processors
        print(
            f"{grid:>5} x {grid:<4}{processors:>10} {statistics.median(plain) * 1e9:>6.2f} ns "
            f"{one * 1e9:>7.2f} ns {ratio:>6.2f} {'' if aim is None else aim:>5}"
            f"  {event * 1e9:,.0f} ns an event" + (" (aim: 150)" if processors == problem.n else "")
        )


def _plain(problem: Problem, sweeps: int) -> float:
    A = problem.A
    arguments = (
        A.indptr.astype(np.int64),
        A.indices.astype(np.int32),
        A.data,
        A.diagonal(),
        problem.b,
    )
    plain_sweeps(*arguments, np.zeros(problem.n), np.zeros(problem.n), 1)
    zeros = np.zeros(problem.n), np.zeros(problem.n)
    return seconds(plain_sweeps, *arguments, *zeros, sweeps)


def over_algorithm_2() -> None:
    print("\nAlgorithm 2, literally, over the simulation of the same updates\n")
    print(f"{'grid':>11} {'processors':>10} {'ticks':>6} {'literal':>9} {'ratio':>7} {'aim':>5}")
    for grid, processors, ticks, updates, aim in LITERAL:
        problem = load_problem(f"laplace2d:{grid}")
        keys = stream_keys(1, 1, processors + 1)
        drawn = np.array(
            [[uniform(keys[who], k) for k in range(3 * updates)] for who in range(processors)]
        )
        durations = np.rint(ticks * (0.5 + drawn)).astype(int)
        pattern = contiguous(problem.n, processors)
        blocks = [pattern.block(k) for k in range(processors)]
        ratios, literal = [], []
        for _ in range(3):
            literal.append(
                seconds(
                    algorithm_2,
                    problem.A,
                    problem.b,
                    problem.x0,
                    blocks,
                    partial(_duration, durations),
                    tolerance=0.0,
                    most=updates * ticks,
                )
            )
            options = {
                "time": f"uniform({ticks / 2}, {3 * ticks / 2})",
                "scale_factor": 1,
                "read": "completion",
            }
            many = max(updates, 20_000_000 // problem.n)
            short = seconds(simulate, problem, processors, many, **options)
            long = seconds(simulate, problem, processors, 3 * many, **options)
            ratios.append(literal[-1] / ((long - short) / (2 * many) * updates))
        print(
            f"{grid:>5} x {grid:<4}{processors:>10} {ticks:>6} "
            f"{statistics.median(literal):>7.3f} s "
            f"{statistics.median(ratios):>7.0f} {'' if aim is None else aim:>5}"
        )


def _duration(durations: Any, who: int, number: int) -> Any:
    return durations[who, number]


def whole_solves() -> None:
    print("\nwhole solves, preparation included\n")
    for grid, processors, tolerance in ((20, 20, 1e-6), (100, 200, 1e-6)):
        problem = load_problem(f"laplace2d:{grid}")
        options = {"processors": processors, "time": "normal(10, 3)", "tolerance": tolerance}
        took = seconds(relax, problem, **options)
        print(f"  {grid} x {grid}, {processors} processors, to {tolerance:g}: {took:.1f} s")
    command = [
        *(sys.executable, "-m", "paracosm.cli.app"),
        *("relax", "--problem", "laplace2d:10", "--processors", "10", "--quiet"),
    ]
    folder = Path(__file__).parent
    took = min(seconds(subprocess.run, command, check=True, cwd=folder) for _ in range(3))
    print(f"  paracosm relax on a 10 x 10 grid, warm caches: {took:.2f} s (aim: 2)")


if __name__ == "__main__":
    simulate(load_problem("laplace2d:10"), 10, 10)  # compiled, or read from disk
    over_a_plain_sweep()
    over_algorithm_2()
    whole_solves()
