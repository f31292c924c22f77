"""What stands on the page of a relaxation, and in its image files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from synthetic_relaxation import UNKNOWNS, UPDATE_TIME, make_relaxation
from written_page import figures_of, page_of, text_of

from paracosm.report import write_images
from paracosm.studies.run_folder import RunFolder
from paracosm.timeline import Timeline

FIGURES = ["residual_time", "residual_sweeps", "updates", "staleness", "utilisation", "timeline"]


def traces(figure: dict[str, Any], series: str) -> list[dict[str, Any]]:
    return [trace for trace in figure["data"] if trace["meta"]["series"] == series]


def test_headline_key_numbers_and_remarks(tmp_path: Path) -> None:
    run = make_relaxation(tmp_path / "run", faults=2, checkpoints=5)
    text = text_of(page_of(tmp_path, run))
    assert "jacobi, 10 processors relax · laplace2d:20 · seed 3 · folder run" in text
    assert "Status converged" in text
    assert "Read at start" in text
    assert "Residual 4.8e-06" in text  # 0.96^300
    assert "Sweeps 300.0" in text
    assert "Relaxations 120,000" in text
    assert "Virtual time 3000 s" in text
    assert "Mean staleness 8.9" in text
    assert "Largest staleness 14" in text
    assert "rho(|C|) = 0.96 &lt; 1: every asynchronous iteration converges." in text
    assert "All three conditions of Definition 1 held." in text
    assert (
        "detection snapshot(every=10), 2 times too early, 45 s after an ideal observer, "
        "70 messages, 5 snapshots"
    ) in text
    assert "messages 1,200, 96 kB" in text
    assert "faults 2 injected, 2 detected, 0 undetected, 0 false alarms" in text
    assert (
        "checkpoints 5 taken, 2 rollbacks, they cost 10 s, suggested interval 45 s (Young), "
        "44 s (Daly)"
    ) in text
    assert "update modelled: normal(10s, 3s)" in text


def test_a_list_of_arguments_reads_as_it_was_written(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"relax": {"fault": ["a at 3s", "b at random"]}})
    run.finish({"status": "converged"})
    assert "fault a at 3s; b at random" in text_of(page_of(tmp_path, run))


def test_a_run_without_faults_and_checkpoints_says_nothing_of_them(tmp_path: Path) -> None:
    html = page_of(tmp_path, make_relaxation(tmp_path / "run"))
    assert "injected" not in html
    assert "checkpoints" not in html


def test_all_figures_are_there_and_valid_for_plotly(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_relaxation(tmp_path / "run", faults=1)))
    assert list(figures) == FIGURES
    for figure in figures.values():
        go.Figure(figure)  # raises for any property that Plotly does not know


def test_the_residual_against_time_and_against_sweeps(tmp_path: Path) -> None:
    figures = figures_of(page_of(tmp_path, make_relaxation(tmp_path / "run")))
    for name, step in (("residual_time", UPDATE_TIME), ("residual_sweeps", 1.0)):
        figure = figures[name]
        assert figure["layout"]["yaxis"]["type"] == "log"
        (curve,) = traces(figure, "residual")
        assert curve["x"] == pytest.approx([step * sweep for sweep in range(1, 301)])
        assert curve["y"] == pytest.approx(0.96 ** np.arange(1, 301), rel=1e-5)
        (level,) = traces(figure, "tolerance")
        assert level["y"] == [1e-5, 1e-5]
        assert level["x"] == pytest.approx([step, 300 * step])


def test_faults_rollbacks_and_checkpoints_are_marked_where_they_happened(tmp_path: Path) -> None:
    run = make_relaxation(tmp_path / "run", sweeps=300, faults=2, checkpoints=4)
    figure = figures_of(page_of(tmp_path, run))["residual_sweeps"]
    (faults,) = traces(figure, "faults")
    (rollbacks,) = traces(figure, "rollbacks")
    (checkpoints,) = traces(figure, "checkpoints")
    assert faults["x"] == [100, 200]
    assert rollbacks["x"] == [102, 202]
    assert checkpoints["x"] == [60, 120, 180, 240]
    assert faults["y"] == pytest.approx([1e4 * 0.96**100, 1e4 * 0.96**200], rel=1e-5)
    assert faults["text"][0].startswith("uniform(-100, 100) on 40 components: residual 169")
    symbols = {trace["marker"]["symbol"] for trace in (faults, rollbacks, checkpoints)}
    assert len(symbols) == 3


def test_many_checkpoints_are_switched_off_and_the_error_of_many_runs(tmp_path: Path) -> None:
    runs = [make_relaxation(tmp_path / f"run{i}", checkpoints=40 * (i == 0)) for i in range(3)]
    (checkpoints,) = traces(figures_of(page_of(tmp_path, runs[0]))["residual_time"], "checkpoints")
    assert not checkpoints["visible"]
    figure = figures_of(page_of(tmp_path, *runs))["residual_time"]
    assert [trace["visible"] for trace in traces(figure, "error of the iterate")] == [False] * 3
    assert len(traces(figure, "tolerance")) == 1  # the same for all


def test_a_residual_that_no_logarithm_has_is_left_out(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"relax": {"method": "jacobi"}})
    for step, value in enumerate([1.0, 0.5, 0.0, np.nan, np.inf], start=1):
        run.metric(step, step, "observer", "residual", value, step)
    run.finish({"status": "diverged", "unknowns": 2})
    figures = figures_of(page_of(tmp_path, run))
    (curve,) = traces(figures["residual_sweeps"], "residual")
    assert (curve["x"], curve["y"]) == ([0.5, 1.0], [1.0, 0.5])
    (cross,) = traces(figures["residual_sweeps"], "diverged")
    assert (cross["x"], cross["y"]) == ([1.0], [0.5])
    assert list(figures) == ["residual_time", "residual_sweeps"]


def test_updates_of_each_processor_by_its_number(tmp_path: Path) -> None:
    run = make_relaxation(tmp_path / "run", processors=12)
    (dots,) = figures_of(page_of(tmp_path, run))["updates"]["data"]
    assert dots["x"] == list(range(12))
    assert dots["y"] == [300 - 5 * (processor % 3) for processor in range(12)]
    assert dots["text"][1] == "processor 1: 295 updates"


def test_the_histogram_of_staleness_is_that_of_the_counts(tmp_path: Path) -> None:
    counts = {"mean": 1.5, "max": 2, "counts": [0, 6, 2]}
    run = make_relaxation(tmp_path / "run", staleness=counts)
    (area,) = figures_of(page_of(tmp_path, run))["staleness"]["data"]
    # Bins from 0.5 to 1.5 and on to 2.5, three quarters and one quarter high.
    assert area["x"] == [0.5, 0.5, 1.5, 1.5, 2.5, 2.5]
    assert area["y"] == [0, 0.75, 0.75, 0.25, 0.25, 0]


def test_wide_bins_share_their_height_and_the_last_says_that_it_is_open(tmp_path: Path) -> None:
    counts = {"mean": 30.0, "max": 5000, "width": 10, "counts": [3, 0, 1]}
    html = page_of(tmp_path, make_relaxation(tmp_path / "run", staleness=counts))
    (area,) = figures_of(html)["staleness"]["data"]
    assert area["x"] == [-0.5, -0.5, 9.5, 9.5, 19.5, 19.5, 29.5, 29.5]
    assert area["y"] == pytest.approx([0, 0.075, 0.075, 0, 0, 0.025, 0.025, 0])
    assert "The last bin includes all larger values." in html


def test_phases_stand_one_behind_the_other(tmp_path: Path) -> None:
    """A processor that copies for 1 s, computes for 2 s, waits for 1 s, and so on."""
    run = RunFolder.create(tmp_path / "run", {"relax": {"method": "jacobi"}})
    timeline = Timeline()
    for begin in range(0, 40, 4):
        timeline.span("processor0", "compute", "copy", begin, begin + 1)
        timeline.span("processor0", "compute", "compute", begin + 1, begin + 3)
    timeline.span("processor0", "compute", "copy", 40, 41)
    run.finish({"status": "converged", "virtual_time": 41.0}, timeline)
    figures = figures_of(page_of(tmp_path, run))
    bars = {
        trace["name"] and trace["meta"]["series"]: trace for trace in figures["utilisation"]["data"]
    }
    # Up to the beginning of the last span, 40 s.
    assert (bars["copy"]["base"], bars["copy"]["x"]) == ([0.0], [0.25])
    assert (bars["compute"]["base"], bars["compute"]["x"]) == ([0.25], [0.5])
    shown = {trace["meta"]["series"]: len(trace["x"]) for trace in figures["timeline"]["data"]}
    assert shown == {"copy": 11, "compute": 10}


def test_several_runs_share_a_table_and_every_figure(tmp_path: Path) -> None:
    runs = [make_relaxation(tmp_path / f"run{n}", processors=n) for n in (1, 10, 300)]
    html = page_of(tmp_path, *runs)
    for n in (1, 10, 300):
        assert f"jacobi, {n} processor{'s' * (n > 1)}<td>" in html
    for name, figure in figures_of(html).items():
        if not name.startswith(("timeline", "time_to", "sweeps_to")):
            shown = {trace["meta"]["run"] for trace in figure["data"]} - {-1}
            assert shown == {0, 1, 2}, name


REACHED = f"{1.1**120:.3g}"
DIVERGED = (
    f"The iteration diverged: the residual from 1 reached {REACHED}, "
    "growing by the factor 1.1 a sweep."
)
STOPPED = (
    f"The run reached its limit before it converged: the residual is {REACHED}, "
    "the tolerance 1e-05."
)
INTERRUPTED = "The run was interrupted."


@pytest.mark.parametrize(
    ("status", "level", "sentence"),
    [
        ("diverged", "bad", DIVERGED),
        ("stopped", "warning", STOPPED),
        ("interrupted", "warning", INTERRUPTED),
    ],
)
def test_an_end_short_of_convergence_is_told_in_words(
    tmp_path: Path, status: str, level: str, sentence: str
) -> None:
    html = page_of(tmp_path, make_relaxation(tmp_path / "run", sweeps=120, rate=1.1, status=status))
    assert sentence in text_of(html)
    assert f'<span class="status {level}">{status}' in html


def test_an_unfinished_run_shows_how_far_it_got(tmp_path: Path) -> None:
    run = make_relaxation(tmp_path / "run", sweeps=50, status=None)
    html = page_of(tmp_path, run)
    assert f"Relaxations {50 * UNKNOWNS:,}" in text_of(html)
    assert "Residual 0.13" in text_of(html)  # 0.96^50
    # Nobody has said yet how many relaxations are a sweep.
    assert "Residual against relaxations" in html
    (curve,) = traces(figures_of(html)["residual_sweeps"], "residual")
    assert curve["x"][-1] == 50 * UNKNOWNS


def test_every_figure_as_a_file(tmp_path: Path) -> None:
    runs = [
        make_relaxation(tmp_path / "a", faults=2, checkpoints=40),
        make_relaxation(tmp_path / "b", processors=300, sweeps=60, rate=1.2, status="diverged"),
    ]
    one = write_images(runs[:1], tmp_path / "one", "png")
    assert [file.stem for file in one] == FIGURES
    two = write_images(runs, tmp_path / "two", "svg")
    against = ["time_to_tolerance", "sweeps_to_tolerance"]
    assert [file.stem for file in two] == [*against, *FIGURES[:-1], "timeline_1", "timeline_2"]
    assert all(file.stat().st_size > 5000 for file in (*one, *two))
