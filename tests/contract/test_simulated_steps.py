"""The compiled simulation of parameter servers on every cluster of the contract, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from one_step import ASYNCHRONOUS_STEP, CLUSTERS

from paracosm.cluster.cluster import star
from paracosm.cluster.description import cluster_from_mapping
from paracosm.cluster.link import Link
from paracosm.simulation.simulate import simulate
from paracosm.simulation.system import DOWNLINK, UPLINK, WORKER, System, Workload, cluster_routes


def a_step(compute: float, size: float) -> Workload:
    """Compute, push, pull."""
    return Workload(
        resource=np.array([WORKER, UPLINK, DOWNLINK], np.int8),
        server=np.zeros(3, np.int64),
        size=np.array([0.0, size, size]),
        seconds=np.array([[compute, 0.0, 0.0]]),
        waits=np.array([0, 1, 1]),
        first_dependent=np.array([0, 1, 2, 2]),
        dependents=np.array([1, 2]),
        roots=np.array([[0]]),
        release=np.zeros((1, 1)),
        gap=np.zeros(1),
    )


@pytest.mark.parametrize("name", CLUSTERS)
def test_one_step_of_both_workers(name: str) -> None:
    cluster = cluster_from_mapping(CLUSTERS[name])
    speed = np.array([cluster.node(worker).speed for worker in cluster.workers])
    system = System(cluster_routes(cluster), speed, np.zeros(2))
    got = simulate(a_step(0.1, 1e5), system, np.zeros((2, 1), np.int64))
    assert got.step_end.max() == pytest.approx(ASYNCHRONOUS_STEP[name], rel=1e-9)


@pytest.mark.parametrize(
    ("sharing", "rates"),
    [("serial", (10 / 3, 20 / 3, 10, 10)), ("fair", (10 / 3, 4, 40 / 9, 80 / 17))],
)
def test_steps_of_workers_that_begin_together(sharing: str, rates: tuple[float, ...]) -> None:
    """Compute 100 ms, 12.5 MB either way at 1 Gbit/s: 100 ms alone.

    Serial: a round of W pushes and W pulls, of which two go on at a time, takes W times 100 ms
    where that is more than the 300 ms of a step alone. Fair: all do the same at once, and take W
    times 100 ms for either.
    """
    for workers, rate in zip((1, 2, 4, 8), rates, strict=True):
        link = Link(bandwidth=1e9 / 8, pipelined=True, sharing=sharing)  # type: ignore[arg-type]
        system = System(cluster_routes(star(workers, 1, link)), np.ones(workers), np.zeros(workers))
        got = simulate(a_step(0.1, 12.5e6), system, np.zeros((workers, 40), np.int64)).step_end
        steps = 20 * workers / (got[:, 39] - got[:, 19]).mean()
        assert steps / workers == pytest.approx(rate / workers, rel=1e-9)
