"""Schedules of steps that are simulated op by op: by hand, and by Little's law."""

from __future__ import annotations

from itertools import cycle, repeat
from typing import Literal

import numpy as np
import pytest
from plain_systems import plain_system

from paracosm.cluster import Link, star
from paracosm.errors import InputError
from paracosm.simulation.rules import Rule, asgd, backup, fedbuff, rennala, softsync, ssgd, ssp
from paracosm.simulation.schedule import Schedule, join_schedules
from paracosm.simulation.scheduling import generate_schedule, stream_schedule
from paracosm.simulation.system import (
    DOWNLINK,
    SERVER,
    UPLINK,
    WORKER,
    System,
    Workload,
    cluster_routes,
)

MB = 1_000_000

Sharing = Literal["serial", "fair"]


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
    workload: Workload,
    workers: int,
    steps: int,
    sharing: Sharing,
    tensors: int = 1,
    rule: Rule | None = None,
) -> Schedule:
    routes = cluster_routes(star(workers, 1, Link(bandwidth=1.0 * MB, sharing=sharing)))
    system = System(routes=routes, speed=np.ones(workers), start=np.zeros(workers))
    drawn = np.random.default_rng(2).integers(workload.steps, size=(workers, steps))
    whose = np.tile(np.arange(tensors), 4)
    use = (workload.resource == DOWNLINK) | (workload.resource == SERVER)
    tensor = np.where(use, whose, -1).tolist()
    return join_schedules(stream_schedule(workload, system, rule or asgd(), drawn, tensor))


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
def test_a_closed_loop_has_a_mean_staleness_of_the_other_workers(
    sharing: Sharing,
) -> None:
    """Workers that read again as they update: W - 1, however long steps take."""
    found = schedule(drawn_steps(1, 0.05 * MB), 4, 400, sharing)
    middle = found.staleness[200:-200]
    assert middle.mean() == pytest.approx(3, abs=0.02)
    assert middle.min() < 3 < middle.max()


@pytest.mark.parametrize("sharing", ["fair", "serial"])
def test_staleness_counts_the_updates_of_one_tensor(sharing: Sharing) -> None:
    """Counted anew, one by one; a tensor that is not held for the whole step is less stale."""
    tensors, workers = 3, 4
    found = schedule(drawn_steps(tensors, 0.05 * MB), workers, 60, sharing, tensors)
    names = ["worker", "step", "tensor"]
    read_at = {tuple(row[names]): row["time"] for row in found.reads}
    for number, row in enumerate(found.updates):
        before = found.updates[:number]
        seen = (before["tensor"] == row["tensor"]) & (before["time"] > read_at[tuple(row[names])])
        assert found.staleness[number] == seen.sum()
    for tensor in range(tensors):
        assert 0 < found.staleness[found.updates["tensor"] == tensor].mean() < workers - 1


def test_synchronous_workers_read_what_all_have_updated() -> None:
    """Serial: gradients at 0.3 and 0.4 make an update; the next pulls begin then, one by one."""
    found = schedule(steps_of(np.array([0.1])), 2, 2, "serial", rule=ssgd(2))
    assert (found.updates["time"] / 10**11).tolist() == [4, 4, 8, 8]
    assert found.updates["version"].tolist() == [1, 1, 2, 2]
    assert found.updates["read"].tolist() == [0, 0, 1, 1]
    assert (found.steps["begin"] / 10**11).tolist() == [0, 0, 4, 4]


def test_late_steps_are_dropped_as_a_whole() -> None:
    """Serial, one of two is waited for: worker 1's second update at 0.4 is late, and so on.

    Worker 0 ends steps at 0.3, 0.6, ...; worker 1 at 0.4, 0.7, ..., and never in time.
    """
    found = schedule(steps_of(np.array([0.1])), 2, 3, "serial", rule=backup(2, 1))
    assert found.updates["worker"].tolist() == [0, 0, 0]
    assert (found.updates["time"] / 10**11).tolist() == [3, 6, 9]
    assert found.dropped == 3
    assert found.steps["accepted"].tolist() == [1, 0, 1, 0, 1, 0]
    assert found.reads["version"].tolist() == [0, 0, 1, 1, 2, 2]


def test_nobody_waits_for_a_buffer_to_be_full() -> None:
    """Serial: gradients at 0.3, 0.4; 0.6, 0.7. Worker 0 reads again at 0.3, before the update."""
    found = schedule(steps_of(np.array([0.1])), 2, 2, "serial", rule=fedbuff(2))
    assert (found.updates["time"] / 10**11).tolist() == [4, 4, 7, 7]
    assert found.updates["read"].tolist() == [0, 0, 0, 1]
    assert found.staleness.tolist() == [0, 0, 1, 0]


