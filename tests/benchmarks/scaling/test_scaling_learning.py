from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scaling.learning import (
    LearningCurve,
    goodput_updates,
    own_noise_updates,
    passage,
    read_curves,
)

from paracosm.errors import InputError

HEADER = "progress,iteration,metric,grad_sqr,grad_var\n"


def curve(noise_ratio: list[float], batch: int = 10) -> LearningCurve:
    """A run of 100 updates an evaluation with a noise ratio at the end of each."""
    at = 100.0 * np.arange(1, len(noise_ratio) + 1)
    return LearningCurve(batch, at, at, np.linspace(0, 1, len(at)), np.array(noise_ratio))


def test_a_target_must_be_held_for_three_evaluations() -> None:
    at = np.array([10.0, 20, 30, 40, 50, 60])
    metric = np.array([0.2, 0.9, 0.4, 0.8, 0.7, 0.9])
    # 0.9 at 20 is lost again; the line from 0.4 at 30 to 0.8 at 40 is at 0.6 half-way.
    assert passage(at, metric, 0.6) == pytest.approx(35)
    assert passage(at, metric, 0.85) == pytest.approx(57.5)  # the end of the run cuts it short
    assert passage(at, metric, 0.1) == 10
    assert math.isnan(passage(at, metric, 0.95))


def test_goodput_by_hand() -> None:
    # M0 = 10, M = 40: noise scales of 20 and 80 give (20 + 10) / (20 + 40) = 1/2 and 90 / 120 = 3/4
    # of the gain of 4, so 100 updates become 50 and 100 / 3.
    updates = goodput_updates(curve([2.0, 8.0]), 40)
    assert updates == pytest.approx([50, 50 + 100 / 3])


def test_own_noise_is_taken_out() -> None:
    # With a and b as below, 10 / phi = 10 a + b is measured with batches of 10; the true noise
    # scale of batches of 40 is 1 / (a + b / 40). The last a is 0, so b is found exactly.
    a, b = np.array([0.05, 0.05, 0.02, 0.0]), 0.1
    small = curve((1 / (10 * a + b)).tolist())
    phi = 1 / (a + b / 40)
    expected = np.cumsum(100 / (4 * (phi + 10) / (phi + 40)))
    assert own_noise_updates(small, 40) == pytest.approx(expected)
    assert (goodput_updates(small, 40) > expected).all()


def test_the_first_epoch_has_the_mean_of_two() -> None:
    # 2 and 8 have the geometric mean 4, and without a share of own noise (a vast last ratio)
    # 40 examples of noise make 50 / 80 of the gain of 4.
    updates = own_noise_updates(curve([2.0, 8.0, 1e12]), 40)
    assert updates[0] == pytest.approx(40)


def test_a_batch_of_the_same_size_changes_nothing() -> None:
    small = curve([3.0, 5.0, 9.0])
    for updates in (goodput_updates(small, 10), own_noise_updates(small, 10)):
        assert updates == pytest.approx(small.updates)


def test_runs_are_read_by_batch(tmp_path: Path) -> None:
    rows = "100,50,0.5,2,8\n200,90,0.6,1,10\n"
    (tmp_path / "validation-64.csv").write_text(HEADER + rows)
    with pytest.raises(InputError, match="two batches or more"):
        read_curves(tmp_path)
    (tmp_path / "validation-8.csv").write_text(HEADER + rows)
    small, large = read_curves(tmp_path)
    assert (small.batch, large.batch) == (8, 64)
    assert large.updates.tolist() == [50, 90]
    assert large.noise_ratio.tolist() == [4, 10]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("progress,iteration,metric,grad_sqr\n1,1,1,1\n", "lacks the column grad_var"),
        (HEADER + "1,1,x,1,1\n2,2,2,2,2\n", "cannot be read as numbers"),
        (HEADER + "1,1,0.5,1,1\n", "two evaluations or more"),
        (HEADER + "1,1,0.5,1,1\n2,2,0.5,1,\n", "two evaluations or more, of numbers"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, said: str) -> None:
    for batch in (8, 64):
        (tmp_path / f"validation-{batch}.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_curves(tmp_path)
