"""What being in step costs, whether it lasts, and its measure: by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from profiled_jobs import job_of, serial_profile

from paracosm.prediction.parameter_servers.synchronized import coherence, find_band
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile


def with_a_tail(tail: float) -> JobProfile:
    """Return a step of: pull 1 s, compute 2 s, push 1 s, update 1 s; the update also waits for a
    second pull, which is asked for with the first one and comes behind it."""
    return serial_profile(
        names=("pull", "tail", "compute", "push", "update"),
        kinds=("Recv", "Recv", "MatMul", "Recv", "Apply"),
        resource=np.array([DOWNLINK, DOWNLINK, WORKER, UPLINK, SERVER], np.int8),
        server=np.zeros(5, np.int64),
        size=np.array([1000, round(1000 * tail), 0, 1000, 0]),
        first_dependency=np.array([0, 0, 0, 1, 2, 4]),
        dependencies=np.array([0, 2, 1, 3]),
        begin=np.array([[0.0, 0.0, 1.0, 3.0, 4.0]]),
        end=np.array([[1.0, 1.0, 3.0, 4.0, 5.0]]),
    )


def test_two_workers_synchronized_and_spread() -> None:
    """Synchronized they take 7 s, spread 5 s; a lead is shared out evenly and stays what it is."""
    band = find_band(job_of(serial_profile()), 2, 0, 0.38)
    assert band is not None
    assert band.synchronized == pytest.approx(2 / 7)
    assert band.spread == pytest.approx(2 / 5)
    assert band.drift == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(("workers", "tail"), [(2, 0.02), (2, 0.05), (4, 0.02), (5, 0.02)])
def test_what_is_pulled_behind_lets_a_lead_grow(workers: int, tail: float) -> None:
    """While W/2 leaders send their tails, as much of the followers' pulls is sent.

    Without tails, they had been sent in half of the time: followers are later by W/2 tails.
    """
    band = find_band(job_of(with_a_tail(tail), workers=5), workers, 0, 0.38)
    assert band is not None
    assert band.drift == pytest.approx(workers // 2 * tail)


def test_unlike_workers_come_apart_by_themselves() -> None:
    """Worker 1 computes 10 % slower: that is no lead that grows."""
    job = job_of(serial_profile(), workers=2)
    ports = replace(job.settings.ports, speed=np.array([1.0, 1 / 1.1]))
    job = replace(job, settings=replace(job.settings, ports=ports))
    band = find_band(job, 2, 0, 0.38)
    assert band is not None
    assert abs(band.drift) < 0.01


@pytest.mark.parametrize(("workers", "habits"), [(1, {}), (3, {"backup": 1})])
def test_where_it_is_no_question(workers: int, habits: dict[str, Any]) -> None:
    assert find_band(job_of(serial_profile(), **habits), workers, 0, 0.2) is None


def test_coherence_of_two_workers() -> None:
    """Steps of 2 s: together, a quarter of a step apart (|1 + i| / 2), and half a step."""
    begin = np.arange(0.0, 20, 2)
    for lead, expected in ((0.0, 1.0), (0.5, np.sqrt(0.5)), (1.0, 0.0)):
        begins = [begin, begin + lead]
        found = coherence(begins, [begin_ + 2 for begin_ in begins], np.array([5.0, 8.5]))
        assert found == pytest.approx(expected)


def test_coherence_of_steps_of_unlike_length() -> None:
    """At 3 s a worker is in the middle of 2 to 4, the other at a quarter of 2 to 6."""
    found = coherence(
        [np.array([0.0, 2.0]), np.array([2.0])],
        [np.array([2.0, 4.0]), np.array([6.0])],
        np.array([3.0]),
    )
    assert found == pytest.approx(np.sqrt(0.5))
