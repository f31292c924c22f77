"""The simulation of workers and parameter servers, against timelines made by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plain_systems import plain_system, port_routes
from small_workloads import compute, down, once, rows, times, up, update, workload_of
from steps_reference import (
    Sharing,
    equal_rates,
    max_min,
    port_bandwidths,
    simulate_literally,
    two_server_rates,
)

from paracosm.simulation.system import System


def test_two_workers_and_one_tensor_each_way() -> None:
    """6 bytes down, 2 s, 4 bytes up, 1 s on the server; 2 bytes/s.

    Alone: 3, 5, 7 and 8 s. With a second worker that begins at 1: A's first second takes 2 bytes;
    then both have 1 byte/s, A until its 4 are there, at 5; B has had 4 of 6, the other 2 take 1 s:
    6. A computes until 7, sends alone until 8 (2 of 4 bytes); B computes until 8. Both send at
    1 byte/s: A's 2 bytes until 10, B's 2 of 4 until 10, the others 1 s: 11. Updates are apart.
    """
    step = workload_of(down(6), compute(2, [0]), up(4, [1]), update(1, [2]))
    alone = simulate_literally(step, plain_system(1, 1, 2.0), once(), keep_chunks=True)
    assert times(alone, 0) == [(0, 0, 3), (1, 3, 5), (2, 5, 7), (3, 7, 8)]
    assert alone.step_end.tolist() == [[8]]

    system = plain_system(2, 1, 2.0, start=np.array([0.0, 1.0]))
    both = simulate_literally(step, system, once(2), keep_chunks=True)
    assert times(both, 0) == [(0, 0, 5), (1, 5, 7), (2, 7, 10), (3, 10, 11)]
    assert times(both, 1) == [(0, 1, 6), (1, 6, 8), (2, 8, 11), (3, 11, 12)]
    assert both.step_begin.tolist() == [[0], [1]]
    assert both.step_end.tolist() == [[11], [12]]
    assert both.accepted.all()


@pytest.mark.parametrize("share", [max_min, equal_rates])
def test_equal_sharing(share: Sharing) -> None:
    """W workers that begin together have 1/W each, by the paper's rule as by the general one."""
    step = workload_of(down(3))
    for workers in (1, 2, 3, 4):
        system = plain_system(workers, 1, 0.5)
        result = simulate_literally(step, system, once(workers), share=share)
        assert result.step_end.ravel().tolist() == pytest.approx([6 * workers] * workers)


def test_directions_are_apart() -> None:
    """Full duplex: a transfer down and one up take the time of one."""
    step = workload_of(down(4), up(4))
    result = simulate_literally(step, plain_system(1, 1, 1.0), once(), keep_chunks=True)
    assert times(result, 0) == [(0, 0, 4), (1, 0, 4)]


STREAMS = {
    # sizes of A to E: (stream, turn, bytes) in the order in which they are sent, with WIN = 3
    "some of each": (
        [5, 2, 7, 3, 4],
        [*("A0 3", "B0 2", "C0 3", "D0 3", "E0 3"), *("A1 2", "C1 4", "E1 1")],
    ),
    "all larger": (
        [4, 5, 6, 7, 8],
        [
            *("A0 3", "B0 3", "C0 3", "D0 3", "E0 3"),
            *("A1 1", "B1 2", "C1 3", "D1 4", "E1 5"),
        ],
    ),
    "all smaller": ([1, 2, 1, 2, 1], ["A0 1", "B0 2", "C0 1", "D0 2", "E0 1"]),
    "all equal": ([3, 3, 3, 3, 3], ["A0 3", "B0 3", "C0 3", "D0 3", "E0 3"]),
}


@pytest.mark.parametrize("case", STREAMS)
def test_streams_of_figure_12(case: str) -> None:
    """First turns of at most WIN = 3 bytes in order, then second turns to completion."""
    sizes, order = STREAMS[case]
    step = workload_of(*(down(size) for size in sizes))
    system = plain_system(1, 1, 1.0, window=3.0)
    result = simulate_literally(step, system, once(), keep_chunks=True)
    sent = [f"{'ABCDE'[op]}{turn} {end - begin:g}" for _, op, turn, begin, end in rows(result)]
    assert sent == order
    assert result.step_end.tolist() == [[sum(sizes)]]


