"""The programs under examples/: what they make of runs that failed or exploded."""

from __future__ import annotations

import json
import math
import runpy
import sys
from pathlib import Path

import numpy as np
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


@pytest.mark.parametrize(
    ("factors", "faster", "coincide"),
    [
        # Of ten ratios, the second and the second last bound the median with 97.9 % confidence.
        ([0.5, 1.1, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.3, 9.0], True, False),
        ([0.5, 0.9, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.3, 9.0], None, None),
        ([0.5, 0.6, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7, 0.8, 9.0], False, False),
        ([0.5, 0.97, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.04, 9.0], None, True),
    ],
)
def test_the_spread_over_seeds_decides_what_is_faster_and_what_coincides(
    monkeypatch: Patch, factors: list[float], faster: bool | None, coincide: bool | None
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES / "papers" / "hybrid_simulator")
    from curves import Curve
    from spread import between_seeds, ratio

    def run(seed: int, end: float) -> Curve:
        times = np.array([0.0, end])
        loss = np.array([2.0, 0.1])
        return Curve("asgd", 2, 0, "fast", 0.2, seed, 0.3, np.array([0, 10]), times, loss)

    # All runs of the first setting end later by their seed; the second's end by a factor of it.
    ends = [1.0, 1.0, 1.02, 1.02, 1.02, 1.02, 1.02, 1.02, 1.05, 1.05]
    first = [run(seed, end) for seed, end in enumerate(ends)]
    second = [run(seed, f * end) for seed, (f, end) in enumerate(zip(factors, ends, strict=True))]
    seeds = between_seeds(first, Curve.time_to_target)
    found = ratio(second, first, Curve.time_to_target)
    assert seeds == pytest.approx(1.05)
    assert (found.low, found.high) == pytest.approx((factors[1], factors[8]))
    assert found.above_one is faster
    assert found.within(seeds) is coincide


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