def test_a_worker_waits_for_the_slack() -> None:
    """Infinitely fast links; computing takes 1 and 3.5. As the schedule of whole steps has it."""
    routes = cluster_routes(star(2, 1, Link()))
    system = System(routes=routes, speed=np.array([1.0, 1 / 3.5]), start=np.zeros(2))
    found = join_schedules(
        stream_schedule(
            steps_of(np.array([1.0])), system, ssp(1), np.zeros((2, 3), np.int64), [0, -1, -1, 0]
        )
    )
    assert (found.updates["time"] / 10**12).tolist() == [1, 2, 3.5, 4.5, 7, 10.5]
    assert found.updates["worker"].tolist() == [0, 0, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("rule", "sharing"),
    [
        *((r, "fair") for r in (asgd(), ssgd(4), ssp(1), fedbuff(3), backup(4, 1), rennala(3))),
        *((rule, "serial") for rule in (asgd(), ssgd(4), softsync(4, 2))),
    ],
    ids=str,
)
def test_whole_steps_of_one_tensor_are_steps_op_by_op(rule: Rule, sharing: Sharing) -> None:
    """Workers that compute, push, pull: one job, in the words of both kernels.

    Op by op, a step begins with its pull. First pulls are made one after the other, and computing
    so long that none of what follows meets them; whole steps begin with that much more computing.
    Workers that were held back and go on at one time do so in the order of arrival there, of their
    numbers here: that makes no difference where messages share.
    """
    workers, steps, size = 4, 40, 0.05
    cluster = star(workers, 1, Link(bandwidth=1.0, latency=0.01, sharing=sharing))
    compute = np.random.default_rng(5).uniform(0.5, 2.0, (workers, steps))
    workload = steps_of(np.append(compute, 3.0), 1, size)
    system = System(
        routes=cluster_routes(cluster), speed=np.ones(workers), start=size * np.arange(workers)
    )
    drawn = np.arange(workers * steps).reshape(workers, steps)
    drawn[:, 0] = workers * steps
    got = join_schedules(stream_schedule(workload, system, rule, drawn, [0, -1, -1, 0]))

    compute[:, 0] = 3.0 + 0.01 + size * np.arange(1, workers + 1)
    ended = got.steps["end"][got.steps["step"] == steps - 1].min()  # then one has no more steps
    updates = int(got.updates["version"][got.updates["time"] < ended].max())
    expected = generate_schedule(cluster, rule, [size], updates, list(map(cycle, compute)))
    assert len(expected.updates) > 50
    assert got.updates[: len(expected.updates)].tolist() == expected.updates.tolist()
    last = expected.updates["time"][-1]
    early = np.sort(got.reads[got.reads["time"] <= last])[workers:]
    assert early.tolist() == np.sort(expected.reads[expected.reads["time"] <= last]).tolist()


def test_a_tensor_that_is_not_read_is_not_updated() -> None:
    workload = steps_of(np.array([0.1]))
    system = plain_system(1, 1, 1.0 * MB)
    drawn = np.zeros((1, 1), np.int64)
    with pytest.raises(ValueError, match="a step updates tensor 0 before it has read it"):
        next(stream_schedule(workload, system, asgd(), drawn, [-1, -1, -1, 0]))
    with pytest.raises(ValueError, match="tensor 0 is read by several ops"):
        next(
            stream_schedule(
                steps_of(np.array([0.1]), 2), system, asgd(), drawn, [0, 0, *[-1] * 4, 0, -1]
            )
        )
    with pytest.raises(ValueError, match="waits for 3 of other than 1 workers"):
        next(stream_schedule(workload, system, ssgd(3), drawn, [0, -1, -1, 0]))


@pytest.mark.parametrize(
    "rule",
    [
        Rule(0),
        Rule(10**30),
        Rule(2.5),  # type: ignore[arg-type]
        Rule(slack=-1),
        Rule(answers="some"),  # type: ignore[arg-type]
        Rule(1, "all"),
        Rule(3, "gathered"),
    ],
)
def test_a_rule_that_is_impossible_is_refused_at_both_doors(rule: Rule) -> None:
    system = plain_system(2, 1, 1.0 * MB)
    with pytest.raises(InputError, match=r"pushes|answers|waits for"):
        next(stream_schedule(steps_of(np.array([0.1])), system, rule, np.zeros((2, 1), int), [-1]))
    times = [repeat(0.1), repeat(0.1)]
    with pytest.raises(InputError, match=r"pushes|answers|waits for"):
        generate_schedule(star(2, 1, Link(MB)), rule, [1.0], 2, times)
