"""Means over threads, and durations for a simulation, from a measurement by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paracosm.errors import InputError
from paracosm.relaxation import relax
from paracosm.relaxation.problems import load_problem
from paracosm.relaxation.threads import Case, Measurement
from paracosm.relaxation.threads.measurement import Interruptions, ThreadTimes
from paracosm.relaxation.times import times_from_file
from paracosm.timing.families import Empirical, Gamma

QUIET = Interruptions((), 1.0, 0.0)


def thread(count: int, samples: list[list[int]]) -> ThreadTimes:
    rows = np.array(samples, np.int64)
    seconds = 1e-9 * np.column_stack([rows, rows.sum(axis=1)])
    mean, sd = seconds.mean(axis=0), seconds.std(axis=0)
    return ThreadTimes(count, tuple(mean.tolist()), tuple(sd.tolist()), rows)


FAST = [[1000, 20000, 400], [3000, 40000, 600]]
SLOW = [[5000, 50000, 900], [7000, 90000, 1100]]
MEASURED = Measurement(
    {"name": "laplace2d:6"}, 1e-6, False, 1e-6, 0, 0.0, {"cores": 4},
    (
        Case("race", 2, (), (thread(30, FAST), thread(10, SLOW)), thread(9, [[5, 6]]), QUIET),
        Case("safe", 1, (), (thread(2, FAST),), thread(9, [[5, 6]]), QUIET),
        Case("stencil", 2, (), (thread(30, FAST), thread(10, SLOW)), None, QUIET),
    ),
)  # fmt: skip


def test_means_and_spreads_are_over_all_iterations_of_all_threads() -> None:
    mean, sd = MEASURED.case("race", 2).pooled()
    # Three iterations in four are of the fast thread.
    rows = np.array(3 * FAST + SLOW) * 1e-9
    assert mean == pytest.approx([*rows.mean(axis=0), rows.sum(axis=1).mean()])
    assert sd == pytest.approx([*rows.std(axis=0), rows.sum(axis=1).std()])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("measured") / "measured.json"
    MEASURED.save(file)
    return file


def test_as_many_processors_as_threads_get_their_own_durations(path: Path) -> None:
    times = times_from_file(str(path), 2)
    assert times.joint
    fast, slow = times.updates
    assert [phase.samples for phase in fast if isinstance(phase, Empirical)] == [
        pytest.approx((1e-6, 3e-6)), pytest.approx((2e-5, 4e-5)), pytest.approx((4e-7, 6e-7)),
    ]  # fmt: skip
    assert slow[1].mean() == pytest.approx(7e-5)
    assert times.residual is not None
    assert [phase.mean() for phase in times.residual] == pytest.approx([5e-9, 6e-9])
    assert "race with 2 threads" in times.source


def test_other_numbers_of_processors_share_all_durations(path: Path) -> None:
    (phases,) = times_from_file(str(path), 50).updates
    assert phases[0].mean() == pytest.approx((1e-6 + 3e-6 + 5e-6 + 7e-6) / 4)


def test_options_choose_the_case_and_the_fit(path: Path) -> None:
    times = times_from_file(f"{path}(variant=stencil, threads=2, fit=gamma)", 1)
    assert not times.joint
    assert times.residual is None
    assert all(isinstance(phase, Gamma) for phase in times.updates[0])
    assert times.updates[0][1].mean() == pytest.approx(5e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("(fitt=gamma)", 'did you mean "fit"'),
        ("(fit=gama)", 'did you mean "gamma"'),
        ("(variant=save)", 'did you mean "safe"'),
        ("(threads=7)", "no measurement of race with 7"),
        ("(threads=x)", "not a number"),
        ("(fit)", 'write "fit=..."'),
        ("(fit=gamma", "no closing bracket"),
    ],
)
def test_wrong_options_are_refused(path: Path, options: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        times_from_file(f"{path}{options}", 2)


@pytest.mark.parametrize(("share", "said"), [(0.94, True), (0.96, False)])
def test_threads_that_lost_their_cores_are_cautioned_against(
    tmp_path: Path, share: float, said: bool
) -> None:
    case = replace(MEASURED.cases[0], interruptions=Interruptions((), share, 0.0))
    replace(MEASURED, cases=(case,)).save(tmp_path / "crowded.json")
    caution = times_from_file(str(tmp_path / "crowded.json"), 2).caution
    assert ("had a core for" in caution) == said


def test_with_cores_iterations_that_lost_theirs_are_left_out(tmp_path: Path) -> None:
    seen = Interruptions((0.002, 0.006), 0.5, 1.4)
    case = replace(MEASURED.cases[0], interruptions=seen)
    replace(MEASURED, cases=(case,)).save(tmp_path / "crowded.json")
    times = times_from_file(str(tmp_path / "crowded.json"), 2, on_core=True)
    assert (times.time_slice, times.load, times.caution) == (pytest.approx(0.004), 1, "")
    with pytest.raises(InputError, match="no measured threads that lost"):
        relax(load_problem("laplace2d:4"), cores=1, time_slice="measured", time=1.0)
