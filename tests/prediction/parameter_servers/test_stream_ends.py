"""Ends of multiplexed streams: by hand, and against the literal simulation of the same queue."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_systems import plain_system
from small_workloads import Op, once, workload_of
from steps_reference import simulate_literally

from paracosm.errors import InputError
from paracosm.prediction.parameter_servers.stream_fit import (
    StreamModel,
    Streams,
    downlink_streams,
    end_errors,
    stream_ends,
)
from paracosm.profiling.jobs import DOWNLINK, WORKER, JobProfile


def streams_of(
    size: Sequence[float],
    begin: Sequence[float] | None = None,
    server: Sequence[int] | None = None,
) -> Streams:
    """Return the streams of one step."""
    n = len(size)
    return Streams(
        first=np.array([0, n]),
        server=np.zeros(n, np.int64) if server is None else np.array(server, np.int64),
        size=np.array(size, float),
        begin=np.zeros(n) if begin is None else np.array(begin, float),
        end=np.ones(n),
    )


def ends(streams: Streams, **model: float) -> list[float]:
    return [round(float(end), 9) for end in stream_ends(streams, StreamModel(**model))]


def test_streams_larger_than_the_window_end_in_a_second_round() -> None:
    """Sizes 5, 2, 4, 3 and WIN = 3: 0-3, 3-5, 5-8, 8-11, then the rest: 2 until 13, 1 until 14."""
    assert ends(streams_of([5, 2, 4, 3]), bandwidth=1, window=3) == [13, 5, 14, 11]


def test_without_a_window_streams_are_sent_whole_in_order() -> None:
    assert ends(streams_of([5, 2, 4]), bandwidth=2) == [2.5, 3.5, 5.5]


def test_the_second_turn_runs_to_the_end_however_much_is_left() -> None:
    """10 bytes in turns of 2: 0-2, the other one 2-4, then 8 at once."""
    assert ends(streams_of([10, 2]), bandwidth=1, window=2) == [12, 4]


def test_a_stream_that_comes_later_waits_for_the_turn_and_not_for_the_rest() -> None:
    """4 bytes at 0, WIN = 2: until 2; 1 byte came at 1: until 3; the rest until 5. Idle until 7."""
    streams = streams_of([4, 1, 2], [0, 1, 7])
    assert ends(streams, bandwidth=1, window=2) == [5, 3, 9]


def test_parsing_keeps_nothing_busy() -> None:
    assert ends(streams_of([4, 2]), bandwidth=1, alpha=0.5, beta=0.25) == [6.25, 7.25]


def test_two_servers_share_the_workers_port_while_both_send() -> None:
    """At 2 bytes/s: 1 each until 2, when the 2 bytes of server 1 are there; 2 left: until 3."""
    assert ends(streams_of([4, 2], server=[0, 1]), bandwidth=2) == [3, 2]


def test_a_burst_is_free_and_comes_back_while_nothing_is_sent() -> None:
    """3 bytes at once at 0, the other 1 until 1. Idle until 3: 2 tokens are back. 5 - 2 until 6."""
    streams = streams_of([4, 5], [0, 3])
    assert ends(streams, bandwidth=1, burst=3) == [1, 6]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_ends_are_those_of_the_literal_simulation(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12))
    servers = data.draw(st.integers(1, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    size = rng.uniform(1, 100, n)
    begin = np.sort(rng.uniform(0, 20, n))
    begin[0] = 0.0
    server = rng.integers(servers, size=n)
    window = data.draw(st.sampled_from([inf, 5.0, 30.0, 80.0]))
    ops = [Op(DOWNLINK, size[op], server=int(server[op]), release=begin[op]) for op in range(n)]
    system = plain_system(1, servers, 7.0, window=window)
    simulated = simulate_literally(workload_of(*ops), system, once(), keep_chunks=True)
    last = np.zeros(n)
    for chunk in simulated.chunks:
        last[chunk["op"]] = max(last[chunk["op"]], chunk["end"])
    streams = streams_of(size.tolist(), begin.tolist(), server.tolist())
    assert stream_ends(streams, StreamModel(7.0, window)) == pytest.approx(last)


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=20), st.floats(1, 1e6))
@settings(deadline=None)
def test_the_last_end_is_that_of_all_bytes_whatever_the_window(
    size: list[float], window: float
) -> None:
    found = stream_ends(streams_of(size), StreamModel(1e3, window))
    assert found.max() == pytest.approx(sum(size) / 1e3)
    assert (found >= np.array(size) / 1e3 * (1 - 1e-9)).all()


def profile_of(begin: list[list[float]], end: list[list[float]], size: list[int]) -> JobProfile:
    """Return a profile of downlink streams, and an op of the worker that waits for none."""
    ops, steps = len(size) + 1, len(begin)
    names = tuple(f"op{at}" for at in range(ops))
    return JobProfile(
        names=names,
        kinds=names,
        resource=np.array([DOWNLINK] * len(size) + [WORKER], np.int8),
        server=np.zeros(ops, np.int64),
        size=np.array([*size, 0]),
        first_dependency=np.zeros(ops + 1, np.int64),
        dependencies=np.zeros(0, np.int64),
        begin=np.array([[*row, 0.0] for row in begin]),
        end=np.array([[*row, 1.0] for row in end]),
        step_begin=np.arange(steps) * 100.0,
        step_end=np.arange(steps) * 100.0 + 99,
    )


def test_streams_of_a_profile_are_in_the_order_of_their_begins_without_those_not_traced() -> None:
    nan = float("nan")
    profile = profile_of(
        begin=[[2, 1, 1], [0, nan, 5]], end=[[9, 4, 6], [3, nan, 8]], size=[30, 10, 20]
    )
    streams = downlink_streams(profile)
    assert streams.first.tolist() == [0, 3, 5]
    assert streams.size.tolist() == [10, 20, 30, 30, 20]
    assert streams.begin.tolist() == [1, 1, 2, 0, 5]
    assert streams.end.tolist() == [4, 6, 9, 3, 8]


def test_errors_are_relative_to_the_recorded_ends() -> None:
    """At 10 bytes/s: ends 2, 3 and 6 against 4, 4 and 6; and 3, 7 against 3, 10."""
    profile = profile_of(
        begin=[[2, 1, 1], [0, 2, 5]], end=[[6, 4, 4], [3, 4, 10]], size=[30, 10, 10]
    )
    found = end_errors(downlink_streams(profile), StreamModel(10.0))
    off = [0.5, 0.25, 0, 0, 0, 0.4]
    assert found.streams == 6
    assert found.average == pytest.approx(np.mean(off))
    assert found.median == pytest.approx(np.median(off))
    assert found.percentile_95 == pytest.approx(np.percentile(off, 95))
    assert found.maximum == pytest.approx(0.5)


def test_a_profile_without_downlink_streams_is_refused() -> None:
    with pytest.raises(InputError, match="no downlink stream"):
        downlink_streams(profile_of(begin=[[]], end=[[]], size=[]))


def test_parsing_weighs_more_on_a_faster_link() -> None:
    """Li et al., section 4.3: a tenth of a transfer at 1 Gbit/s is 52.6 % of it at 10 Gbit/s."""
    size = 1e6
    alpha = (size / 125e6) / 9 / size  # so that 1 part in 10 of transfer and parsing is parsing
    whole = {
        bandwidth: stream_ends(streams_of([size]), StreamModel(bandwidth=bandwidth, alpha=alpha))[0]
        for bandwidth in (125e6, 1250e6)
    }
    shares = [alpha * size / each for each in whole.values()]
    assert shares == pytest.approx([0.1, 0.526], abs=1e-3)
