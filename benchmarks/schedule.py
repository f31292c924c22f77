"""Schedules at scale, whole steps and op by op, and real gradients: seconds and memory.

    python benchmarks/schedule.py

Each case runs in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

import numpy as np
from stored_results import store_result

from paracosm.cluster import Link, star
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER
from paracosm.profiling.jobs.job_profile import dependencies_of, dependents_of
from paracosm.simulation.rules import asgd
from paracosm.simulation.scheduling import stream_schedule
from paracosm.simulation.system import System, Workload, cluster_routes

SERIAL = {"sharing": "serial", "pipelined": False}

CASES = (
    (
        "10,000 workers x 100 steps, timing only, serialised ports",
        "10 s",
        {
            "algorithm": "asgd",
            "workers": 10_000,
            "updates": 1_000_000,
            "latency": "1us",
            **SERIAL,
            "timing_only": True,
            "timeline": False,
        },
    ),
    (
        "10,000 workers x 100 rounds, timing only, synchronous",
        "10 s",
        {
            "algorithm": "ssgd",
            "workers": 10_000,
            "updates": 100,
            "latency": "1us",
            **SERIAL,
            "timing_only": True,
            "timeline": False,
        },
    ),
    (
        "1,024 workers, real gradients of the small MLP",
        "2 GB",
        {
            "algorithm": "staleness-aware",
            "workers": 1024,
            "updates": 5120,
            "latency": "1us",
            "timeline": False,
        },
    ),
)

STORED = {
    CASES[0][0]: "schedule and staleness of 10,000 workers, 100 steps each",
    CASES[2][0]: "1,024 workers with real gradients of the small MLP",
}

PROGRAM = """
import json, resource, sys, time
from paracosm.training import TrainConfig, train

class Count:
    rows = 0
    def metric(self, *row):
        self.rows += 1

config = TrainConfig.model_validate(json.loads(sys.argv[1]))
began = time.perf_counter()
summary = train(config, metrics=Count()).summary
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([seconds, peak, summary["mean_staleness"], summary["virtual_time"]]))
"""


WORKERS, STEPS = 8, 125_000  # op by op, and of each worker
PARAMETERS = (64 * 256, 256, 256 * 256, 256, 256 * 10, 10)  # of an MLP 64-256-256-10
LAYERS = (2, 1, 0)  # in the order of the backward pass


def mlp_steps(rng: np.random.Generator) -> tuple[Workload, list[int]]:
    """Return a hundred steps of an MLP of 28 ops, and which tensor each op reads or updates.

    Its tensors are pulled as its layers need them, each gradient is pushed when it is there, and
    computing takes 0.2 s, give or take 5 % of each op.
    """
    kinds: list[int] = [DOWNLINK] * 6
    before: list[list[int]] = [[] for _ in range(6)]
    tensor = list(range(6))

    def add(kind: int, waits_for: list[int], own: int = -1) -> int:
        kinds.append(kind)
        before.append(waits_for)
        tensor.append(own)
        return len(kinds) - 1

    last: list[int] = []
    for layer in reversed(LAYERS):
        last = [add(WORKER, [2 * layer, 2 * layer + 1, *last])]
        if layer < 2:
            last = [add(WORKER, last)]
    for layer in LAYERS:
        last = [add(WORKER, last)]
        for own in (2 * layer, 2 * layer + 1):
            add(SERVER, [add(UPLINK, last)], own)
        if layer > 0:
            last = [add(WORKER, last)]
    resources = np.array(kinds, np.int8)
    pushes = resources == UPLINK
    size = np.zeros(len(kinds))
    size[:6] = 4 * np.array(PARAMETERS)
    size[pushes] = size[np.array(tensor)[np.flatnonzero(pushes) + 1]]
    first_dependency, dependencies = dependencies_of(before)
    first_dependent, dependents = dependents_of(first_dependency, dependencies)
    seconds = rng.lognormal(np.log(0.02), 0.05, (100, len(kinds)))
    seconds *= np.where(resources == WORKER, 1.0, np.where(resources == SERVER, 0.01, 0.0))
    return Workload(
        resource=resources,
        server=np.zeros(len(kinds), np.int64),
        size=size,
        seconds=seconds,
        waits=np.diff(first_dependency),
        first_dependent=first_dependent,
        dependents=dependents,
        roots=np.tile(np.arange(6), (100, 1)),
        release=np.zeros((100, 6)),
        gap=np.full(100, 1e-3),
    ), tensor


def stream_steps() -> None:
    """Print seconds and peak memory of a streamed schedule, compiled before."""
    rng = np.random.default_rng(0)
    workload, tensor = mlp_steps(rng)
    routes = cluster_routes(star(WORKERS, 1, Link(bandwidth=5e6)))
    system = System(routes, np.ones(WORKERS), np.zeros(WORKERS))
    drawn = rng.integers(workload.steps, size=(WORKERS, STEPS))
    next(stream_schedule(workload, system, asgd(), drawn[:, :1], tensor))
    began, updates, staleness = time.perf_counter(), 0, 0
    for block in stream_schedule(workload, system, asgd(), drawn, tensor):
        updates += len(block.updates)
        staleness += int(block.staleness.sum())
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps([seconds, peak, staleness / updates, block.end / 1e12]))


OP_BY_OP = "8 workers x 125,000 steps of 28 ops, op by op, in blocks"


def main() -> None:
    if sys.argv[1:] == ["stream"]:
        stream_steps()
        return
    cases = [
        (name, aim, [sys.executable, "-c", PROGRAM, json.dumps(arguments)])
        for name, aim, arguments in CASES
    ]
    cases.append((OP_BY_OP, "10 s", [sys.executable, __file__, "stream"]))
    for name, aim, command in cases:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds, peak, staleness, virtual_time = json.loads(done.stdout)
        if name in STORED:
            store_result(STORED[name], f"{seconds:.1f} s, {peak / 1e9:.1f} GB")
        print(
            f"{name}: {seconds:.1f} s, {peak / 1e9:.2f} GB, aim {aim} "
            f"(mean staleness {staleness:.1f}, virtual time {virtual_time:.3f} s)"
        )


if __name__ == "__main__":
    main()
