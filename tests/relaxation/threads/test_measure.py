"""A whole measurement: what it holds, and that its file gives it back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.relaxation.problems import load_problem
from paracosm.relaxation.threads.measure import measure, residual_threshold, thinned
from paracosm.relaxation.threads.measurement import Measurement, load_measurement, phases
from paracosm.relaxation.threads.run import Limits

LIMITS = Limits(seconds=30.0)


@pytest.fixture(scope="module")
def measured() -> Measurement:
    problem = load_problem("laplace2d:20")
    return measure(
        problem, ("race", "safe", "stencil"), (1, 2), tolerance=0.3, repeats=2,
        kept=40, limits=LIMITS,
    )  # fmt: skip


def test_every_case_ran_with_and_without_timers(measured: Measurement) -> None:
    places = [(case.variant, case.threads) for case in measured.cases]
    assert places == [(v, t) for v in ("race", "safe", "stencil") for t in (1, 2)]
    for case in measured.cases:
        assert [len(case.times(timed)) for timed in (True, False)] == [2, 2]
        assert {run.status for run in case.runs} == {"converged"}
        assert all(len(run.iterations) == case.threads for run in case.runs)


def test_durations_stand_for_what_the_runs_did(measured: Measurement) -> None:
    for case in measured.cases:
        timed = [run.iterations for run in case.runs if run.timed]
        made = np.sum(timed, axis=0)
        for worker, count in zip(case.workers, made.tolist(), strict=True):
            assert worker.count == count
            assert worker.mean[3] == pytest.approx(sum(worker.mean[:3]))
            assert worker.samples.shape[1] == 3
        assert sum(len(worker.samples) for worker in case.workers) <= 40 + case.threads
        assert (case.residual is None) == (case.variant == "stencil")


def test_phases_are_in_seconds_and_aligned(measured: Measurement) -> None:
    raw = phases(measured, "race", 2, corrected=False)
    samples = measured.case("race", 2).workers
    np.testing.assert_allclose(raw.workers[1], 1e-9 * samples[1].samples)
    assert np.array_equal(raw.pooled, np.column_stack([raw.copy, raw.compute, raw.update]))
    corrected = phases(measured, "race", 2)
    expected = np.maximum(raw.compute - measured.clock_overhead, 1e-9)
    np.testing.assert_allclose(corrected.compute, expected)
    assert corrected.residual.shape[1] == 2
    assert phases(measured, "stencil", 1).residual.shape == (0, 2)


def test_iterations_that_lost_their_core_are_left_out(measured: Measurement) -> None:
    rows = np.full((9, 3), 1e-5)
    rows[4, 1] = 4e-3
    some = replace(phases(measured, "race", 1), workers=(rows,))
    assert np.array_equal(some.on_core().workers[0], np.delete(rows, 4, axis=0))


def test_the_file_gives_the_measurement_back(measured: Measurement, tmp_path: Path) -> None:
    path = tmp_path / "measured.json"
    measured.save(path)
    again = load_measurement(path)
    assert again.problem == measured.problem
    assert again.environment == measured.environment
    assert again.clock_overhead == measured.clock_overhead
    for old, new in zip(measured.cases, again.cases, strict=True):
        assert new.runs == old.runs
        for left, right in zip(old.workers, new.workers, strict=True):
            assert (left.count, left.mean, left.sd) == (right.count, right.mean, right.sd)
            assert np.array_equal(left.samples, right.samples)
        assert new.interruptions.share == old.interruptions.share


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "truncated or damaged"),
        ("[]", "not a measurement"),
        ('{"format": "paracosm measured threads", "version": 9}', "version 9"),
        ('{"format": "paracosm measured threads", "version": 1}', "problem: must be given"),
    ],
)
def test_other_files_are_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        load_measurement(path)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("seed",), inf, "seed: "),
        (("relative",), "false", "relative: "),
        (("clock_overhead",), nan, "clock_overhead: "),
        (("cases", 0, "threads"), 3, "has 1 thread"),
        (("cases", 0, "interruptions", "share"), 0.0, "share: "),
        (("cases", 0, "workers", 0, "nanoseconds", "copy", 0), 1.5, "copy.0: "),
        (("cases", 0, "workers", 0, "nanoseconds", "copy", 0), -1, "copy.0: "),
        (("cases", 0, "workers", 0, "nanoseconds", "copy"), [], "equally many"),
        (("cases", 0, "workers", 0, "iterations"), 0, "of 0"),
        (("cases", 0, "workers", 0, "mean"), {}, "mean must be of copy, compute, update, whole"),
        (("cases", 0, "workers", 0, "more"), 1, "more"),
    ],
)
def test_a_damaged_file_is_refused(
    measured: Measurement, tmp_path: Path, place: tuple[Any, ...], value: Any, words: str
) -> None:
    path = tmp_path / "measured.json"
    measured.save(path)
    content = within = json.loads(path.read_text())
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = value
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=re.escape(words)):
        load_measurement(path)


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="paracosm relax measure"):
        load_measurement(tmp_path / "none.json")


def test_what_was_not_measured_is_refused(measured: Measurement) -> None:
    with pytest.raises(InputError, match="race with 1, race with 2"):
        phases(measured, "race", 8)


def test_bad_input_is_refused_before_anything_runs() -> None:
    problem = load_problem("laplace2d:6")
    for arguments, message in (
        ({"variants": ("sefe",)}, 'did you mean "safe"'),
        ({"threads": (1, 99)}, "99"),
        ({"threads": (2, 2)}, "twice"),
        ({"tolerance": 0.0}, "above 0"),
        ({"repeats": 0}, "give 1 to 10,000"),
        ({"variants": ()}, "at least one"),
    ):
        with pytest.raises(InputError, match=message):
            measure(problem, **arguments)  # type: ignore[arg-type]


def test_a_relative_tolerance_is_of_the_first_residual() -> None:
    problem = load_problem("laplace2d:6", start="random", seed=1)
    first = np.linalg.norm(problem.b - problem.A @ problem.x0)
    assert residual_threshold(problem, 1e-3, True) == pytest.approx(1e-3 * first)
    assert residual_threshold(problem, 1e-3) == 1e-3


@given(st.integers(1, 200), st.integers(1, 50), st.integers(0, 99))
def test_thinning_takes_one_of_every_group_of_equal_rank(count: int, kept: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.zeros((count, 3), np.int64)
    rows[:, 1] = rng.permutation(count)  # its own rank
    some = thinned(rows, kept, rng)
    assert len(some) == min(count, kept)
    if kept < count:
        begins = np.arange(kept + 1) * count // kept
        ranks = np.sort(some[:, 1])
        assert np.all((begins[:-1] <= ranks) & (ranks < begins[1:]))
        position = np.argsort(rows[:, 1])[some[:, 1]]
        assert np.all(np.diff(position) > 0)
