"""Functions of your own in the paper's three places: update, update pattern, update time.

Each stands here once: as plain Python the simulator calls it, compiled by Numba it runs inside the
simulator. Both make the same iteration (Coleman, Jensen, Sosonkina, section 4).
"""

import math
from time import process_time
from typing import Any

import numba
import numpy as np

from paracosm.relaxation import RelaxationResult, relax
from paracosm.relaxation.problems import load_problem

PROBLEM = load_problem("laplace2d:20", seed=1)
PROCESSORS, SIZE = 10, 40  # rows of a block


def update(x: Any, rows: Any, A: Any, b: Any, out: Any) -> None:
    """Weighted Jacobi: x_i + 0.9 (b_i - sum_j a_ij x_j) / a_ii for the processor's rows."""
    for k, i in enumerate(rows):
        residual, diagonal = b[i], 4.0  # of the Laplacian
        for entry in range(A.indptr[i], A.indptr[i + 1]):
            residual -= A.data[entry] * x[A.indices[entry]]
        out[k] = x[i] + 0.9 * residual / diagonal


def pattern(processor: int, number: int, u: float) -> Any:
    """Rows of update `number`: the processor's own block, every third time any block at random."""
    block = int(u * PROCESSORS) if number % 3 == 2 else processor
    return np.arange(block * SIZE, (block + 1) * SIZE)


def time(processor: int, number: int, u: float) -> float:
    """Seconds: exponential with mean 10, processor 3 half as fast; u is uniform in (0, 1)."""
    return -10 * math.log(u) * (2 if processor == 3 else 1)


def run(functions: dict[str, Any], sweeps: int = 50) -> RelaxationResult:
    return relax(PROBLEM, **functions, processors=PROCESSORS, max_sweeps=sweeps, tolerance=None)


plain: dict[str, Any] = {"method": update, "pattern": pattern, "time": time}
compiled = {name: numba.njit(function) for name, function in plain.items()}
results = [run(functions) for functions in (plain, compiled)]
for name, result in zip(("plain Python", "numba.njit"), results, strict=True):
    print(f"{name:12}  residual {result.residual:.15g} after {result.virtual_time:.10g} s")
print("same x to the bit:", np.array_equal(results[0].x, results[1].x))

for name, functions, more in (("plain Python", plain, 50), ("numba.njit", compiled, 10_000)):
    seconds, relaxations = [], []
    for sweeps in (50, 50 + more):  # the difference is without what compiling takes
        seconds.append(-process_time())
        relaxations.append(run(functions, sweeps).relaxations)
        seconds[-1] += process_time()
    cost = (seconds[1] - seconds[0]) / (relaxations[1] - relaxations[0])
    print(f"{name:12}  {cost * 1e9:7,.0f} ns a relaxation")
