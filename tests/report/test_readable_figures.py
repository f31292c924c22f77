"""What makes figures readable: whole numbers on axes that count, marks that can be told apart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from matplotlib.figure import Figure
from synthetic import make_run
from written_page import figures_of, page_of

from paracosm.report.chart import dash_of, drawn_sections
from paracosm.report.figures import plotly_figure
from paracosm.report.images import draw
from paracosm.report.runs import described, settings_of
from paracosm.report.writing import SYMBOLS, section
from paracosm.results.chart import Axis, Chart, Curve, Dots, Section
from paracosm.results.charts import histogram, histogram_chart
from paracosm.results.comparison import argument
from paracosm.studies.run_folder import RunFolder


def drawn(x: Axis, values: list[float], **chart: Any) -> Chart | None:
    """Return a chart of one line over `x` as a page has it; None where it is left out."""
    line = Curve(np.array(values), np.linspace(0.25, 0.75, len(values)), 0, "loss")
    sections = drawn_sections({"A": [Chart("a", "A", x, Axis("loss"), (line,), **chart)]}, [])
    return sections[0].charts[0] if sections else None


@pytest.mark.parametrize(
    ("axis", "values", "is_whole"),
    [
        (Axis("workers"), [1, 2, 4], True),
        (Axis("workers", log=True), [1, 2, 64], True),
        (Axis("mean staleness"), [1, 2.5], False),
        (Axis("time", "s"), [1, 2, 4], False),
        (Axis("share", percent=True), [0, 1], False),
    ],
)
def test_an_axis_on_which_all_is_whole_has_whole_ticks(
    axis: Axis, values: list[float], is_whole: bool
) -> None:
    chart = drawn(axis, values)
    assert chart is not None
    assert chart.x.whole is is_whole
    assert not chart.y.whole  # losses
    layout = plotly_figure(chart, ["run"])["layout"]["xaxis"]
    assert (layout.get("tickformat") == ",d") is is_whole
    assert (layout.get("dtick") == 1) is (is_whole and not axis.log)
    go.Figure(plotly_figure(chart, ["run"]))  # raises for what Plotly does not know


def test_an_image_has_whole_ticks_too() -> None:
    chart = drawn(Axis("workers"), [1, 2, 3])
    assert chart is not None
    figure = Figure()
    draw(chart, ["run"], figure)
    assert all(float(tick).is_integer() for tick in figure.axes[0].get_xticks())


def test_histograms_have_whole_ticks() -> None:
    # The edges of their bars lie between whole numbers.
    bins = histogram(np.array([0.0, 1.0, 1.0]))
    chart = histogram_chart("a", "A", "staleness (updates)", "gradients", [("run", 0, bins)])
    assert chart.x.whole


def test_points_above_each_other_are_no_chart() -> None:
    assert drawn(Axis("workers"), [4, 4]) is None
    assert drawn(Axis("workers"), [4]) is None
    assert drawn(Axis("workers"), [4, 8]) is not None


def test_points_above_each_other_are_a_chart_where_rows_have_names() -> None:
    dots = Dots(np.array([0.5, 0.5]), np.array([0.0, 1.0]), ("a", "b"), 0, "share")
    chart = Chart("a", "A", Axis("share"), Axis("", names=("one", "two")), (dots,))
    assert drawn_sections({"A": [chart]}, [])


def test_runs_of_one_algorithm_differ_in_their_dashes(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"{n}", workers=n, updates=40) for n in (1, 2, 4, 8, 16)]
    styles = [run.style for run in described(runs)]
    line = Curve(np.arange(2.0), np.arange(2.0), 0, "loss")
    dashes = [dash_of(line, [style]) for style in styles]
    assert dashes == ["longdash", "dashdot", "dot", "dash", "solid"]
    assert len({style.shade for style in styles}) == 5


def test_a_comparison_folds_many_timelines_and_what_is_not_about_its_answer(
    tmp_path: Path,
) -> None:
    runs = [make_run(tmp_path / f"{n}", workers=n, updates=40) for n in range(1, 6)]
    html = page_of(tmp_path, *runs)
    assert html.index("<summary>Show these figures") < html.index('<figure id="timeline_1"')
    assert len([name for name in figures_of(html) if name.startswith("timeline")]) == 4
    assert "<details><summary><h2>Configuration</h2>" in html
    assert "Show these figures" not in page_of(tmp_path, *runs[:4])
    unfolded = "<details open class=wide-only><summary><h2>Configuration</h2>"
    assert unfolded in page_of(tmp_path, runs[0])


def test_a_runs_settings_are_what_differs_and_what_is_no_default(tmp_path: Path) -> None:
    defaults = {"workers": "4", "model": "mlp"}
    runs = [
        make_run(tmp_path / "one", workers=4, updates=40, defaults=defaults),
        make_run(tmp_path / "two", workers=8, updates=40, defaults={"model": "mlp"}),
    ]
    shown = described([RunFolder.open(run.path) for run in runs])
    assert settings_of(shown) == [
        "4 workers, seed 3, asgd, lr 0.2",
        "8 workers, seed 3, asgd, lr 0.2",
    ]
    # The page's script shows them beside the name of the run that the mouse is over.
    assert 'title="8 workers, seed 3, asgd, lr 0.2"' in page_of(tmp_path, *runs)


def test_a_series_has_the_line_and_the_symbol_of_its_chart_in_its_legend() -> None:
    x = np.array([1.0, 2.0])
    marks = (Curve(x, x, 0, "loss"), Dots(x, x, ("a", "b"), 0, "loss", "triangle"))
    html = section(Section("A", (Chart("a", "A", Axis("x"), Axis("y"), marks),)))
    (sample,) = re.findall(r"<svg viewBox.*?</svg>", html)
    assert 'd="M0 5h18"' in sample
    assert f'd="{SYMBOLS["triangle"]}"' in sample


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("processors", 5, "5 processors"),
        ("servers", 1, "1 server"),
        ("workers", 1024, "1,024 workers"),
        ("lr", 0.1, "lr 0.1"),
    ],
)
def test_numbers_stand_before_what_they_count(name: str, value: Any, text: str) -> None:
    assert argument(name, value) == text
