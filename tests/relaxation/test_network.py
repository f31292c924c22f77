"""Halo messages share ports as all messages do: by hand, and against an exact program."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed_reference import relaxed
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.io import mmwrite
from scipy.sparse import csr_array

from paracosm.cluster.cluster import Cluster, hierarchical, switch
from paracosm.cluster.link import Link, Packets
from paracosm.errors import InputError
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.run import relax, run_relaxation
from paracosm.rng import stream_keys
from paracosm.timing import parse_distribution
from paracosm.timing.compiled import uniform

TIMES, MESSAGES = 1, 3  # what the simulator's streams of random numbers are for

Arrivals = dict[tuple[int, int], list[tuple[float, int]]]
"""For (sender, reader) when messages are there, and the number of the update that they bring."""


def chain(n: int) -> tuple[csr_array, NDArray[np.float64]]:
    """Return a system in which row i reads rows i - 1 and i + 1."""
    A = np.diag(2.0 + np.arange(n)) - np.eye(n, k=1) - np.eye(n, k=-1)
    return csr_array(A), 1.0 + np.arange(n)


def by_hand(n: int, arrivals: Arrivals, until: int) -> NDArray[np.float64]:
    """Return the iterate of processors that update one row each at 1 s, 2 s, ..., `until`."""
    A, b = chain(n)
    values = [np.zeros(n)]
    for now in range(until):  # they read at `now`, and write a second later
        x = np.zeros(n)
        for i in range(n):
            known = 0.0
            for j in {i - 1, i + 1} & set(range(n)):
                numbers = [number for there, number in arrivals[j, i] if there <= now]
                known += values[max(numbers, default=0)][j]
            x[i] = (b[i] + known) / A[i, i]
        values.append(x)
    return values[until]


def simulated(n: int, cluster: Cluster, until: int) -> NDArray[np.float64]:
    A, b = chain(n)
    rows = [[i] for i in range(n)]
    return relax(
        A, b, pattern=rows, time=1, cluster=cluster, tolerance=None, max_time=until
    ).x  # fmt: skip


def both(*arrivals: tuple[float, int]) -> Arrivals:
    return {(0, 1): list(arrivals), (1, 0): list(arrivals)}


# 8 bytes at 16 B/s, and 0.25 s besides: 0.75 s of the ports; 0.5 s of latency.
LINK = Link(16.0, 0.5, 0.25)
SOON = both(*((t + 1.25, t) for t in range(1, 8)))
HELD = both((2.25, 1), (3.5, 2), (4.75, 3), (6.0, 4), (7.25, 5))

# The kernel is compiled for each rule of sharing, which takes longer than all else here. The rules
# themselves are held to plain programs in tests/network; so relaxations have one of them every day.
RULES = ("fair", *(pytest.param(rule, marks=pytest.mark.slow) for rule in ("serial", "packets")))

FAIR: list[tuple[dict[str, Any], Arrivals]] = [
    ({"sharing": "fair"}, SOON),
    ({"sharing": "fair", "pipelined": False}, HELD),
    ({"sharing": "fair", "duplex": "half"}, both((3.0, 1), (4.5, 2), (6.0, 3), (7.5, 5))),
    ({"bandwidth": inf}, both(*((t + 0.75, t) for t in range(1, 8)))),
    (
        {"bandwidth": inf, "latency": 1.0, "pipelined": False},
        both((2.25, 1), (3.5, 2), (4.75, 3), (6.0, 4), (7.25, 5)),
    ),
]
OTHERS: list[tuple[dict[str, Any], Arrivals]] = [
    ({"sharing": "serial"}, SOON),
    ({"sharing": "serial", "pipelined": False}, HELD),
    (
        {"sharing": "serial", "duplex": "half"},
        {
            (0, 1): [(2.25, 1), (3.75, 2), (5.25, 3), (6.75, 4)],
            (1, 0): [(3.0, 1), (4.5, 2), (6.0, 3), (7.5, 5)],
        },
    ),
    ({"sharing": Packets(4.0)}, SOON),
    (
        {"sharing": Packets(12.0), "duplex": "half"},
        {
            (0, 1): [(2.25, 1), (3.75, 2), (5.25, 3), (6.75, 4)],
            (1, 0): [(3.0, 1), (4.5, 2), (6.0, 3), (7.5, 5)],
        },
    ),
]
TWO = [*FAIR, *(pytest.param(*case, marks=pytest.mark.slow) for case in OTHERS)]


@pytest.mark.parametrize(("changes", "arrivals"), TWO)
def test_two_processors_by_hand(changes: dict[str, Any], arrivals: Arrivals) -> None:
    """A message of 8 bytes has the ports for 0.25 s + 8 B / (16 B/s) = 0.75 s.

    - Pipelined, both ways at once: what is written at t is there at t + 0.75 s + 0.5 s.
    - Not pipelined: a link is taken for 1.25 s: from 1 s, 2.25 s, 3.5 s, 4.75 s, 6 s on, each time
      with the newest value that waits; at 6 s that is the one of 5 s.
    - Half duplex, serial: the two have all ports by turns, 0 from 1 s, 1 from 1.75 s, 0 from 2.5 s
      (asked for at 2 s), 1 from 3.25 s, 0 from 4 s, 1 from 4.75 s, 0 from 5.5 s, 1 from 6.25 s. Who
      ends asks anew at once, with what waits: 1 at 5.5 s with the value of 5 s.
    - Half duplex, fair: both ask for 8 B + 0.25 s * 16 B/s = 12 B, at 8 B/s each: 1 s to 2.5 s, to
      4 s, to 5.5 s, to 7 s; at 5.5 s the value of 5 s waits.
    - Half duplex, packets: with a turn of 12 B as serial.
    - Without a limit of bandwidth: 0.25 s, or 0.25 s + 1 s where the latency holds.
    """
    cluster = switch(2, 0, replace(LINK, **changes))
    np.testing.assert_allclose(simulated(2, cluster, 7), by_hand(2, arrivals, 7), rtol=1e-13)


@pytest.mark.parametrize(("changes", "arrivals"), TWO)
@pytest.mark.parametrize("as_file", [True, False])
def test_keys_of_a_cluster_file_and_flags_by_hand(
    changes: dict[str, Any], arrivals: Arrivals, as_file: bool, tmp_path: Path
) -> None:
    """The same two, as a study says them: one row of a matrix file each, and a network in words."""
    link = {"bandwidth": "16B/s", "latency": "0.5s", "overhead": "0.25s", **changes}
    network: dict[str, Any] = {"workers": 2, **link}
    if as_file:
        network = {"cluster": {"topology": "switch", "workers": 2, "links": {"default": link}}}
    A, b = chain(2)
    mmwrite(tmp_path / "chain.mtx", A)
    np.save(tmp_path / "b.npy", b)
    config = RelaxConfig(
        matrix=tmp_path / "chain.mtx", rhs=str(tmp_path / "b.npy"), time="1s", tolerance=None,
        max_time="7s", **network,
    )  # fmt: skip
    found = run_relaxation(config).result.x
    np.testing.assert_allclose(found, by_hand(2, arrivals, 7), rtol=1e-13)


@pytest.mark.parametrize("rule", RULES)
def test_ports_of_the_one_in_the_middle_by_hand(rule: str) -> None:
    """Three in a chain, 8 bytes at 8 B/s; 1 sends to and hears from both others.

    Fair: two messages share a port, so each takes 2 s: 1 s to 3 s, to 5 s (with the value of 2 s),
    to 7 s (with that of 4 s; what is written at 5 s comes after the end).

    Serial: 0 and 1 exchange from 1 s to 2 s, then 1 and 2 to 3 s, and so on by turns. The first
    bring the values of 1 s, 2 s (asked for at 2 s), 3 s (asked for at 4 s), the second those of
    1 s, 2 s (asked for at 3 s) and 4 s (asked for at 5 s). Packets, a message in a turn: the same.
    """
    near = [(2.0, 1), (4.0, 2), (6.0, 3)]
    far = [(3.0, 1), (5.0, 2), (7.0, 4)]
    fair = dict.fromkeys([(0, 1), (1, 0), (1, 2), (2, 1)], far)
    serial = {(0, 1): near, (1, 0): near, (1, 2): far, (2, 1): far}
    sharing: Any = Packets(8.0) if rule == "packets" else rule
    cluster = switch(3, 0, Link(8.0, sharing=sharing))
    arrivals = fair if rule == "fair" else serial
    np.testing.assert_allclose(simulated(3, cluster, 8), by_hand(3, arrivals, 8), rtol=1e-13)


@pytest.mark.parametrize("sharing", RULES[:2])
def test_ports_of_groups_by_hand(sharing: Any) -> None:
    """Four in a chain, in two groups: 1 sends to 0 and to 2 through a port each, 1 s a message."""
    link = Link(8.0, sharing=sharing)
    cluster = hierarchical(4, 2, link, link)
    soon = [(t + 1.0, t) for t in range(1, 8)]
    arrivals = {(i, j): soon for i in range(4) for j in (i - 1, i + 1)}
    np.testing.assert_allclose(simulated(4, cluster, 7), by_hand(4, arrivals, 7), rtol=1e-13)


def test_a_slow_link_leaves_the_port_to_others_by_hand() -> None:
    """Ports of 16 B/s; 0 and 1 are joined by 4 B/s: 2 s, as above; 1 and 2 have 12 B/s: 2/3 s."""
    cluster = replace(switch(3, 0, Link(16.0)), overrides=(("worker0", "worker1", Link(4.0)),))
    slow = [(3.0, 1), (5.0, 2), (7.0, 4)]
    soon = [(t + 2 / 3, t) for t in range(1, 8)]
    arrivals = {(0, 1): slow, (1, 0): slow, (1, 2): soon, (2, 1): soon}
    np.testing.assert_allclose(simulated(3, cluster, 8), by_hand(3, arrivals, 8), rtol=1e-13)


def random_cluster(data: st.DataObject, processors: int, sharing: Any) -> Cluster:
    def link(**given: Any) -> Link:
        return Link(
            bandwidth=data.draw(st.sampled_from([8.0, 24.0, 64.0, 64.0, inf])),
            latency=data.draw(st.sampled_from([0.0, 0.5, 1.25])),
            overhead=data.draw(st.sampled_from([0.0, 0.125])),
            duplex=data.draw(st.sampled_from(["full", "half"])),
            pipelined=data.draw(st.booleans()),
            **given,
        )

    cluster = switch(processors, 0, link(sharing=sharing))
    if processors == 4 and data.draw(st.booleans()):
        inner, outer = link(sharing=sharing), link(sharing=sharing)
        cluster = hierarchical(4, 2, inner, outer)
    if data.draw(st.booleans()):
        own = link(sharing=sharing)
        cluster = replace(cluster, overrides=(("worker0", "worker1", own),))
    return cluster


@pytest.mark.parametrize("sharing", RULES[:2])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_messages_that_share_travel_as_in_an_exact_program(
    sharing: str, data: st.DataObject
) -> None:
    n = data.draw(st.integers(3, 10))
    processors = data.draw(st.integers(2, min(n, 4)))
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    dense = np.where(rng.random((n, n)) < 0.5, rng.normal(size=(n, n)), 0)
    np.fill_diagonal(dense, 0)
    np.fill_diagonal(dense, 0.1 + 1.2 * abs(dense).sum(axis=1))
    A, b, x0 = csr_array(dense), rng.normal(size=n), rng.normal(size=n)
    blocks = np.array_split(rng.permutation(n), processors)
    cluster = random_cluster(data, processors, sharing)
    time = data.draw(st.sampled_from(["1s", "750ms", "normal(1, 0.2)", "uniform(0.5, 3)"]))
    jitter = data.draw(st.sampled_from([None, None, "exponential(2)"]))
    read = data.draw(st.sampled_from(["start", "completion"]))
    seed = data.draw(st.integers(0, 100))

    def draw(keys: Any, text: str, index: int, number: int) -> float:
        u = np.array([uniform(keys[index], number)])
        return float(parse_distribution(text).from_uniform(u)[0])

    link_keys, time_keys = stream_keys(seed, MESSAGES, 30), stream_keys(seed, TIMES, processors)
    test, every = data.draw(
        st.sampled_from([("tree", 0), ("tree", 1), ("tree", 3), ("snapshot", 1), ("snapshot", 3)])
    )
    x, updates, messages, told = relaxed(
        A, b, x0, blocks, cluster, lambda who, number: draw(time_keys, time, who, number),
        lambda link, number: draw(link_keys, jitter, link, number) if jitter else 0.0, 20.0,
        read == "start", **{test: every},
    )  # fmt: skip
    test = f"{test}({every})" if every else "ideal"
    given: dict[str, Any] = {
        "pattern": blocks, "time": time, "read": read, "seed": seed, "cluster": cluster,
        "latency_jitter": jitter, "detect": test, "max_time": 20.0,
    }  # fmt: skip
    found = relax(A, b, x0, tolerance=None, **given)
    np.testing.assert_allclose(found.x, x, rtol=1e-10, atol=1e-12)
    order = np.lexsort((found.spans.processor, found.spans.end))[: len(updates)]
    ends, who = np.array(updates).T
    np.testing.assert_allclose(found.spans.end[order], ends, rtol=1e-14)
    assert found.spans.processor[order].tolist() == who.tolist()
    assert found.updates.sum() == len(updates)
    names = [node.name for node in cluster.nodes]
    links = [cluster.link(*ends) for ends in permutations(names, 2)]
    # A link without a limit is looked at when somebody uses it: what could have left since is not
    # counted as sent.
    unseen = len(links) if any(link.bandwidth == inf for link in links) else 0
    assert messages - unseen <= found.messages <= messages
    known = [total for _, total, _ in told if 1e-12 < total < inf]  # more than rounding errors
    if known:
        first = float(np.linalg.norm(b - A @ x0))
        limit = min(1.0001 * float(np.sqrt(np.median(known))), 0.9 * first)
        small = [(now, true) for now, total, true in told if total <= limit**2]
        right = [now for now, true in small if true <= limit**2]
        found = relax(A, b, x0, tolerance=limit, **given)
        exact = 0 if time in ("1s", "750ms") else 1e-12
        assert found.virtual_time == pytest.approx(right[0] if right else 20.0, rel=exact, abs=0)
        wrong = [now for now, _ in small if not right or now < right[0]]
        assert found.false_detections == len(wrong)


def test_more_than_the_clock_of_the_network_can_count_is_refused() -> None:
    A, b = chain(2)
    cluster = switch(2, 0, Link(8.0))
    with pytest.raises(InputError, match="at most 106 days") as raised:
        relax(A, b, processors=2, time=1e6, cluster=cluster, tolerance=None, max_sweeps=100)
    assert "\n" not in str(raised.value)


GIVEN: dict[str, Any] = {"problem": "laplace2d:8", "processors": 4, "time": "10s", "timeline": 0}


def test_what_if_one_processor_is_slower() -> None:
    config = RelaxConfig(**GIVEN, what_if="worker 3: compute 10x slower")
    config.check()  # as the command does before a run
    changed = run_relaxation(config)
    plain = run_relaxation(RelaxConfig(**GIVEN)).summary
    slow = run_relaxation(RelaxConfig(**GIVEN, speeds="1,1,1,0.1"))
    assert changed.result.x.tobytes() == slow.result.x.tobytes()
    assert changed.summary["virtual_time"] == slow.summary["virtual_time"] > plain["virtual_time"]
    assert changed.summary["what_if"] == ["worker 3: compute 10x slower"]
    assert changed.summary["unchanged"]["virtual_time"] == plain["virtual_time"]
    assert "unchanged" not in plain


def test_what_if_links_are_faster() -> None:
    given = {**GIVEN, "bandwidth": "4B/s"}
    changed = run_relaxation(RelaxConfig(**given, what_if="links: bandwidth 4x")).summary
    faster = run_relaxation(RelaxConfig(**{**given, "bandwidth": "16B/s"})).summary
    assert changed["virtual_time"] == faster["virtual_time"]
    assert changed["unchanged"]["virtual_time"] > faster["virtual_time"]
    assert changed["cluster"]["links"]["bandwidth"] == "128 bit/s"
    assert changed["cluster"]["links"]["sharing"] == "fair"


@pytest.mark.parametrize(
    ("memory", "change", "words"),
    [
        ("shared", "links: bandwidth 2x", "a relaxation in shared memory cannot change that"),
        ("distributed", "all_reduce: +2 ms", "a relaxation cannot change that"),
        ("distributed", "worker 4: compute 2x slower", "there are workers 0 to 3"),
        ("distributed", "links: bandwidth 2x", "bandwidth is unlimited"),
    ],
)
def test_changes_that_cannot_be(memory: str, change: str, words: str) -> None:
    config = RelaxConfig(**GIVEN, memory=memory, what_if=change)
    with pytest.raises(InputError, match=words) as raised:
        config.check()
    assert change in str(raised.value)
