"""A workload like that of a network of layers: pull, forward, backward, push, update."""

from __future__ import annotations

import numpy as np

from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER
from paracosm.profiling.jobs.job_profile import dependencies_of, dependents_of
from paracosm.simulation.system import Workload


def layered_workload(
    layers: int, ops: int, steps: int, seed: int, servers: int = 1, forks: bool = False
) -> Workload:
    """Return random steps of a chain of layers, each with a tensor that is pulled and pushed.

    Args:
        layers: how many.
        ops: computations of a layer in each pass.
        steps: to draw from.
        seed: of sizes, durations and orders.
        servers: that hold the layers in turn.
        forks: whether every computation also lets in one more, which the next one waits for too.
    """
    rng = np.random.default_rng(seed)
    resource: list[int] = []
    server: list[int] = []
    size: list[float] = []
    before: list[list[int]] = []

    def add(kind: int, holder: int, amount: float, waits_for: list[int]) -> int:
        resource.append(kind)
        server.append(holder)
        size.append(amount)
        before.append(waits_for)
        return len(resource) - 1

    def compute(waits_for: list[int]) -> list[int]:
        last = waits_for
        for _ in range(ops):
            first = add(WORKER, 0, 0.0, last)
            last = [first, add(WORKER, 0, 0.0, [first])] if forks else [first]
        return last

    pulls = [add(DOWNLINK, i % servers, float(rng.integers(1, 100)), []) for i in range(layers)]
    last: list[int] = []
    for layer in range(layers):
        last = compute([*last, pulls[layer]])
    for layer in reversed(range(layers)):
        last = compute(last)
        push = add(UPLINK, layer % servers, size[pulls[layer]], last)
        add(SERVER, layer % servers, 0.0, [push])
    kinds = np.array(resource, np.int8)
    total = len(kinds)
    first_dependency, dependencies = dependencies_of(before)
    first_dependent, dependents = dependents_of(first_dependency, dependencies)
    computes = np.isin(kinds, (WORKER, SERVER))
    return Workload(
        resource=kinds,
        server=np.array(server),
        size=np.array(size),
        seconds=np.where(computes, rng.gamma(4.0, 1.0, (steps, total)), 0.0),
        waits=np.diff(first_dependency),
        first_dependent=first_dependent,
        dependents=dependents,
        roots=np.stack([rng.permutation(pulls) for _ in range(steps)]),
        release=np.sort(rng.random((steps, layers)), axis=1),
        gap=rng.random(steps),
    )
