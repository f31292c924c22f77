"""What stands on the page of a prediction, and on the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from written_page import figures_of, page_of, text_of

from paracosm.cli.run_verb import show_summary
from paracosm.results import IterationSummary
from paracosm.studies.run_folder import RunFolder
from paracosm.timeline import Timeline

FIGURES = [
    *("time_by_phase", "time_by_op", "time_by_place"),
    *("iteration", "memory"),
]
SUMMARY: dict[str, Any] = {
    "kind": "iteration",
    "status": "done",
    "model": "resnet50",
    "batch": 64,
    "iteration_time": 1.2,
    "interval": {"low": 1.1, "high": 1.35},
    "examples_per_second": 53.3333,
    "breakdown": {
        "phase": {"forward": 0.4, "backward": 0.8},
        "op": {f"aten.op{i}.default": 0.3 / 2**i for i in range(12)},
        "place": {"layer1.0": 0.9, "elsewhere": 0.3},
        "lane": {"host": 1.2},
    },
    "phases": {"forward": {"begin": 0.0, "end": 0.4}, "backward": {"begin": 0.4, "end": 1.2}},
    "peak_memory": 3 * 2**30,
    "bottleneck": "Computing: aten.op0.default takes 50% of the ops' time.",
    "coverage": {"exact": 0.75, "estimated": 0.24999, "unknown": 0.00001},
    "baselines": {"roofline": 0.6, "sum of durations": 1.2},
    "measured": {
        "iteration_time": 1.25,
        "p10": 1.2,
        "p90": 1.4,
        "error": -0.04,
        "slower": 0.03,
        "baseline_errors": {"roofline": -0.52, "sum of durations": -0.04},
    },
    "environment": "Old Chip, torch 2.13.0",
    "differences": "not this machine",
    "untimed": ["aten.view.default"],
    "profiled": 2,
    "not_profiled": {"aten.odd.default": "needs a friend"},
    "durations": {"exact": "measured, data cold"},
}


def make_prediction(path: Path, **changed: Any) -> RunFolder:
    run = RunFolder.create(path, {"seed": 0, "predict": {"model": "resnet50"}})
    timeline = Timeline()
    for begin, name in ((0.0, "aten.op0.default"), (0.4, "aten.op1.default")):
        timeline.span("device", "compute", name, begin, begin + 0.4)
        timeline.counter("device", "memory", begin, 2**30 * (1 + 5 * begin))
    run.finish({**SUMMARY, **changed}, timeline)
    return run


def test_key_numbers_remarks_and_tables(tmp_path: Path) -> None:
    text = text_of(page_of(tmp_path, make_prediction(tmp_path / "run")))
    assert "resnet50, batch 64 predict · Old Chip, torch 2.13.0 · seed 0" in text
    assert "Iteration time 1.2 s" in text
    assert "Interval 1.1 s to 1.35 s" in text
    assert "Measured 1.25 s (1.2 s to 1.4 s)" in text
    assert "Error -4.0%" in text
    assert "Examples/s 53.3" in text
    assert "Memory 3.221 GB in tensors" in text
    assert "Coverage 75.0% exact, 25.0% estimated, &lt;0.1% unknown" in text
    assert "bottleneck Computing: aten.op0.default takes 50%" in text
    assert "baselines, the iteration roofline 600 ms (-52.0%) " in text
    assert "machine +3.0% time for the same work" in text
    assert "profiled now 2 ops, added to the database; not aten.odd.default: needs a friend" in text
    assert "timings of Old Chip, torch 2.13.0 (not this machine)" in text
    assert "not timed aten.view.default: host-only ops" in text
    assert "exact measured, data cold" in text
    assert "Time by phase phase time share forward 400 ms 33.3% backward 800 ms 66.7%" in text
    assert "2 others 439.5 us 0.1%" in text  # 0.3 s / 2^10 and / 2^11
    assert "Time by place place time share layer1.0 900 ms 75.0% elsewhere 300 ms 25.0%" in text


def test_all_figures_are_there_and_valid_for_plotly(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_prediction(tmp_path / "run")))
    assert list(figures) == FIGURES
    for figure in figures.values():
        go.Figure(figure)  # raises for any property that Plotly does not know


def test_bars_are_as_long_as_the_times(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_prediction(tmp_path / "run")))
    (bars,) = figures["time_by_phase"]["data"]
    assert bars["x"] == [400, 800]
    assert figures["time_by_phase"]["layout"]["yaxis"]["ticktext"] == ["forward", "backward"]


def test_the_iteration_is_drawn_by_phase_and_its_memory_over_time(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_prediction(tmp_path / "run")))
    boxes = {each["meta"]["series"]: each for each in figures["iteration"]["data"]}
    assert boxes["forward"]["base"] == [0.0]
    assert boxes["backward"]["base"] == [pytest.approx(400)]
    (curve,) = figures["memory"]["data"]
    assert curve["y"] == pytest.approx([1.073741824, 3.221225472], rel=1e-5)
    assert figures["memory"]["layout"]["yaxis"]["title"]["text"] == "memory (GB)"


def test_several_predictions_share_the_charts(tmp_path: Path) -> None:
    runs = [make_prediction(tmp_path / f"run{n}", batch=n) for n in (1, 2)]
    figures = figures_of(page_of(tmp_path, *runs))
    assert [each["meta"]["run"] for each in figures["time_by_op"]["data"]] == [0, 1]
    assert {"iteration_1", "iteration_2"} <= set(figures)


def test_several_predictions_are_compared_by_what_they_vary(tmp_path: Path) -> None:
    runs = [
        make_prediction(tmp_path / "run1", batch=32, examples_per_second=10.0, measured=None),
        make_prediction(tmp_path / "run2", batch=64, iteration_time=2.4),
    ]
    html = page_of(tmp_path, *runs)
    figures = figures_of(html)
    # A curve, and the dots on it.
    for shown in figures["throughput"]["data"]:
        assert (shown["x"], shown["y"]) == ([32, 64], [10, 53.3333])
    assert figures["iteration"]["data"][0]["y"] == [1.2, 2.4]
    assert figures["peak_memory"]["data"][0]["y"] == [3.22123, 3.22123]
    # 53.3 / 10 times as many.
    best = "Highest throughput with batch 64: 53.3 examples/s, 5.3 times as fast as batch 32."
    assert best in text_of(html)


def test_of_many_predictions_the_page_says_how_many_timelines_it_leaves_out(
    tmp_path: Path,
) -> None:
    runs = [make_prediction(tmp_path / f"run{n}", batch=n) for n in range(1, 6)]
    html = page_of(tmp_path, *runs)
    assert {"iteration_4", "iteration_5"} & figures_of(html).keys() == {"iteration_4"}
    assert "The reports of the other runs show theirs." in text_of(html)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"differences": ""}, True),
        ({}, False),  # another machine's timings: nothing can be measured here
        ({"differences": "", "coverage": {"exact": 0.6, "estimated": 0.4}}, False),
        ({"differences": "", "not_profiled": {"aten.odd.default": "needs a friend"}}, False),
    ],
)
def test_where_most_is_estimated_here_the_flag_that_measures_it_is_named(
    changed: dict[str, Any], said: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    mostly = {"coverage": {"exact": 0.2, "estimated": 0.7, "unknown": 0.1}, "not_profiled": {}}
    summary = {**SUMMARY, **mostly, "estimated_ops": 72, **changed}
    show_summary(IterationSummary.from_dict(summary), None, json=False)
    printed = capsys.readouterr().out
    assert ("72 ops, 80% of the time: --exact times them here, on this machine" in printed) is said