def test_a_stream_that_comes_later_is_behind_a_second_turn() -> None:
    """A (5 bytes, WIN 3) is back in the queue at 3; B (2 bytes) comes at 4 and C (4) at 0.

    C's first turn is until 6; A's second, which waited since 3, until 8, B until 10, C's rest 11.
    With all priorities alike, B's first turn goes before second ones.
    """
    step = workload_of(down(5), compute(4), down(2, [1]), down(4))
    system = plain_system(1, 1, 1.0, window=3.0)
    result = simulate_literally(step, system, once(), keep_chunks=True)
    downlinks = [(op, begin, end) for op, begin, end in times(result, 0) if op != 1]
    assert downlinks == [(0, 0, 3), (3, 3, 6), (0, 6, 8), (2, 8, 10), (3, 10, 11)]

    alike = replace(system, priority=np.zeros(4))
    result = simulate_literally(step, alike, once(), keep_chunks=True)
    downlinks = [(op, begin, end) for op, begin, end in times(result, 0) if op != 1]
    assert downlinks == [(0, 0, 3), (3, 3, 6), (2, 6, 8), (0, 8, 10), (3, 10, 11)]


def test_a_stream_of_exactly_the_window_has_one_turn() -> None:
    step = workload_of(down(3), down(3.5), down(1))
    result = simulate_literally(step, plain_system(1, 1, 1.0, window=3.0), once(), keep_chunks=True)
    assert rows(result) == [
        *((0, 0, 0, 0.0, 3.0), (0, 1, 0, 3.0, 6.0), (0, 2, 0, 6.0, 7.0)),
        (0, 1, 1, 7.0, 7.5),
    ]


def test_without_flow_control_streams_are_whole() -> None:
    step = workload_of(down(5), down(2), down(7))
    result = simulate_literally(step, plain_system(1, 1, 1.0), once(), keep_chunks=True)
    assert times(result, 0) == [(0, 0, 5), (1, 5, 7), (2, 7, 14)]


def test_priorities_order_what_waits() -> None:
    """The lane is idle at 0 and all wait: the lowest priority first, ties in the order of coming.

    Second turns are in the order of their priorities too.
    """
    step = workload_of(down(4), down(1), down(5), down(1))
    system = replace(plain_system(1, 1, 1.0, window=3.0), priority=np.array([2.0, 1.0, 0.0, 1.0]))
    result = simulate_literally(step, system, once(), keep_chunks=True)
    assert times(result, 0) == [
        *((2, 0, 3), (1, 3, 4), (3, 4, 5), (0, 5, 8)),
        *((2, 8, 10), (0, 10, 11)),
    ]


@pytest.mark.parametrize("share", [max_min, two_server_rates])
def test_an_uneven_split_over_two_servers(share: Sharing) -> None:
    """3 bytes from server 0 and 12 from server 1; 6 bytes/s; A begins at 1, B and C at 0.

    Until 1, B and C have 3 bytes/s from each server, and all of server 0's. Then A is alone with
    server 0 and one of three with server 1: 1/3 there and 1 - 1/3 = 4 bytes/s here, so 0.75 s. By
    then A has had 1.5 of 12 bytes, B and C 4.5: their 7.5 take 3.75 s, until 5.5. A has 3 left.
    """
    step = workload_of(down(3), down(12, server=1))
    system = plain_system(3, 2, 6.0, start=np.array([1.0, 0.0, 0.0]))
    result = simulate_literally(step, system, once(3), keep_chunks=True, share=share)
    assert times(result, 0) == [(0, 1, pytest.approx(1.75)), (1, 1, pytest.approx(6))]
    assert times(result, 1) == [(0, 0, 1), (1, 0, pytest.approx(5.5))]
    assert times(result, 2) == [(0, 0, 1), (1, 0, pytest.approx(5.5))]


def test_one_worker_and_two_servers_is_held_by_its_own_port() -> None:
    """4 bytes from one and 12 from the other at 8 bytes/s: 4 bytes/s each until 1, then 8."""
    step = workload_of(down(4), down(12, server=1))
    result = simulate_literally(step, plain_system(1, 2, 8.0), once(), keep_chunks=True)
    assert times(result, 0) == [(0, 0, 1), (1, 0, 2)]


def test_bytes_of_no_length_take_no_time() -> None:
    """Zero bytes keep their place in the queue, and hand on at once, or after their delay."""
    step = workload_of(down(2), down(0), compute(1, [1]), up(0, [2], delay=0.5), update(0, [3]))
    result = simulate_literally(step, plain_system(1, 1, 1.0), once(), keep_chunks=True)
    assert times(result, 0) == [(0, 0, 2), (1, 2, 2), (2, 2, 3), (3, 3, 3), (4, 3.5, 3.5)]
    assert result.step_end.tolist() == [[3.5]]


