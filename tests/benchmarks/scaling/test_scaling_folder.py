from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from scaling import Runs, read_runs
from scaling.folder import compare_job, noise_of, read_folder

from paracosm.errors import InputError

DATA = Path(__file__).parents[2] / "data" / "pollux"


def test_a_measured_job_beats_the_formula() -> None:
    folder = read_folder(DATA)
    (job,) = folder.jobs
    assert job.name == "bert"
    assert job.fitted.replicas.max() == 4
    assert job.measured.replicas.min() == 5
    assert np.abs(job.errors).mean() < 0.06
    assert np.abs(job.formula_errors).mean() > 0.2
    assert np.abs(job.exposed_errors).mean() < 0.06
    (larger,) = folder.larger
    assert larger.scaling is job.scaling
    assert set(larger.measured.nodes.tolist()) == {8, 16}


def test_predicted_rows_are_not_seen_by_the_fit() -> None:
    runs = read_runs(DATA / "bert" / "placements.csv")
    factor = np.where(runs.replicas > 4, 3.0, 1.0)
    other = Runs(
        runs.placement, runs.nodes, runs.replicas, runs.batch, factor * runs.step, runs.exposed
    )
    as_it_is, changed = compare_job("bert", runs, 4), compare_job("bert", other, 4)
    assert as_it_is.scaling == changed.scaling
    assert as_it_is.formula == changed.formula


def test_noise_is_between_orders_of_the_same_nodes() -> None:
    runs = read_runs(DATA / "bert" / "placements.csv")
    pair = Runs(
        ("124", "142", "44"),
        np.array([3, 3, 2]),
        np.array([7, 7, 8]),
        np.array([4.0, 4.0, 4.0]),
        np.array([0.9, 1.1, 5.0]),
        np.zeros(3),
    )
    assert noise_of(pair) == pytest.approx(0.1)
    assert np.isnan(noise_of(runs.where(runs.replicas == 1)))


def test_what_cannot_be_used_is_named(tmp_path: Path) -> None:
    shutil.copytree(DATA / "bert", tmp_path / "bert")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "placements.csv").write_text("placement,local_bsz\n1,4\n")
    (tmp_path / "large").mkdir()
    shutil.copy(DATA / "bert" / "scalability.csv", tmp_path / "large")
    left_out = read_folder(tmp_path).left_out
    assert left_out["damaged/placements.csv"] == "lacks the column step_time"
    assert "no small runs beside it" in left_out["large/scalability.csv"]


def test_nothing_to_use(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        read_folder(tmp_path / "none")
    with pytest.raises(InputError, match="no measured job"):
        read_folder(tmp_path)
    with pytest.raises(InputError, match="needs runs on 40 GPUs or fewer, and on more"):
        read_folder(DATA, small=40)
