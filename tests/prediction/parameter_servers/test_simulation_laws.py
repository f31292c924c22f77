"""What must hold of every simulation of workers and parameter servers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_systems import plain_system
from random_workloads import Case, cases
from small_workloads import compute, down, once, up, update, workload_of
from steps_reference import port_bandwidths, simulate_literally

from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER
from paracosm.simulation.simulate import Simulated
from paracosm.simulation.system import DOWN, UP, Workload

SLACK = 1e-9


def simulated(case: Case) -> Simulated:
    return simulate_literally(case.workload, case.system, case.drawn, keep_chunks=True)


@settings(deadline=None, max_examples=60)
@given(cases())
def test_every_op_of_a_step_that_ended_has_run_once(case: Case) -> None:
    """In one turn or two without overlap; of steps that were not begun, nothing has."""
    result = simulated(case)
    turns: dict[tuple[int, int, int], list[np.void]] = {}
    for chunk in result.chunks:
        turns.setdefault(tuple(chunk.tolist()[:3]), []).append(chunk)
    ended = np.argwhere(~np.isnan(result.step_end)).tolist()
    every = {(w, k, op) for w, k in ended for op in range(case.workload.ops)}
    assert turns.keys() == every
    for (_, _, op), chunks in turns.items():
        two = case.workload.size[op] > case.system.window
        assert [chunk["turn"] for chunk in chunks] == [0, 1][: 1 + two]
        assert all(chunk["begin"] <= chunk["end"] for chunk in chunks)
        if two:
            assert chunks[0]["end"] <= chunks[1]["begin"]


@settings(deadline=None, max_examples=60)
@given(cases(most_servers=1, plain=True))
def test_bytes_delivered_are_bytes_sent(case: Case) -> None:
    """What each transfer gets, at 1 / active of the bandwidth at all times, is its bytes."""
    chunks = simulated(case).chunks
    workload = case.workload
    for direction in (DOWNLINK, UPLINK):
        own = chunks[workload.resource[chunks["op"]] == direction]
        instants = np.unique([own["begin"], own["end"]])
        middle = (instants[1:] + instants[:-1]) / 2
        active = ((own["begin"] <= middle[:, None]) & (middle[:, None] <= own["end"])).T
        got = active / np.maximum(active.sum(axis=0), 1) @ np.diff(instants)
        size = workload.size[own["op"]]
        first = np.minimum(size, case.system.window)
        assert got == pytest.approx(np.where(own["turn"] == 0, first, size - first))


@settings(deadline=None, max_examples=60)
@given(cases())
def test_no_port_is_above_its_bandwidth(case: Case) -> None:
    """Transfers that lie between any two times have no more bytes than the port can carry then."""
    chunks = simulated(case).chunks
    workload, system = case.workload, case.system
    size = workload.size[chunks["op"]]
    first = np.minimum(size, system.window)
    amount = np.where(chunks["turn"] == 0, first, size - first)
    resource, server = workload.resource[chunks["op"]], workload.server[chunks["op"]]
    for direction, servers, workers in (
        (DOWNLINK, *port_bandwidths(system.routes)[DOWN]),
        (UPLINK, *port_bandwidths(system.routes)[UP]),
    ):
        for number, bandwidth, port in (
            *((number, bandwidth, server) for number, bandwidth in enumerate(servers)),
            *((number, bandwidth, chunks["worker"]) for number, bandwidth in enumerate(workers)),
        ):
            own = (resource == direction) & (port == number)
            begin, end = chunks["begin"][own], chunks["end"][own]
            for since in begin:
                for till in end[end > since]:
                    within = (begin >= since) & (end <= till)
                    assert amount[own][within].sum() <= bandwidth * (till - since) * (1 + SLACK)


@settings(deadline=None, max_examples=60)
@given(cases())
def test_no_op_begins_before_those_it_waits_for(case: Case) -> None:
    result = simulated(case)
    workload, system = case.workload, case.system
    transfer = np.isin(workload.resource, (DOWNLINK, UPLINK))
    begin: dict[tuple[int, int, int], float] = {}
    end: dict[tuple[int, int, int], float] = {}
    for w, k, op, _, since, till in result.chunks.tolist():
        begin.setdefault((w, k, op), since)
        after = workload.seconds[case.drawn[w, k], op] + system.routes.latency[0, w, 0]
        delay = after if transfer[op] else 0
        end[w, k, op] = till + delay
    for (w, k, op), till in end.items():
        step = case.drawn[w, k]
        assert begin[w, k, op] >= result.step_begin[w, k]
        assert till <= result.step_end[w, k] + SLACK
        if op in workload.roots[step]:
            release = workload.release[step][workload.roots[step] == op].item()
            assert begin[w, k, op] >= result.step_begin[w, k] + release - SLACK
        first, last = workload.first_dependent[op : op + 2]
        for other in workload.dependents[first:last].tolist():
            assert begin[w, k, other] >= till - SLACK
    gap = workload.gap[case.drawn]
    begun = result.step_begin[:, 1:] >= (result.step_end + gap)[:, :-1] - SLACK
    assert (begun | np.isnan(result.step_begin[:, 1:])).all()


@settings(deadline=None, max_examples=60)
@given(cases())
def test_one_thing_at_a_time_in_each_lane_and_on_each_core(case: Case) -> None:
    chunks = simulated(case).chunks
    resource, server = case.workload.resource[chunks["op"]], case.workload.server[chunks["op"]]
    server = np.where(resource == WORKER, 0, server)
    for lane in {*zip(chunks["worker"].tolist(), resource.tolist(), server.tolist(), strict=True)}:
        own = chunks[(chunks["worker"] == lane[0]) & (resource == lane[1]) & (server == lane[2])]
        assert (own["begin"][1:] >= own["end"][:-1]).all()
    if case.system.cores:
        for number in range(case.system.servers):
            own = chunks[(resource == SERVER) & (server == number)]
            for since in own["begin"]:
                running = (own["begin"] <= since) & (since < own["end"])
                assert running.sum() <= case.system.cores


@settings(deadline=None, max_examples=60)
@given(cases(), st.floats(0.5, 6.0))
def test_until_cuts_off_what_is_later_and_nothing_else(case: Case, until: float) -> None:
    whole = simulated(case)
    part = simulate_literally(case.workload, case.system, case.drawn, until=until, keep_chunks=True)
    for name in ("step_begin", "step_end"):
        expected = getattr(whole, name)
        np.testing.assert_array_equal(
            getattr(part, name), np.where(expected <= until, expected, np.nan)
        )
    assert part.chunks.tolist() == whole.chunks[whole.chunks["end"] <= until].tolist()


NUMBERS = st.floats(0.1, 3.0)
LAYERS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=4)


def layered(layers: list[tuple[float, float, float, float]]) -> Workload:
    """Return a step of layers one after the other, each of (bytes, forward, backward, update).

    Parameters come in the order of their layers, gradients are sent as soon as they are there. In
    every lane the order is the same whatever anything takes.
    """
    n = len(layers)
    ops = [down(layer[0]) for layer in layers]
    ops += [compute(layer[1], [i, n + i - 1] if i else [0]) for i, layer in enumerate(layers)]
    for i, layer in enumerate(reversed(layers)):
        ops.append(compute(layer[2], [2 * n + i - 1]))
    for i, layer in enumerate(reversed(layers)):
        ops.append(up(layer[0], [2 * n + i]))
    for i, layer in enumerate(reversed(layers)):
        ops.append(update(layer[3], [3 * n + i]))
    return workload_of(*ops, gap=0.1)


@settings(deadline=None, max_examples=50)
@given(LAYERS, st.floats(0.2, 2.0), st.floats(1.0, 3.0))
def test_one_worker_is_no_slower_on_a_faster_link(
    layers: list[tuple[float, float, float, float]], bandwidth: float, faster: float
) -> None:
    step = layered(layers)
    slow, fast = (
        simulate_literally(step, plain_system(1, 1, value), once(1, 3)).step_end
        for value in (bandwidth, bandwidth * faster)
    )
    assert (fast <= slow + SLACK).all()


def test_where_the_order_changes_a_faster_link_may_be_slower() -> None:
    """Graham's anomaly: a's 2 bytes; 9 s of a's computing; the server works 9 s after b's 1 s.

    At 1 byte/s a comes at 2, after b was queued at 1.5: b until 2.5, the server until 11.5, a too.
    At 2 bytes/s a comes at 1: it computes until 10, b until 11 and the server until 20.
    """
    step = workload_of(*(down(2), compute(9, [0])), *(update(1.5), compute(1, [2]), update(9, [3])))
    ends = [
        simulate_literally(step, plain_system(1, 1, value), once()).step_end.item()
        for value in (1.0, 2.0)
    ]
    assert ends == [11.5, 20]


@settings(deadline=None, max_examples=50)
@given(LAYERS, st.integers(2, 4), st.floats(0.0, 5.0), st.sampled_from([None, 0]))
def test_many_workers_are_no_faster_than_so_many_alone_or_than_the_link(
    layers: list[tuple[float, float, float, float]], W: int, apart: float, backup: int | None
) -> None:
    steps = 3
    step = layered(layers)
    start = apart * np.arange(W)
    system = replace(plain_system(W, 1, 1.0, start=start), backup=backup)
    together = simulate_literally(step, system, once(W, steps))
    alone = simulate_literally(step, plain_system(1, 1, 1.0), once(1, steps))
    assert (together.step_end >= alone.step_end + start[:, None] - SLACK).all()
    carried = sum(layer[0] for layer in layers) * W * steps
    assert together.step_end.max() >= carried - SLACK
