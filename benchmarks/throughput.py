"""Seconds of the simulation of workers with parameter servers, beside Algorithm 3.1 in Python.

    python benchmarks/throughput.py

Three tables, of steps of 3,000 ops: 196 tensors of 95 MB in all, as Inception-v3 has, each pulled,
used by a layer's forward and backward pass, pushed and applied; durations and orders differ from
step to step.

1. the paper's own case (Li et al. 2020, section 4.5: 1,000 steps with each of 2 to 10 workers took
   the larger part of 117 s), here 1,000 steps of every worker;
2. the same few steps with the literal algorithm: every step must end at the same time. What stands
   beside each other ran by turns in this process, and medians are shown;
3. many workers.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests" / "reference"))

from plain_systems import plain_system
from steps_reference import simulate_literally
from stored_results import store_result

from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER
from paracosm.profiling.jobs.job_profile import dependencies_of, dependents_of
from paracosm.simulation.simulate import simulate
from paracosm.simulation.system import System, Workload

STEPS_BY_WORKERS = (
    "1,000 steps of 3,000 ops by each of 2 to 10 workers with a parameter server; times as long "
    "by the literal algorithm in Python"
)
OPS, TENSORS, BYTES = 3000, 196, 95e6
STEPS = 100  # to draw from
COMPUTING = 0.35  # seconds of a step
GBIT = 1e9 / 8
WINDOW = 28e6  # bytes, section 3.2.2
ROUNDS = 3
AIM_PAPER, AIM_RATIO = 10.0, 100.0


def inception(seed: int = 0) -> Workload:
    """Return steps of a chain of layers with as many ops and bytes."""
    rng = np.random.default_rng(seed)
    each = (OPS - 3 * TENSORS) // (2 * TENSORS)
    kinds: list[int] = [DOWNLINK] * TENSORS
    before: list[list[int]] = [[] for _ in range(TENSORS)]

    def add(kind: int, waits_for: list[int]) -> int:
        kinds.append(kind)
        before.append(waits_for)
        return len(kinds) - 1

    last: list[int] = []
    pushed = {}
    for layer in [*range(TENSORS), *reversed(range(TENSORS))]:
        is_forward = len(kinds) < TENSORS + each * TENSORS
        first = [*last, layer] if is_forward else last
        for _ in range(each):
            last = [add(WORKER, first)]
            first = last
        if not is_forward:
            pushed[layer] = add(UPLINK, last)
            add(SERVER, [pushed[layer]])
    weight = rng.lognormal(0.0, 2.0, TENSORS)
    size = np.zeros(len(kinds))
    size[:TENSORS] = np.rint(BYTES * weight / weight.sum()) + 1
    for layer, op in pushed.items():
        size[op] = size[layer]
    resources = np.array(kinds, np.int8)
    first_dependency, dependencies = dependencies_of(before)
    first_dependent, dependents = dependents_of(first_dependency, dependencies)
    seconds = rng.gamma(4.0, 0.25, (STEPS, len(kinds)))
    seconds *= np.where(resources == WORKER, COMPUTING / (resources == WORKER).sum(), 20e-6)
    seconds[:, np.isin(resources, (DOWNLINK, UPLINK))] = 0.0
    return Workload(
        resource=resources,
        server=np.zeros(len(kinds), np.int64),
        size=size,
        seconds=seconds,
        waits=np.diff(first_dependency),
        first_dependent=first_dependent,
        dependents=dependents,
        roots=np.stack([rng.permutation(TENSORS) for _ in range(STEPS)]),
        release=np.sort(rng.uniform(1e-3, 3e-3, (STEPS, TENSORS)), axis=1),
        gap=np.full(STEPS, 1e-3),
    )


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    result = call()
    return time.perf_counter() - begin, result


def drawn(workers: int, steps: int) -> np.ndarray:
    return np.random.default_rng(1).integers(STEPS, size=(workers, steps))


def cluster(workers: int) -> System:
    return plain_system(workers, 1, 10 * GBIT, window=WINDOW)


def main() -> int:
    """Print the tables; return 1 if the simulations disagree."""
    workload = inception()
    seconds, _ = timed(lambda: simulate(workload, cluster(2), drawn(2, 1)))
    print(f"the first simulation: {seconds:.1f} s (compiled, or read from disk)\n")
    print(f"1. 1,000 steps of {workload.ops:,} ops by each of so many workers, 10 Gbit/s")
    total = 0.0
    for workers in range(2, 11):
        seconds, found = timed(lambda: simulate(workload, cluster(workers), drawn(workers, 1000)))  # noqa: B023
        total += seconds
        ops = workers * 1000 * workload.ops
        rate = workers * 1000 / float(np.nanmax(found.step_end))
        print(
            f"   {workers:2} workers {seconds:6.2f} s {seconds / ops * 1e9:5.0f} ns an op, "
            f"{rate:5.2f} steps/s predicted"
        )
    print(f"   in all {total:6.2f} s (aim: {AIM_PAPER:g})\n")

    print("2. beside the literal algorithm, 4 workers, 5 steps of each")
    system, few = cluster(4), drawn(4, 5)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        one, compiled = timed(lambda: simulate(workload, system, few))
        other, literal = timed(lambda: simulate_literally(workload, system, few))
        ours.append(one)
        theirs.append(other)
    apart = float(np.abs(compiled.step_end / literal.step_end - 1).max())
    ratio = statistics.median(theirs) / statistics.median(ours)
    print(f"   compiled {statistics.median(ours) * 1e3:8.2f} ms")
    print(f"   literal  {statistics.median(theirs) * 1e3:8.0f} ms, {ratio:.0f} times as long")
    store_result(STEPS_BY_WORKERS, f"{total:.0f} s; {ratio:.0f}")
    print(f"   (aim: {AIM_RATIO:g}); ends of steps differ by {apart:.0e} at most\n")

    print("3. many workers, 20 steps of each")
    for workers in (100, 1000):
        seconds, _ = timed(lambda: simulate(workload, cluster(workers), drawn(workers, 20)))  # noqa: B023
        per_op = seconds / (workers * 20 * workload.ops) * 1e9
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"   {workers:5} workers {seconds:6.2f} s {per_op:5.0f} ns an op, {memory:.2f} GiB")
    return 0 if apart < 1e-9 else 1


if __name__ == "__main__":
    sys.exit(main())
