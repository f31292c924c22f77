from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pollux_time import TARGETS, cells_of
from scaling import PolluxFormula, Runs, Scaling
from scaling.folder import JobScaling
from scaling.learning import LearningCurve

EPOCHS = np.arange(1.0, 11.0)


def curve(batch: int, updates: float) -> LearningCurve:
    """Ten evaluations from 0.5 to 0.95, with nothing but noise in the gradients."""
    return LearningCurve(batch, 100 * EPOCHS, updates * EPOCHS, 0.45 + 0.05 * EPOCHS, 1e15 + EPOCHS)


def job() -> JobScaling:
    """Two placements of eight GPUs, timed with 8 and 16 examples a replica: 1 and 2 s, 0.25 s of
    them waiting; a scaling and a formula that say 0.1 s an example, without communication."""
    batch, step = np.array([16.0, 8, 16, 8]), np.array([2.0, 1, 2, 1])
    measured = Runs(
        ("44", "44", "2222", "2222"),
        *(np.array([2, 2, 4, 4]), np.array([8] * 4)),
        *(batch, step, np.full(4, 0.25)),
    )
    scaling = Scaling((8.0, 16.0), (0.8, 1.6), *[0.0] * 7)
    formula = PolluxFormula(0.0, 0.1, 1e-8, 0.0, 1e-8, 0.0, 1.0)
    predicted = scaling.predict(measured.nodes, measured.replicas, batch)
    return JobScaling("cifar10", measured, measured, scaling, formula, predicted, predicted.step)


def test_cells_by_hand() -> None:
    # Batches of 96 on 8 GPUs are 12 each: 1.5 s measured, 1.2 s predicted. Where there is nothing
    # but noise, 96 examples are worth 12 of 8, so 700 of these become 58.3; it took 20 * 7.
    cells = list(cells_of(job(), [curve(8, 100), curve(96, 20)]))
    assert len(cells) == 2 * len(TARGETS["cifar10"])
    cell = next(cell for cell in cells if cell.target == 0.80 and cell.placement == "44")
    assert (cell.batch, cell.gpus) == (96, 8)
    assert cell.updates == pytest.approx((140, 700 / 12, 700 / 12))
    assert cell.step == pytest.approx((1.5, 1.2, 1.2))
    assert cell.time(0) == pytest.approx(210)


def test_a_share_beyond_what_was_timed_is_accumulated() -> None:
    # Of 256 examples each of 8 GPUs has 32: 16 twice, the first time without waiting.
    cells = cells_of(job(), [curve(8, 100), curve(256, 20)])
    for cell in cells:
        assert cell.step == pytest.approx((2.0 + 1.75, 3.2, 3.2))


def test_what_is_not_reached_or_was_not_timed_is_left_out() -> None:
    short = curve(96, 20)
    short = replace(short, metric=np.minimum(short.metric, 0.86))
    assert {cell.target for cell in cells_of(job(), [curve(8, 100), short])} == {0.80, 0.85}
    assert not list(cells_of(job(), [curve(8, 100), curve(32, 20)]))  # 4 examples a GPU