def test_what_waits_is_handed_on_after_the_delay_but_the_lane_is_free() -> None:
    """Latency 0.25 and 0.5 s of the op: the next transfer begins with the last byte."""
    step = workload_of(down(2, delay=0.5), down(2), compute(1, [0]), compute(1, [1]))
    system = plain_system(1, 1, 2.0, latency=0.25)
    result = simulate_literally(step, system, once(), keep_chunks=True)
    assert times(result, 0) == [(0, 0, 1), (1, 1, 2), (2, 1.75, 2.75), (3, 2.75, 3.75)]


def test_ops_that_wait_for_their_time_only() -> None:
    """B is handed on 1 s after the step's begin, while A is sent, C 3.5 s after it; gap 1 s."""
    step = workload_of(
        down(2), replace(down(1), release=1.0), replace(down(1), release=3.5), gap=1.0
    )
    result = simulate_literally(step, plain_system(1, 1, 1.0), once(1, 2), keep_chunks=True)
    assert times(result, 0) == [
        *((0, 0, 2), (1, 2, 3), (2, 3.5, 4.5)),
        *((0, 5.5, 7.5), (1, 7.5, 8.5), (2, 9, 10)),
    ]


def test_the_gap_of_the_step_that_ended() -> None:
    """Steps of 1 and 2 s with gaps of 0.5 and 0.25 s, drawn 0, 1, 0."""
    step = replace(
        workload_of(compute(1)),
        seconds=np.array([[1.0], [2.0]]),
        gap=np.array([0.5, 0.25]),
        roots=np.zeros((2, 1), np.int64),
        release=np.zeros((2, 1)),
    )
    result = simulate_literally(step, plain_system(1, 1, 1.0), np.array([[0, 1, 0]]))
    assert result.step_begin.tolist() == [[0, 1.5, 3.75]]
    assert result.step_end.tolist() == [[1, 3.5, 4.75]]
    assert len(result.chunks) == 0


def with_worker_down(system: System, bandwidth: list[float]) -> System:
    """Return the system with other receiving ports of workers."""
    (server_down, _), (server_up, worker_up) = port_bandwidths(system.routes)
    return replace(
        system, routes=port_routes(server_down, server_up, np.array(bandwidth), worker_up)
    )


def test_a_narrow_port_of_a_worker_leaves_its_share_to_others() -> None:
    """Server 4 bytes/s, worker A 1: A has 1 and B 3; 6 bytes: B until 2, A until 6."""
    system = with_worker_down(plain_system(2, 1, 4.0), [1.0, 4.0])
    result = simulate_literally(workload_of(down(6)), system, once(2))
    assert result.step_end.tolist() == [[6], [2]]


def test_weights_are_those_of_the_step() -> None:
    """4 bytes/s for weights 1 and 3 in the first step: B's 6 bytes until 2, A has had 2 of 6.

    B's next weight is 1, as A's still is: 2 bytes/s each, A's 4 until 4. B has 2 of 6 left, and A
    begins its next: B until 5, and A, of whose 6 bytes 2 are there, alone until 6.
    """
    step = workload_of(down(6))
    system = replace(plain_system(2, 1, 4.0), weight=np.array([[1.0, 1.0], [3.0, 1.0]]))
    result = simulate_literally(step, system, once(2, 2))
    assert result.step_end.tolist() == [[4, 6], [2, 5]]


def test_endless_bandwidth() -> None:
    """Nothing limits worker A; B's own port does."""
    system = plain_system(2, 1, np.inf)
    system = with_worker_down(system, [np.inf, 2.0])
    result = simulate_literally(workload_of(down(6), compute(1, [0])), system, once(2))
    assert result.step_end.tolist() == [[1], [4]]


def test_speeds_are_of_workers_and_not_of_servers() -> None:
    step = workload_of(compute(3), update(5, [0]))
    system = replace(plain_system(2, 1, 1.0), speed=np.array([2.0, 0.5]))
    assert simulate_literally(step, system, once(2)).step_end.tolist() == [[6.5], [11]]


def test_background_flows_take_their_share_from_then_on() -> None:
    """3 bytes/s; two flows beside from 2 to 4: 9 bytes down are 6, then 2, then 1 at 3 bytes/s.

    One flow beside on the way up from 2 on: 3 bytes/s until 2, then 1.5 for the other 3.
    """
    system = replace(
        plain_system(1, 1, 3.0),
        background_times=np.array([2.0, 4.0]),
        background_down=np.array([2, 0]),
        background_up=np.array([1, 1]),
    )
    result = simulate_literally(workload_of(down(9), up(9)), system, once(), keep_chunks=True)
    assert times(result, 0) == [(1, 0, 4), (0, 0, pytest.approx(4 + 1 / 3))]


