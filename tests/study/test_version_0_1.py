"""Run folders, study files, a database and a job profile of version 0.1 can still be read."""

from __future__ import annotations

import gzip
import shutil
from html import unescape
from pathlib import Path

import pytest

import paracosm
from paracosm.cli import main
from paracosm.studies import load_study

DATA = Path(__file__).parents[1] / "data" / "version_0_1"
FOLDERS = sorted(path.parent for path in DATA.glob("*/study.yaml"))
STUDIES = sorted((DATA / "inputs").glob("*.yaml"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_run_folder_opens_and_reports(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "run")
    result = paracosm.open(copy)
    assert "unfinished" not in result.sentence
    page = unescape(result.report(tmp_path / "page.html").read_text())
    assert (folder / "sweep.json").exists() or result.sentence in page


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the inputs, where their relative paths lead to them."""
    folder = tmp_path / "inputs"
    shutil.copytree(DATA / "inputs", folder)
    database = gzip.decompress((folder / "profiles.db.gz").read_bytes())
    (folder / "profiles.db").write_bytes(database)
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: path.name)
def test_a_study_file_has_the_runs_that_it_had(
    study: Path, inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {"sweep-predict": 2, "sweep-relax": 3, "sweep-train": 4, "tune-train": 1}
    monkeypatch.chdir(inputs)
    assert len(load_study(study).points(study.name)) == counts[study.stem]


@pytest.mark.parametrize("name", ["train", "relax", "predict_job", "plan", "plan_strategies"])
@pytest.mark.usefixtures("inputs")
def test_the_study_of_a_run_folder_can_be_run_again(name: str) -> None:
    (point,) = load_study(DATA / name / "study.yaml").points(name)
    assert point.as_study().keys() == {"seed", point.kind}


def test_a_database_and_a_job_profile_are_read(
    inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["db", "check", str(inputs / "profiles.db")]) == 0
    assert main(["db", "show", str(inputs / "profiles.db"), "--json"]) == 0
    profile = str(inputs / "mlp.profile")
    assert main(["predict", profile, "--bandwidth", "10Gbit/s", "--workers", "1"]) == 0
    assert "steps/s" in capsys.readouterr().out
