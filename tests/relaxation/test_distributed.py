"""Distributed memory: halo values travel as messages. Which share ports: `test_network.py`."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from paracosm.cluster import Cluster, Link, switch
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.problems import load_problem
from paracosm.relaxation.run import relax, run_relaxation
from paracosm.rng import stream_keys
from paracosm.timing import parse_distribution
from paracosm.timing.compiled import uniform

Array = NDArray[np.float64]
TIMES, MESSAGES = 1, 3  # what the simulator's streams of random numbers are for


def joined(workers: int, latency: float = 0.0, bandwidth: float = inf, **more: Any) -> Cluster:
    return switch(workers=workers, servers=0, link=Link(bandwidth, latency, **more))


@dataclass
class Channel:
    """A link of the reference: one message on the wire at a time, the newest values wait."""

    rows: Array
    occupancy: float
    latency: float
    jitter: Any
    ordered: bool
    free_at: float = -inf
    last_arrival: float = -inf
    waiting: tuple[int, Array] | None = None
    sent: int = 0
    on_the_way: list[tuple[float, int, Array]] = field(default_factory=list)
    known: int = -1  # how many of the sender's writes the reader knows, less one
    writes: list[int] = field(default_factory=list)

    def leave(self, now: float) -> None:
        if self.waiting is None or self.free_at > now:
            return
        write, values = self.waiting
        self.free_at += self.occupancy
        arrival = self.free_at + self.latency + self.jitter(self.sent)
        if self.ordered:
            arrival = max(arrival, self.last_arrival)
        self.last_arrival = arrival
        self.on_the_way.append((arrival, write, values))
        self.sent += 1
        self.waiting = None

    def send(self, now: float, values: Array, updates: int) -> None:
        self.leave(now)
        self.writes.append(updates)
        self.waiting = (len(self.writes) - 1, values)
        self.free_at = max(self.free_at, now) if self.free_at <= now else self.free_at
        self.leave(now)

    def receive(self, now: float, x: Array) -> None:
        self.leave(now)
        for arrival, write, values in self.on_the_way:
            if arrival <= now and write > self.known:
                self.known = write
                x[self.rows] = values

    def oldest_unknown(self, updates: int) -> int:
        return self.writes[self.known + 1] if self.known + 1 < len(self.writes) else updates


def reference(
    A: csr_array,
    b: Array,
    x0: Array,
    blocks: list[Array],
    duration: Any,
    channels: Any,
    until: float,
    at_start: bool,
) -> tuple[Array, int, list[int]]:
    """Return x, the messages sent, and the staleness of all updates; a heap, and plain arrays."""
    knows = [x0.copy() for _ in blocks]
    counts, pending = [0] * len(blocks), [np.zeros(0)] * len(blocks)
    read_at, updates, staleness = [0] * len(blocks), 0, []

    def read(who: int, now: float) -> None:
        read_at[who] = updates
        for (_, target), channel in channels.items():
            if target == who:
                channel.receive(now, knows[who])
                read_at[who] = min(read_at[who], channel.oldest_unknown(updates))
        rows, x = blocks[who], knows[who]
        pending[who] = x[rows] + (b - A @ x)[rows] / A.diagonal()[rows]

    def write(who: int, now: float) -> None:
        nonlocal updates
        knows[who][blocks[who]] = pending[who]
        for (source, _), channel in channels.items():
            if source == who:
                channel.send(now, knows[who][channel.rows], updates)
        staleness.append(updates - read_at[who])
        updates += 1
        counts[who] += 1
        heapq.heappush(due, (now + duration(who, counts[who]), who))

    due = [(duration(who, 0), who) for who in range(len(blocks))]
    heapq.heapify(due)
    for who in range(len(blocks)):
        read(who, 0.0)
    while due[0][0] <= until:
        now = due[0][0]
        together = []
        while due[0][0] == now:
            _, who = heapq.heappop(due)
            if not at_start:
                read(who, now)
            write(who, now)
            together.append(who)
        if at_start:
            for who in together:
                read(who, now)
    x = np.empty(b.size)
    for who, rows in enumerate(blocks):
        x[rows] = knows[who][rows]
    return x, sum(channel.sent for channel in channels.values()), staleness


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_messages_travel_as_in_plain_python(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 12))
    processors = data.draw(st.integers(2, min(n, 4)))
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    dense = np.where(rng.random((n, n)) < 0.5, rng.normal(size=(n, n)), 0)
    np.fill_diagonal(dense, 0)
    np.fill_diagonal(dense, 0.1 + 1.2 * abs(dense).sum(axis=1))
    A, b, x0 = csr_array(dense), rng.normal(size=n), rng.normal(size=n)
    blocks = np.array_split(rng.permutation(n), processors)
    latency = data.draw(st.sampled_from([0.0, 1.0, 2.5, 7.0]))
    overhead = data.draw(st.sampled_from([0.0, 0.5]))
    jitter = data.draw(st.sampled_from([None, "exponential(4)", "uniform(0, 20)"]))
    ordered = jitter is None or data.draw(st.booleans())
    time = data.draw(st.sampled_from(["1s", "2s", "normal(1, 0.2)", "uniform(0.5, 3)"]))
    read = data.draw(st.sampled_from(["start", "completion"]))
    seed = data.draw(st.integers(0, 100))

    owner = np.empty(n, int)
    for who, rows in enumerate(blocks):
        owner[rows] = who
    wanted = {
        (int(owner[j]), int(owner[i]), int(j))
        for i, j in zip(*np.nonzero(dense), strict=True)
        if owner[i] != owner[j]
    }
    pairs = sorted({(source, target) for source, target, _ in wanted})
    drawn = parse_distribution(jitter or "0")

    def draw(keys: Any, distribution: Any, index: int, number: int) -> float:
        return float(distribution.from_uniform(np.array([uniform(keys[index], number)]))[0])

    link_keys, time_keys = stream_keys(seed, MESSAGES, len(pairs)), stream_keys(seed, TIMES, 4)
    channels = {}
    for k, pair in enumerate(pairs):
        rows = np.array(sorted(j for source, target, j in wanted if (source, target) == pair))
        channels[pair] = Channel(
            rows, overhead, latency,
            lambda number, k=k: draw(link_keys, drawn, k, number), ordered,
        )  # fmt: skip
    parsed = parse_distribution(time)
    x, messages, staleness = reference(
        A, b, x0, blocks, lambda who, number: draw(time_keys, parsed, who, number), channels, 40.0,
        read == "start",
    )  # fmt: skip
    found = relax(
        A, b, x0, pattern=blocks, time=time, read=read, seed=seed, tolerance=None, max_time=40.0,
        cluster=joined(processors, latency, overhead=overhead), latency_jitter=jitter,
        **({} if ordered else {"order": "overtaking"}),
    )  # fmt: skip
    np.testing.assert_allclose(found.x, x, rtol=1e-10, atol=1e-12)
    assert found.updates.sum() == len(staleness)
    assert found.staleness.most == max(staleness)
    assert found.staleness.mean == pytest.approx(np.mean(staleness))
    assert found.messages == messages


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 12),
    st.sampled_from(["10s", "normal(10, 1)", "lognormal(10, 1)"]),
    st.sampled_from(["jacobi", "gauss-seidel", "block-jacobi", "sor(0.9)"]),
    st.sampled_from(["start", "completion"]),
    st.sampled_from(["contiguous", "cyclic", "nonzeros"]),
    st.integers(0, 100),
)
def test_zero_latency_is_shared_memory(
    processors: int, time: str, update: str, read: str, pattern: str, seed: int
) -> None:
    problem = load_problem("convection-diffusion:7x9", start="random", seed=seed)
    given = {"time": time, "method": update, "read": read, "pattern": pattern, "seed": seed}
    shared = relax(problem, processors=processors, timeline=10_000, **given)
    messages = relax(problem, cluster=joined(processors), timeline=10_000, **given)
    assert shared.status == messages.status == "converged"
    assert shared.virtual_time == messages.virtual_time
    assert shared.updates.tolist() == messages.updates.tolist()
    assert shared.spans.end.tobytes() == messages.spans.end.tobytes()
    np.testing.assert_allclose(messages.x, shared.x, rtol=1e-10, atol=1e-13)
    assert shared.staleness.mean == messages.staleness.mean
    assert shared.staleness.counts.tolist() == messages.staleness.counts.tolist()


def test_two_processors_a_message_apart_by_hand() -> None:
    """x_i(t + 1) = (b_i - a_ij x_j(t - 2)) / a_ii: a message of 1.5 s, sent at t - 2, is there."""
    A, b = csr_array([[2.0, -1.0], [-1.0, 3.0]]), np.array([1.0, 2.0])
    history = [np.zeros(2)] * 3  # x(-2), x(-1), x(0)
    for _ in range(12):
        old = history[-3]
        history.append(np.array([(b[0] + old[1]) / 2, (b[1] + old[0]) / 3]))
    found = relax(A, b, time=1, cluster=joined(2, 1.5), tolerance=None, max_time=12)
    np.testing.assert_allclose(found.x, history[-1], rtol=1e-14)
    assert found.messages == 24
    assert found.bytes_sent == 24 * 8


def test_every_update_is_sent_to_all_who_read_it() -> None:
    """Strips of a grid: each processor writes to its neighbours, a row of 8 values each time."""
    problem = load_problem("laplace2d:8")
    found = relax(problem, cluster=joined(4, 3.0), time="normal(10, 2)", max_sweeps=50)
    receivers = np.array([1, 2, 2, 1])
    assert found.messages == (found.updates * receivers).sum()
    assert found.bytes_sent == found.messages * 8 * 8


def test_a_slow_link_sends_less_often_and_the_newest() -> None:
    """Two messages of 64 B share a port of 1 B/s: 128 s each; of updates each 10 s, the newest."""
    problem = load_problem("laplace2d:8")
    slow = relax(problem, cluster=joined(4, 0.0, 1.0), time=10, max_time=6400, tolerance=None)
    assert slow.messages == pytest.approx(6 * 6400 / 128, abs=6)
    fast = relax(problem, cluster=joined(4, 0.0, 1e3), time=10, max_time=6400, tolerance=None)
    assert fast.messages == 6 * 640
    assert slow.residual > fast.residual


def test_latency_costs_sweeps_and_more_of_it_more() -> None:
    problem = load_problem("laplace2d:10")
    given = {"time": "normal(10, 1)", "seed": 2}
    sweeps = [
        relax(problem, cluster=joined(10, latency), **given).sweeps[-1]
        for latency in (0, 10, 30, 100)
    ]
    assert sweeps == sorted(sweeps)
    assert sweeps[-1] > 2 * sweeps[0]


def test_messages_that_overtake_bring_newer_values() -> None:
    problem = load_problem("laplace2d:10")
    given = {"time": "normal(10, 1)", "cluster": joined(10), "latency_jitter": "exponential(100)"}
    runs = {
        order: [relax(problem, order=order, seed=s, **given) for s in range(5)]
        for order in ("ordered", "overtaking")
    }
    mean = {key: np.mean([run.staleness.mean for run in found]) for key, found in runs.items()}
    assert mean["overtaking"] < 0.8 * mean["ordered"]
    sweeps = {key: np.mean([run.sweeps[-1] for run in found]) for key, found in runs.items()}
    assert sweeps["overtaking"] < sweeps["ordered"]


def test_speeds_of_the_cluster_divide_the_durations() -> None:
    cluster = switch(workers=4, servers=0, link=Link(), speeds=[1.0, 2.0, 0.5, 1.0])
    problem = load_problem("laplace2d:8")
    found = relax(problem, cluster=cluster, time=10, tolerance=None, max_time=200)
    assert found.updates.tolist() == [20, 40, 10, 20]


def test_flags_of_the_network() -> None:
    config = RelaxConfig(
        problem="laplace2d:8", processors=4, time="10s", memory="distributed", latency="15s",
        order="overtaking", latency_jitter="exponential(5)", max_time=500, tolerance=None,
    )  # fmt: skip
    run = run_relaxation(config, seed=3)
    same = relax(
        load_problem("laplace2d:8", seed=3), time="10s", cluster=joined(4, 15.0),
        order="overtaking", latency_jitter="exponential(5)", max_time=500, tolerance=None, seed=3,
    )  # fmt: skip
    assert run.result.x.tobytes() == same.x.tobytes()
    assert run.summary["memory"] == "distributed"
    assert run.summary["messages"] == {"count": same.messages, "bytes": same.bytes_sent}
