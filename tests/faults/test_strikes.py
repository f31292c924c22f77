"""Faults of a training, one after the other, and the periods for which they last."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.faults.fault import Fault, parse_fault
from paracosm.faults.strikes import Periods, Strike, strikes

WORKERS, SERVERS = ("worker0", "worker1", "worker2"), ("server0",)


def struck(*texts: str, seed: int = 0) -> Iterator[Strike]:
    faults = [
        (parse_fault(text), np.random.default_rng((seed, number)))
        for number, text in enumerate(texts)
    ]
    return strikes(faults, WORKERS, SERVERS)


def test_faults_strike_in_the_order_of_their_times() -> None:
    found = list(
        struck(
            "stop(2s) on worker 1 at 5s",
            "lose(5%)",
            "slow(2x, 1s) on server 0 at 3s",
            "stop on worker 0 at 3s",
        )
    )
    assert [(each.time, each.node) for each in found] == [
        *((0, ""), (3, "server0"), (3, "worker0"), (5, "worker1"))
    ]
    assert [each.end for each in found] == [float("inf"), 4, float("inf"), 7]


def test_random_workers_are_struck_at_exponential_intervals() -> None:
    found = list(islice(struck("stop(1s) every 10s"), 3000))
    gaps = np.diff([0.0, *(each.time for each in found)])
    assert gaps.mean() == pytest.approx(10, rel=0.06)
    for worker in WORKERS:
        share = sum(each.node == worker for each in found) / 3000
        assert share == pytest.approx(1 / 3, abs=0.03)
    assert found[:50] == list(islice(struck("stop(1s) every 10s"), 50))


def test_another_fault_moves_no_strike() -> None:
    alone = list(islice(struck("stop(1s) every 10s"), 40))
    both = islice(struck("stop(1s) every 10s", "slow(2x, 1s) every 3s"), 400)
    assert alone == [each for each in both if each.fault.model.name == "stop"][:40]


def test_periods_that_overlap_multiply() -> None:
    """Twofold from 2 s to 6 s, threefold from 4 s to 5 s."""

    def periods() -> Periods:
        return Periods(struck("slow(2x, 4s) on worker 0 at 2s", "slow(3x, 1s) on worker 0 at 4s"))

    assert periods().stretched("worker0", 0.0, 1.5) == 1.5
    assert periods().stretched("worker0", 0.0, 3.0) == pytest.approx(4.0)
    assert periods().stretched("worker0", 4.0, 0.1) == pytest.approx(0.6)
    # 2 s, 1 s of work until 4 s, 1/6 until 5 s, 1/2 until 6 s, and the rest
    assert periods().stretched("worker0", 0.0, 5.0) == pytest.approx(6 + 5 - 2 - 1 - 1 / 6 - 1 / 2)
    assert periods().stretched("worker1", 3.0, 5.0) == 5.0
    assert periods().stretched("worker0", 6.0, 5.0) == 5.0


@given(
    st.lists(
        st.tuples(st.floats(0, 20), st.floats(0.01, 9), st.floats(1.1, 9)), min_size=1, max_size=6
    ),
    st.lists(st.floats(0.01, 5), min_size=1, max_size=8),
)
def test_work_is_conserved(slow: list[tuple[float, float, float]], works: list[float]) -> None:
    """Whatever is computed one after the other, the rate summed over the time is the work."""
    texts = [f"slow({f!r}x, {length!r}s) on worker 0 at {at!r}s" for at, length, f in slow]
    periods, now = Periods(struck(*texts)), 0.0
    for work in works:
        end = now + periods.stretched("worker0", now, work)
        edges = {edge for at, length, _ in slow for edge in (at, at + length) if now < edge < end}
        marks = [now, *sorted(edges), end]
        done = 0.0
        for begin, until in pairwise(marks):
            middle = (begin + until) / 2
            factor = np.prod([f for at, length, f in slow if at <= middle < at + length])
            done += (until - begin) / float(factor)
        assert done == pytest.approx(work, rel=1e-6, abs=1e-9)
        now = end


def test_what_lasts_at_an_instant() -> None:
    periods = Periods(struck("lose(5%, 2s) at 1s", "lose(9%) on worker 1 at 2s"))

    def percents(now: float, *nodes: str) -> list[float]:
        faults: list[Fault] = periods.at(now, *nodes)
        return sorted(fault.model.percent for fault in faults)  # type: ignore[attr-defined]

    assert percents(0.5, "worker1", "") == []
    assert percents(1.0, "worker1", "") == [5]
    assert percents(2.5, "worker1", "") == [5, 9]
    assert percents(2.5, "worker0", "") == [5]
    assert percents(3.0, "worker1", "server0", "") == [9]


def test_short_periods_cost_what_they_are() -> None:
    """Twofold for 1 ms about every 10 ms of 10 s: a share of 1 / 11 of the work takes twice."""
    periods = Periods(struck("slow(2x, 1ms) on worker 0 every 10ms"))
    spent = periods.stretched("worker0", 0.0, 10.0)
    assert 900 < periods.begun < 1300
    assert spent == pytest.approx(10 * (1 + 0.0476), rel=0.01)


@pytest.mark.parametrize(
    "text",
    [
        "slow(2x, 1s) on worker 0 every 1ns",
        pytest.param("slow(2x, 1ns) on worker 0 every 1ns", marks=pytest.mark.slow),
        pytest.param("slow(2x, 1ns) on worker 1 every 1ns", marks=pytest.mark.slow),
        pytest.param("slow(1.0001x, 1s) every 1us", marks=pytest.mark.slow),
    ],
)
def test_periods_without_end_are_given_up(text: str) -> None:
    """They are by what is looked at, in operations, not by a clock; progress begins anew."""
    periods = Periods(struck(text))
    with pytest.raises(InputError, match="the job makes no progress") as refused:
        periods.stretched("worker0", 0.0, 1000.0)
    assert text in str(refused.value)
    periods.has_advanced()
    assert periods.at(0.0, "server0") == []
