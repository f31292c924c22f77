"""Schedules of steps that are simulated op by op: by hand, and by Little's law."""

from __future__ import annotations

import numpy as np
import pytest

from paracosm.cluster import Link, star
from paracosm.simulation.schedule import Schedule, schedule_of_steps
from paracosm.simulation.simulate import simulate
from paracosm.simulation.system import (
    DOWNLINK,
    SERVER,
    UPLINK,
    WORKER,
    System,
    Workload,
    cluster_ways,
)

MB = 1_000_000


def steps_of(compute: np.ndarray, tensors: int = 1, size: float = 0.1 * MB) -> Workload:
    """Return steps that pull all tensors, compute, push them one after the other, and update each.

    Args:
        compute: seconds of each step's computing between two pushes, (steps,).
    """
    names, waits = [], []
    for t in range(tensors):
        names.append((DOWNLINK, t))
        waits.append([])
    for t in range(tensors):
        names.append((WORKER, t))
        waits.append(list(range(tensors)) if t == 0 else [tensors + t - 1])
    for t in range(tensors):
        names.append((UPLINK, t))
        waits.append([tensors + t])
    for t in range(tensors):
        names.append((SERVER, t))
        waits.append([2 * tensors + t])
    resource = np.array([kind for kind, _ in names], np.int8)
    dependents = [[o for o, w in enumerate(waits) if own in w] for own in range(len(names))]
    moves = (resource == DOWNLINK) | (resource == UPLINK)
    return Workload(
        resource=resource,
        server=np.zeros(len(names), np.int64),
        size=np.where(moves, size, 0.0),
        seconds=np.where(resource == WORKER, compute[:, None], 0.0),
        waits=np.array([len(w) for w in waits]),
        first_dependent=np.cumsum([0, *map(len, dependents)]),
        dependents=np.array([o for row in dependents for o in row], np.int64),
        roots=np.tile(np.arange(tensors), (len(compute), 1)),
        release=np.zeros((len(compute), tensors)),
        gap=np.zeros(len(compute)),
    )


def schedule(
    workload: Workload, workers: int, steps: int, sharing: str, tensors: int = 1, seed: int = 0
) -> Schedule:
    ways = cluster_ways(star(workers, 1, Link(bandwidth=1.0 * MB, sharing=sharing)))
    system = System(ways=ways, speed=np.ones(workers), start=np.zeros(workers))
    drawn = np.random.default_rng(seed).integers(len(workload.seconds), size=(workers, steps))
    simulated = simulate(workload, system, drawn, keep_chunks=True)
    whose = np.tile(np.arange(tensors), 4)
    use = (workload.resource == DOWNLINK) | (workload.resource == SERVER)
    return schedule_of_steps(workload, simulated, np.where(use, whose, -1))


def test_workers_in_step_read_what_both_have_updated() -> None:
    """Fair: pulls 0 to 0.2, computing to 0.3, pushes to 0.5; the next pulls begin at 0.5."""
    found = schedule(steps_of(np.array([0.1])), 2, 2, "fair")
    assert found.updates["time"].tolist() == [5 * 10**11] * 2 + [10**12] * 2
    assert found.reads["time"].tolist() == [0, 0, 5 * 10**11, 5 * 10**11]
    assert found.reads["version"].tolist() == [0, 0, 2, 2]
    assert found.staleness.tolist() == [0, 1, 0, 1]


def test_messages_in_turn_set_workers_apart() -> None:
    """Serial: updates at 0.3 and 0.4, where the next pulls begin; then at 0.6 and 0.7."""
    found = schedule(steps_of(np.array([0.1])), 2, 2, "serial")
    assert (found.updates["time"] / 10**11).tolist() == [3, 4, 6, 7]
    assert found.updates["worker"].tolist() == [0, 1, 0, 1]
    assert found.reads["version"].tolist() == [0, 0, 1, 2]
    assert found.staleness.tolist() == [0, 1, 1, 1]


def drawn_steps(tensors: int, size: float) -> Workload:
    compute = np.random.default_rng(1).lognormal(np.log(0.1), 0.3, 200)
    return steps_of(compute, tensors, size)


@pytest.mark.parametrize("sharing", ["fair", "serial"])
def test_a_closed_loop_has_a_mean_staleness_of_the_other_workers(sharing: str) -> None:
    """Workers that read again as they update: W - 1, however long steps take."""
    found = schedule(drawn_steps(1, 0.05 * MB), 4, 400, sharing, seed=2)
    middle = found.staleness[200:-200]
    assert middle.mean() == pytest.approx(3, abs=0.02)
    assert middle.min() < 3 < middle.max()


@pytest.mark.parametrize("sharing", ["fair", "serial"])
def test_staleness_counts_the_updates_of_one_tensor(sharing: str) -> None:
    """Counted anew, one by one; a tensor that is not held for the whole step is less stale."""
    tensors, workers = 3, 4
    found = schedule(drawn_steps(tensors, 0.05 * MB), workers, 60, sharing, tensors, seed=3)
    names = ["worker", "step", "tensor"]
    read_at = {tuple(row[names]): row["time"] for row in found.reads}
    for number, row in enumerate(found.updates):
        before = found.updates[:number]
        seen = (before["tensor"] == row["tensor"]) & (before["time"] > read_at[tuple(row[names])])
        assert found.staleness[number] == seen.sum()
    for tensor in range(tensors):
        assert 0 < found.staleness[found.updates["tensor"] == tensor].mean() < workers - 1


def test_a_tensor_that_is_not_read_is_not_updated() -> None:
    workload = steps_of(np.array([0.1]))
    ways = cluster_ways(star(1, 1, Link(bandwidth=1.0 * MB)))
    system = System(ways=ways, speed=np.ones(1), start=np.zeros(1))
    simulated = simulate(workload, system, np.zeros((1, 1), int), keep_chunks=True)
    with pytest.raises(ValueError, match="updates tensor 0 in step 0 without having read it"):
        schedule_of_steps(workload, simulated, [-1, -1, -1, 0])
