"""What stands on the page of a job on a cluster, and on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from written_page import figures_of, page_of, text_of

from paracosm.report.runs import answer
from paracosm.results import JobSummary
from paracosm.studies.run_folder import RunFolder
from paracosm.timeline import Timeline

NONE = dict.fromkeys(("copies", "waiting", "bubble", "launch", "idle"), 0.0)


def row(workers: int, exposed: float) -> dict[str, Any]:
    """Return one number of workers: each computes for a second, on 8 examples."""
    return {
        "workers": workers,
        "iteration_time": 1 + exposed,
        "interval": {"low": 0.9 + exposed, "high": 1.1 + exposed},
        "examples_per_second": 8 * workers / (1 + exposed),
        "ideal": 8.0 * workers,
        "efficiency": 1 / (1 + exposed),
        "breakdown": {**NONE, "compute": 1.0, "exposed_communication": exposed},
        "peak_memory": 3 * 2**30,
        "fits": False,
        "misfits": ["Does not fit: needs 3GiB of 2GiB on worker0."],
        "bottleneck": "Computing.",
    }


SCALING = [row(1, 0.0), row(4, 0.2), row(16, 0.25)]
ALIKE = [
    {
        "first": "worker0",
        "ranks": 15,
        "is_worker": True,
        **NONE,
        "compute": 0.75,
        "waiting": 0.25,
        "exposed_communication": 0.25,
        "peak_memory": 3 * 2**30,
    },
    {
        "first": "worker15",
        "ranks": 1,
        "is_worker": True,
        **NONE,
        "compute": 1.0,
        "exposed_communication": 0.25,
        "peak_memory": None,
    },
]
SUMMARY: dict[str, Any] = {
    "kind": "job",
    "status": "done",
    "model": "resnet50",
    "batch": 8,
    "strategy": "dp=16",
    **SCALING[-1],
    "bottleneck": "Communication: workers compute nothing for 20% of the iteration.",
    "breakdown": {
        "phase": {"forward": 0.4, "backward": 0.6},
        "op": {"aten.mm.default": 0.9, "aten.add.Tensor": 0.1},
        "place": {"layer1.0": 0.7, "fc": 0.3},
        "mean": SCALING[-1]["breakdown"],
        "ranks": ALIKE,
    },
    "replica": {"iteration_time": 1.0, "examples_per_second": 8.0, "peak_memory": 1},
    "throughput": SCALING,
    "coverage": {"exact": 0.9, "estimated": 0.1},
    "baselines": {"roofline": 0.6, "sum of durations": 1.0},
    "measured": None,
    "environment": "Old Chip, torch 2.13.0",
    "differences": "not this machine",
    "devices": {"V100": "0.4 times as fast by the timings of V100"},
}


def make_job(path: Path, **changed: Any) -> RunFolder:
    run = RunFolder.create(path, {"seed": 0, "predict": {"model": "resnet50"}})
    timeline = Timeline()
    for number in (0, 15):
        node = f"worker{number}"
        timeline.span(node, "compute", "aten.mm.default", 0.0, 0.5)
        timeline.span(node, "compute", "aten.mm.default", 0.5, 1.0)
        timeline.span(node, "communication", "wait: all-reduce", 1.0, 1.1)
        timeline.span(node, "communication", "all-reduce", 1.1, 1.25)
        timeline.counter(node, "memory", 0.0, 2**30 * (1 + number))
        timeline.counter(node, "memory", 0.5, 2**29 * (1 + number))
    run.finish({**SUMMARY, **changed}, timeline)
    return run


def test_the_page_says_what_the_job_is_and_whether_it_fits(tmp_path: Path) -> None:
    text = text_of(page_of(tmp_path, make_job(tmp_path / "run")))
    assert "resnet50, batch 8, dp, 1 to 16 workers" in text
    assert "Strategy dp=16 Workers 16 Iteration time 1.25 s" in text
    assert "Efficiency 80.0%" in text
    assert "Memory does not fit: " in text
    assert "one replica 1 s on one device, 8 examples/s" in text
    assert "baselines, one replica roofline 600 ms" in text
    assert "devices V100: 0.4 times as fast by the timings of V100" in text
    assert "16 1.25 s 102.4 128.0 80.0% 20.0% 0.0%" in text
    assert "worker0 and 14 alike 750 ms 250 ms 250 ms 3.221 GB" in text


def test_figures_of_a_sweep_are_there_and_valid_for_plotly(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_job(tmp_path / "run")))
    expected = ["scaling", "efficiency", "time_by_workers", "exposed_communication"]
    expected += ["parts_by_workers", "ranks", "time_by_phase", "time_by_op", "time_by_place"]
    assert list(figures) == [*expected, "timeline", "memory"]
    for figure in figures.values():
        go.Figure(figure)  # raises for any property that Plotly does not know


def test_energy_by_workers_is_there_where_the_nodes_power_is_known(tmp_path: Path) -> None:
    rows = [{**row, "energy": 250.0 * row["workers"]} for row in SCALING]
    folder = make_job(tmp_path / "run", throughput=rows)
    chart = figures_of(page_of(tmp_path, folder))["energy_by_workers"]
    assert chart["data"][0]["y"] == [250, 1000, 4000]
    assert "16 workers: 4 kJ" in str(chart["data"])


def test_the_ideal_stands_beside_the_curve(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_job(tmp_path / "run")))
    lines = {
        each["meta"]["series"]: each
        for each in figures["scaling"]["data"]
        if each["mode"] == "lines"
    }
    assert lines["throughput"]["x"] == lines["ideal"]["x"] == [1, 4, 16]
    assert lines["throughput"]["y"] == pytest.approx([8, 32 / 1.2, 102.4], rel=1e-5)
    assert lines["ideal"]["y"] == [8, 32, 128]
    assert figures["scaling"]["layout"]["xaxis"]["type"] == "log"
    shares = figures["exposed_communication"]["data"][0]
    assert shares["y"] == pytest.approx([0, 1 / 6, 0.2], rel=1e-5)


def test_bars_of_ranks_are_stacked(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_job(tmp_path / "run")))
    bars = {each["meta"]["series"]: each for each in figures["ranks"]["data"]}
    assert list(bars) == ["compute", "exposed communication", "waiting for others"]
    assert bars["exposed communication"]["base"] == [0.75, 1.0]
    assert bars["waiting for others"]["x"] == [0.25, 0.0]
    assert figures["ranks"]["layout"]["yaxis"]["ticktext"] == ["worker0 and 14 alike", "worker15"]


def test_the_timeline_joins_what_a_screen_cannot_tell_apart(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_job(tmp_path / "run")))
    lanes = {each["meta"]["series"]: each for each in figures["timeline"]["data"]}
    assert lanes["compute"]["x"] == [1.0, 1.0]
    assert lanes["compute"]["text"][0] == "worker0, compute: 2 spans, 1 s"
    assert lanes["communication"]["base"] == [1.1, 1.1]


def test_memory_is_that_of_the_rank_that_holds_most(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_job(tmp_path / "run")))
    (curve,) = figures["memory"]["data"]
    assert curve["y"] == pytest.approx([17.1799, 8.58993], rel=1e-5)


def test_runs_of_one_number_each_make_a_curve_together(tmp_path: Path) -> None:
    runs = [
        make_job(tmp_path / f"run{each['workers']}", throughput=[each], **each) for each in SCALING
    ]
    figures = figures_of(page_of(tmp_path, *runs))
    curve = figures["varied_efficiency"]["data"][0]
    assert (curve["x"], curve["y"]) == ([1, 4, 16], [1.0, 0.833333, 0.8])
    assert "efficiency" not in figures


def test_one_number_of_workers_has_no_curve(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_job(tmp_path / "run", throughput=[SCALING[-1]])))
    assert "scaling" not in figures
    assert "ranks" in figures


def test_the_answer_says_what_is_reached_of_the_ideal() -> None:
    assert "80 % of ideal: an iteration" in answer(JobSummary.from_dict(SUMMARY))
