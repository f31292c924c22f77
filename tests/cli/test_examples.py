"""The programs under examples/: what they make of runs that failed or exploded."""

from __future__ import annotations

import json
import math
import runpy
import sys
from pathlib import Path

import pytest

from paracosm.studies import RunFolder, Study, load_study

EXAMPLES = Path(__file__).parents[2] / "examples"
Patch = pytest.MonkeyPatch


def run_demo(monkeypatch: Patch, folder: Path, code: int, rows: list[dict[str, object]]) -> None:
    """Run the demo as if its sweep had ended with `code` and left these rows."""

    def main(arguments: list[str]) -> int:
        out = Path("runs/demo")
        out.mkdir(parents=True)
        (out / "sweep.json").write_text(json.dumps(rows))
        return code

    monkeypatch.chdir(folder)
    monkeypatch.setattr("paracosm.cli.main", main)
    runpy.run_path(str(EXAMPLES / "demo.py"))


@pytest.mark.parametrize("code", [1, 2])
def test_the_demo_stops_where_its_sweep_failed_or_was_interrupted(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str], code: int
) -> None:
    with pytest.raises(SystemExit) as stopped:
        run_demo(monkeypatch, tmp_path, code, [])
    assert stopped.value.code == code
    assert capsys.readouterr().out == ""


def test_the_demo_counts_a_loss_that_is_no_number_as_broken(
    tmp_path: Path, monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    points = load_study(EXAMPLES / "demo.yaml").points("demo.yaml")
    rows: list[dict[str, object]] = [
        {
            "algorithm": str(point.config.algorithm),
            "workers": point.config.workers,
            "final_loss": None if point.config.workers == 64 else 0.125,
        }
        for point in points
    ]
    run_demo(monkeypatch, tmp_path, 1, rows)
    printed = capsys.readouterr().out
    assert "0.125 with 16, inf with 64" in printed
    assert "does not learn with 64 workers" in printed


def test_a_loss_that_is_no_number_has_exploded(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES / "papers" / "hybrid_simulator")
    monkeypatch.delitem(sys.modules, "curves", raising=False)
    from curves import read_curve

    (point,) = Study(train={}, over={"compute": ["200ms"]}).points("test")
    with RunFolder.create(tmp_path / "run", point.as_study()) as run:
        run.metric(0.0, 0.0, "evaluation", "loss", 2.5, 0)
        run.metric(1.0, 1.0, "evaluation", "loss", math.nan, 1)
        run.finish({})
    assert read_curve(point, run.path).loss.tolist() == [2.5, math.inf]


def test_the_study_of_scaling_asks_for_what_it_says(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profiles.db").touch()
    points = load_study(EXAMPLES / "predict_scaling.yaml").points("predict_scaling.yaml")
    assert [point.config.strategy for point in points] == ["ddp", "fsdp", "ddp, microbatches=4"]
    for point in points:
        numbers = [workers for workers, _ in point.config.jobs]
        assert numbers == [4, 8, 16, 32, 64, 128, 256]
        cluster = point.config.resolve_cluster(numbers[0])
        assert cluster.link("worker0", "worker3").latency == 2e-6
