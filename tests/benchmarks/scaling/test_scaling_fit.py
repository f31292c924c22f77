from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scaling import (
    PolluxFormula,
    Runs,
    Scaling,
    fit_pollux,
    fit_scaling,
    read_runs,
)

from paracosm.errors import InputError

BERT = Path(__file__).parents[2] / "data" / "pollux" / "bert"

TRUTH = Scaling(
    batches=(8.0, 16.0, 32.0, 64.0),
    compute=(0.1, 0.16, 0.28, 0.52),
    within=0.05,
    pair=0.4,
    several=0.25,
    jitter=0.05,
    hidden=0.4,
    last=0.03,
    spread=0.05,
)
FEW = ((1, 1), (1, 2), (1, 4), (2, 2), (2, 3), (2, 4), (3, 3), (3, 4), (4, 4))


def runs_of(model: Scaling, places: tuple[tuple[int, int], ...]) -> Runs:
    rows = [(n, p, b) for n, p in places for b in model.batches]
    nodes, replicas, batch = (np.array(column) for column in zip(*rows, strict=True))
    times = model.predict(nodes, replicas, batch)
    names = tuple(f"{n}x{p}" for n, p, _ in rows)
    return Runs(names, nodes, replicas, batch.astype(float), times.step, times.exposed)


def test_what_made_the_runs_is_found_again() -> None:
    found = fit_scaling(runs_of(TRUTH, FEW))
    assert found.compute == pytest.approx(TRUTH.compute)
    many = ((2, 8), (3, 12), (4, 16))
    measured = runs_of(TRUTH, many)
    again = found.predict(measured.nodes, measured.replicas, measured.batch)
    assert again.step == pytest.approx(measured.step, rel=0.01)
    assert again.exposed == pytest.approx(measured.exposed, rel=0.05, abs=0.002)


def test_an_outlier_hardly_pulls() -> None:
    runs = runs_of(TRUTH, FEW)
    step, exposed = runs.step.copy(), runs.exposed.copy()
    row = runs.placement.index("3x4")
    step[row], exposed[row] = step[row] + 1.0, exposed[row] + 1.0
    found = fit_scaling(replace(runs, step=step, exposed=exposed))
    assert found.predict(4, 16, 32).step == pytest.approx(TRUTH.predict(4, 16, 32).step, rel=0.05)


def test_without_what_is_exposed_steps_of_one_gpu_tell() -> None:
    runs = runs_of(TRUTH, FEW)
    found = fit_scaling(replace(runs, exposed=np.full(len(runs), math.nan)))
    assert found.compute == pytest.approx(TRUTH.compute)
    assert found.predict(4, 16, 8).step == pytest.approx(TRUTH.predict(4, 16, 8).step, rel=0.05)


def test_what_was_not_run_is_not_known() -> None:
    alone = fit_scaling(runs_of(TRUTH, ((1, 1), (2, 2))))
    assert math.isnan(alone.within)
    assert math.isnan(alone.several)
    assert alone.jitter == 0.0
    assert alone.pair > 0
    assert fit_scaling(runs_of(TRUTH, ((1, 1),))).spread == 0.0


def test_no_compute_time_at_all() -> None:
    runs = runs_of(TRUTH, ((2, 2), (4, 4)))
    with pytest.raises(InputError, match="steps of one replica"):
        fit_scaling(replace(runs, exposed=np.full(len(runs), math.nan)))


def test_formula_of_pollux() -> None:
    formula = PolluxFormula(1.0, 0.5, 4.0, 0.1, 1.0, 0.0, 2.0)
    assert formula.predict(2, 2, 4) == pytest.approx(5.0)  # sqrt(3^2 + 4^2)
    assert formula.predict(2, 12, 4) == pytest.approx(math.hypot(3, 5))  # 4 + 10 x 0.1
    assert formula.predict(1, 1, 4) == pytest.approx(3.0)


def test_pollux_is_fitted_as_well_as_can_be() -> None:
    # What Nelder-Mead found in the logarithms of the parameters, the best of six starts.
    runs = read_runs(BERT / "placements.csv")
    found = fit_pollux(runs.where(runs.replicas <= 4))
    best = (0.1772, 0.0581, 1.1232, 0.1376, 0.2301, 0.0255, 1.717)
    assert tuple(vars(found).values()) == pytest.approx(best, rel=0.005)


def test_pollux_needs_compute_times() -> None:
    runs = runs_of(TRUTH, FEW)
    with pytest.raises(InputError, match="give sync_time"):
        fit_pollux(replace(runs, exposed=np.full(len(runs), math.nan)))
