"""Durations that vary, drawn and estimated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from random_jobs import static_jobs
from scipy import stats

from paracosm.jobs.job import Job
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job
from paracosm.simulation import replay_job
from paracosm.simulation.replay import drawn_durations


def meeting(ranks: int, work: float, rounds: int = 1, parts: int = 1) -> Job:
    """All work, in so many parts, meet, and meet again: rounds times."""
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    writer = ProgramWriter(names, lanes, roles)
    for _ in range(rounds):
        for _ in range(parts):
            done = writer.add("work", "compute", work / parts)
        met = writer.add("meet", "network", 0.01, [done], kind="collective", role="all", size=8)
        writer.add("rest", "network", 0.1, [met], kind="collective", role="all", size=8)
    return write_job(
        [writer], [0] * ranks, write_communicators([tuple(range(ranks))]), [{"all": 0}] * ranks
    )


def test_drawn_durations_have_their_mean_and_deviation_and_are_the_same_each_time() -> None:
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    writer = ProgramWriter(names, lanes, roles)
    for _ in range(4000):
        writer.add("work", "compute", 1e-3)
    writer.add("meet", "network", 1e-3, kind="collective", role="all", size=8)
    job = write_job([writer], [0, 0], write_communicators([(0, 1)]), [{"all": 0}] * 2)
    drawn = drawn_durations(job, 0.3, seed=7).reshape(2, -1) * 1e-12
    work = drawn[:, :-1]
    assert (drawn[:, -1] == 1e-3).all()  # communication does not vary
    assert work.mean() == pytest.approx(1e-3, rel=0.02)
    assert work.std() / work.mean() == pytest.approx(0.3, rel=0.05)
    assert abs(np.corrcoef(work)[0, 1]) < 0.05  # every rank has numbers of its own
    np.testing.assert_array_equal(drawn_durations(job, 0.3, seed=7).reshape(2, -1) * 1e-12, drawn)
    assert (drawn_durations(job, 0.3, seed=8) != drawn_durations(job, 0.3, seed=7)).any()


@pytest.mark.parametrize("ranks", [2, 10, 1000])
def test_many_ranks_wait_for_the_largest_of_so_many_normal_numbers(ranks: int) -> None:
    """The expected maximum, from SciPy's distribution of order statistics."""
    largest = stats.norm.expect(lambda z: ranks * z * stats.norm.cdf(z) ** (ranks - 1), lb=-8, ub=8)
    # work 1 s with 2 %, then the collective, then the rest: only the first is waited for.
    expected = 1.0 + 0.02 * largest + 0.01 + 0.1
    assert replay_job(meeting(ranks, 1.0), duration_cv=0.02).makespan == pytest.approx(
        expected, rel=2e-4
    )


@pytest.mark.parametrize(("ranks", "rounds"), [(8, 1), (8, 6), (64, 6)])
def test_the_estimate_lies_among_replays_with_drawn_durations(ranks: int, rounds: int) -> None:
    job = meeting(ranks, 1.0, rounds, parts=10)  # the sum of ten is nearly normal
    drawn = [replay_job(job, fold=False, duration_cv=0.1, seed=seed).makespan for seed in range(40)]
    estimated, folded = replay_job(job, duration_cv=0.1).makespan, replay_job(job).makespan
    error, ignorance = abs(estimated - np.mean(drawn)), abs(folded - np.mean(drawn))
    assert error < max(3 * np.std(drawn) / np.sqrt(len(drawn)), 0.01 * np.mean(drawn))
    assert error < ignorance / 5


@settings(deadline=None)
@given(static_jobs(copies=2))
def test_no_spread_is_no_correction(job: Job) -> None:
    np.testing.assert_array_equal(replay_job(job, duration_cv=0.0).end, replay_job(job).end)


@settings(deadline=None)
@given(static_jobs(copies=3))
def test_spread_makes_a_job_longer_in_the_mean(job: Job) -> None:
    assert replay_job(job, duration_cv=0.2).makespan >= replay_job(job).makespan - 1e-12