def test_workers_wait_for_a_core_in_turn() -> None:
    """Two updates of 2 s of each of two workers. On one core: A, B, A, B. On two: side by side."""
    step = workload_of(update(2), update(2))
    system = plain_system(2, 1, 1.0)
    for cores in (0, 2):
        result = simulate_literally(step, replace(system, cores=cores), once(2), keep_chunks=True)
        for worker in range(2):
            assert times(result, worker) == [(0, 0, 2), (1, 2, 4)]
    result = simulate_literally(step, replace(system, cores=1), once(2), keep_chunks=True)
    assert times(result, 0) == [(0, 0, 2), (1, 4, 6)]
    assert times(result, 1) == [(0, 2, 4), (1, 6, 8)]


def test_who_asked_first_for_a_core_has_it_first() -> None:
    """One core, updates of 2 s, asked for at 0, 1 and 0.5."""
    system = replace(plain_system(3, 1, 1.0, start=np.array([0.0, 1.0, 0.5])), cores=1)
    result = simulate_literally(workload_of(update(2)), system, once(3))
    assert result.step_end.tolist() == [[2], [6], [4]]


def test_each_server_has_cores_of_its_own() -> None:
    step = workload_of(update(2), update(3, server=1))
    system = replace(plain_system(2, 2, 1.0), cores=1)
    result = simulate_literally(step, system, once(2), keep_chunks=True)
    assert times(result, 0) == [(0, 0, 2), (1, 0, 3)]
    assert times(result, 1) == [(0, 2, 4), (1, 3, 6)]


def test_synchronous_workers_wait_for_the_last() -> None:
    """1 and 2 s of computing, gap 0.5: iterations of 2 s, next steps 0.5 s after."""
    step = workload_of(compute(1), gap=0.5)
    system = replace(plain_system(2, 1, 1.0), speed=np.array([1.0, 0.5]), backup=0)
    result = simulate_literally(step, system, once(2, 3))
    assert result.step_begin.tolist() == [[0, 2.5, 5], [0, 2.5, 5]]
    assert result.step_end.tolist() == [[1, 3.5, 6], [2, 4.5, 7]]
    assert result.accepted.all()


def test_a_backup_worker() -> None:
    """Steps of 1, 2 and 4 s; two of three are enough.

    Iterations end with B's steps at 2, 4 and 6. C ends at 4, after iteration 0, and begins one that
    is for iteration 2; it ends at 8 when that is over. Its last one ends at 12, and nobody is left
    to be waited for.
    """
    step = workload_of(compute(1))
    system = replace(plain_system(3, 1, 1.0), speed=np.array([1.0, 0.5, 0.25]), backup=1)
    result = simulate_literally(step, system, once(3, 3))
    assert result.step_begin.tolist() == [[0, 2, 4], [0, 2, 4], [0, 4, 8]]
    assert result.step_end.tolist() == [[1, 3, 5], [2, 4, 6], [4, 8, 12]]
    assert result.accepted.tolist() == [[True] * 3, [True] * 3, [False, False, True]]


def test_nothing_is_carried_out_after_the_end() -> None:
    """Steps of 2 s with gaps of 1: until 5, the second has ended and the third has not begun."""
    step = workload_of(down(2), gap=1.0)
    system = plain_system(1, 1, 1.0)
    result = simulate_literally(step, system, once(1, 4), until=5.0, keep_chunks=True)
    np.testing.assert_array_equal(result.step_begin, [[0, 3, np.nan, np.nan]])
    np.testing.assert_array_equal(result.step_end, [[2, 5, np.nan, np.nan]])
    assert len(result.chunks) == 2
    result = simulate_literally(step, system, once(1, 4), until=7.5)
    np.testing.assert_array_equal(result.step_begin, [[0, 3, 6, np.nan]])
    np.testing.assert_array_equal(result.step_end, [[2, 5, np.nan, np.nan]])


def test_events_at_one_time_are_in_the_order_of_workers_and_lanes() -> None:
    """All end at 2. The uplink's dependent computes before the server's and the downlink's last."""
    step = workload_of(
        *(down(2), compute(2), up(2), update(2)),
        *(compute(1, [3]), compute(1, [2]), compute(1, [0])),
    )
    result = simulate_literally(step, plain_system(2, 1, 2.0), once(2), keep_chunks=True)
    assert [(worker, op) for worker, op, _, _, end in rows(result) if end == 2] == [
        *((0, 0), (0, 1), (0, 2), (0, 3)),
        *((1, 0), (1, 1), (1, 2), (1, 3)),
    ]
    assert [op for op, begin, _ in times(result, 0) if begin >= 2] == [6, 5, 4]
