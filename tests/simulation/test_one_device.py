"""Replays on one device, by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from paracosm.errors import InputError
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.graph import COMPUTE, HOST, RESOURCES, Graph, Op
from paracosm.simulation.replay import Schedule, replay


def chain(*nodes: tuple[str, str], dependencies: Sequence[tuple[int, ...]] = ()) -> Graph:
    """Return nodes (resource, op name), each depending on the one before unless said."""
    before = dependencies or [(i - 1,) if i else () for i in range(len(nodes))]
    return build_graph(
        Node(id=i, op=Op(name), resource=resource, dependencies=before[i])
        for i, (resource, name) in enumerate(nodes)
    )


def spans(schedule: Schedule) -> list[tuple[float, float]]:
    return list(zip(schedule.begin.tolist(), schedule.end.tolist(), strict=True))


def test_the_kernel_knows_the_place_of_the_host() -> None:
    assert (COMPUTE, HOST) == (0, 1)
    assert RESOURCES == ("compute", "host", "memory", "communication")


def test_on_a_cpu_one_op_follows_the_other_and_views_take_their_time() -> None:
    graph = chain(("compute", "a"), ("host", "view"), ("compute", "b"))
    schedule = replay(graph, np.array([3.0, 0.5, 2.0]), launch=9.0)
    assert spans(schedule) == [(0, 3), (3, 3.5), (3.5, 5.5)]
    assert schedule.makespan == 5.5


def test_a_device_that_computes_longer_than_the_host_launches_never_waits() -> None:
    """Three ops of 4 s, launches of 1 s: 1 + 3 * 4; the view costs the device nothing."""
    graph = chain(("compute", "a"), ("compute", "b"), ("host", "view"), ("compute", "c"))
    schedule = replay(graph, np.array([4.0, 4.0, 1.5, 4.0]), asynchronous=True, launch=1.0)
    assert spans(schedule) == [(1, 5), (5, 9), (2, 3.5), (9, 13)]
    assert schedule.issued.tolist() == [1, 2, 3.5, 4.5]
    assert schedule.makespan == 13


def test_a_device_that_is_faster_than_the_host_waits_for_launches() -> None:
    """Three ops of 0.5 s, launches of 2 s, a view of 1 s: the last is issued at 7."""
    graph = chain(("compute", "a"), ("compute", "b"), ("host", "view"), ("compute", "c"))
    schedule = replay(graph, np.array([0.5, 0.5, 1.0, 0.5]), asynchronous=True, launch=2.0)
    assert spans(schedule) == [(2, 2.5), (4, 4.5), (4, 5), (7, 7.5)]
    assert schedule.makespan == 7.5


def test_the_host_waits_for_a_value_that_it_reads() -> None:
    names = ("compute", "a"), ("host", "aten._local_scalar_dense.default"), ("compute", "b")
    schedule = replay(chain(*names), np.array([4.0, 0.25, 1.0]), asynchronous=True, launch=1.0)
    assert spans(schedule) == [(1, 5), (5, 5.25), (6.25, 7.25)]


def test_a_value_that_is_read_stands_in_the_stream_behind_what_was_issued_before() -> None:
    """The host reads what a made, in a stream that is in order: after b, which has no use of it."""
    graph = chain(
        ("compute", "a"),
        ("compute", "b"),
        ("memory", "aten._local_scalar_dense.default"),
        ("compute", "c"),
        dependencies=[(), (), (0,), ()],
    )
    schedule = replay(graph, np.array([1.0, 4.0, 0.5, 1.0]), asynchronous=True, launch=0.25)
    assert spans(schedule) == [(0.25, 1.25), (1.25, 5.25), (5.25, 5.75), (6, 7)]


def test_a_view_of_what_another_lane_makes_hides_no_dependency() -> None:
    """b needs what the copy makes, through a view which the host takes long before it is there."""
    graph = chain(("memory", "copy"), ("host", "view"), ("compute", "b"))
    schedule = replay(graph, np.array([5.0, 0.0, 1.0]), asynchronous=True, launch=1.0)
    assert spans(schedule) == [(1, 6), (1, 1), (6, 7)]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_communication_runs_beside_what_does_not_need_it(asynchronous: bool) -> None:
    graph = chain(
        ("compute", "a"),
        ("communication", "all_reduce"),
        ("compute", "b"),
        ("compute", "c"),
        dependencies=[(), (0,), (0,), (1, 2)],
    )
    schedule = replay(graph, np.array([1.0, 4.0, 2.0, 1.0]), asynchronous=asynchronous)
    if asynchronous:
        assert spans(schedule) == [(0, 1), (1, 5), (1, 3), (5, 6)]
    else:  # the host computes c itself, and has to wait for the network first
        assert spans(schedule) == [(0, 1), (1, 5), (1, 3), (5, 6)]


def test_launch_times_may_differ_by_node() -> None:
    graph = chain(("compute", "a"), ("compute", "b"))
    launch = np.array([1.0, 3.0])
    schedule = replay(graph, np.array([1.0, 1.0]), asynchronous=True, launch=launch)
    assert spans(schedule) == [(1, 2), (4, 5)]


def test_an_empty_graph_takes_no_time() -> None:
    assert replay(build_graph([]), np.zeros(0)).makespan == 0


@pytest.mark.parametrize("wrong", [math.nan, -1.0, math.inf])
def test_a_duration_that_cannot_be_is_refused_with_its_node(wrong: float) -> None:
    with pytest.raises(InputError, match=r"the duration of node 1 \(b\) is"):
        replay(chain(("compute", "a"), ("compute", "b")), np.array([1.0, wrong]))
    with pytest.raises(InputError, match=r"the launch time of node 0 \(a\) is"):
        replay(chain(("compute", "a")), np.array([1.0]), launch=wrong)


def test_durations_of_another_graph_are_refused() -> None:
    with pytest.raises(InputError, match="2 values of duration for 1 nodes"):
        replay(chain(("compute", "a")), np.array([1.0, 2.0]))
