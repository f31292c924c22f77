"""Kernels that one launch of a graph brings: they wait for each other as if launched one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hand_made import Event, host, kernel, launch, step, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paracosm.cluster.changes import parse_change
from paracosm.replays.job import read_job
from paracosm.replays.outcome import outcome_of, replayed
from paracosm.replays.run import changed

Kernels = list[tuple[int, float]]  # stream and microseconds of each
RECORDED: dict[str, Any] = {"cuda_sync_kind": "Context Synchronize"}


def microseconds(folder: Path, events: list[Event], *what_ifs: str) -> float:
    traced = read_job([write(folder, events)])
    job = changed(traced, [parse_change(text) for text in what_ifs])
    return 1e6 * outcome_of(traced, replayed(job)).iteration_time


def chain(kernels: Kernels, gap: float, graph: bool) -> list[Event]:
    """A step of kernels of which each waits for the one before, on whatever stream it is.

    They are launched by 40 us, by one call or one each; the host waits for them from 50 us on.
    """
    events: list[Event] = []
    call = host("cuda_runtime", "cudaGraphLaunch", 20, 40, correlation=100)
    at = 45.0
    for number, (stream, took) in enumerate(kernels):
        if not graph:
            begin = 20 + 20 * number / len(kernels)
            events.append(launch(100 + number, begin, begin + 20 / len(kernels)))
        which = 100 if graph else 100 + number
        events.append(kernel(which, at, at + took, f"k{number}", stream))
        at += took + gap
    done = at - gap
    wait = host("cuda_runtime", "cudaDeviceSynchronize", 42, done + 5, correlation=900)
    return [step(3, 0, done + 100), *([call] if graph else []), *events, wait]


def test_a_graph_over_two_streams(tmp_path: Path) -> None:
    """Five kernels of 90 us, 10 us apart: half of 450 us less, of 45 + 490 + 100."""
    kernels: Kernels = [(7, 90), (8, 90), (7, 90), (8, 90), (7, 90)]
    for graph in (True, False):
        events = chain(kernels, 10, graph)
        assert microseconds(tmp_path, events) == pytest.approx(635)
        assert microseconds(tmp_path, events, "compute: 2x faster") == pytest.approx(635 - 225)
        assert microseconds(tmp_path, events, "kernel k1: none") == pytest.approx(635 - 90)


def test_edges_of_a_graph_are_inferred_though_waits_were_recorded(tmp_path: Path) -> None:
    """The profiler records the waits of calls, and none within or around a graph."""
    kernels: Kernels = [(7, 90), (8, 90), (7, 90), (8, 90)]
    seen = {**kernel(900, 42, 430, "Context Sync", -1, **RECORDED), "cat": "cuda_sync"}
    events = [*chain(kernels, 0, graph=True), seen]
    # What is launched to the stream of the graph comes after all of it.
    events += [launch(200, 40, 41), kernel(200, 406, 425, "after", 7)]
    before = microseconds(tmp_path, events)
    assert microseconds(tmp_path, events, "kernel k3: none") == pytest.approx(before - 90, abs=20)
    assert microseconds(tmp_path, events, "kernel k?: 2x faster") == pytest.approx(before - 180)


def test_branches_of_a_graph_that_overlap_stay_apart(tmp_path: Path) -> None:
    """A fork of 40 us and 100 us after 50 us, and a join."""
    events = [
        step(3, 0, 300),
        host("cuda_runtime", "cudaGraphLaunch", 10, 20, correlation=1),
        *(kernel(1, 30, 80, "root"), kernel(1, 82, 122, "short", 8)),
        *(kernel(1, 81, 181, "long"), kernel(1, 190, 200, "join", 8)),
        host("cuda_runtime", "cudaDeviceSynchronize", 20, 201, correlation=2),
    ]
    assert microseconds(tmp_path, events, "kernel short: none") == pytest.approx(300)
    assert microseconds(tmp_path, events, "kernel long: 2x faster") == pytest.approx(250)
    assert microseconds(tmp_path, events, "kernel root: 2x faster") == pytest.approx(275)


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    kernels=st.lists(st.tuples(st.sampled_from([7, 8, 9]), st.integers(6, 90)), min_size=1),
    gap=st.sampled_from([0, 1, 10]),
    factor=st.sampled_from([1.5, 2, 10]),
)
def test_one_launch_or_many_are_the_same(
    kernels: list[tuple[int, int]], gap: float, factor: float, tmp_path: Path
) -> None:
    whole = [(stream, float(took)) for stream, took in kernels]
    times = [
        microseconds(tmp_path, chain(whole, gap, graph), f"compute: {factor}x faster")
        for graph in (True, False)
    ]
    length = sum(took for _, took in whole)
    gaps = gap * (len(whole) - 1)
    expected = 45 + length / factor + gaps + 100
    assert times == pytest.approx([expected, expected])
