"""The page in a real browser: it renders, complains of nothing, asks for nothing, and responds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import NAMES, Browser, find_chromium
from synthetic import make_run
from synthetic_relaxation import make_relaxation

from paracosm.report import write_report
from paracosm.studies.run_folder import RunFolder

pytestmark = pytest.mark.skipif(
    find_chromium() is None,
    reason="THE REPORT IS NOT TESTED: no Chromium here. Install it (Debian: apt-get install "
    f"chromium), so that one of {', '.join(NAMES)} is on the PATH",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    executable = find_chromium()
    assert executable is not None
    with Browser(executable, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    write_report([make_run(folder / "run")], folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight runs: more than the palette has colours, one of them unfinished, one diverged."""
    folder = tmp_path_factory.mktemp("several")
    runs = [make_run(folder / f"asgd{n}", workers=n) for n in (1, 2, 4, 8, 16, 64)]
    runs.append(make_run(folder / "killed", "ssgd", status=None))
    runs.append(make_run(folder / "diverged", status="diverged"))
    write_report([RunFolder.open(run.path) for run in runs], folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def relaxation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("relaxation")
    write_report([make_relaxation(folder / "run", faults=2, checkpoints=9)], folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def relaxations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that converged, one of many processors that diverged, one that was killed."""
    folder = tmp_path_factory.mktemp("relaxations")
    runs = [
        make_relaxation(folder / "good", faults=2),
        make_relaxation(folder / "bad", processors=500, sweeps=60, rate=1.2, status="diverged"),
        make_relaxation(folder / "killed", "sor", status=None),
    ]
    write_report([RunFolder.open(run.path) for run in runs], folder / "report.html")
    return folder / "report.html"


def traces(browser: Browser, figure: str) -> list[dict[str, object]]:
    """Return run, series and visibility of each trace, as Plotly has it now."""
    return json.loads(
        browser.run(
            f"JSON.stringify(document.querySelector('#{figure} .plot').data"
            ".map(t => ({...t.meta, visible: t.visible})))"
        )
    )


def visible(browser: Browser, figure: str, **which: object) -> set[object]:
    """Return the visibilities of the traces of a run or series."""
    return {
        trace["visible"]
        for trace in traces(browser, figure)
        if all(trace[key] == value for key, value in which.items())
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("page", ["one", "several", "relaxation", "relaxations"])
def test_it_renders_without_an_error_or_a_request(
    browser: Browser, page: str, width: int, scheme: str, request: pytest.FixtureRequest
) -> None:
    file = request.getfixturevalue(page)
    browser.open(file, width, scheme=scheme)
    assert browser.problems == []
    # The page itself, and data that is in it.
    outside = [url for url in browser.requests if not url.startswith(("data:", "blob:"))]
    assert outside == [file.resolve().as_uri()]
    # Nothing sticks out to the side, and every figure has drawn something within its frame.
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(
        "[...document.querySelectorAll('figure')].every(f => {"
        " const marks = f.querySelectorAll('.trace, .point, .scatterlayer path');"
        " const plot = f.querySelector('.main-svg').getBoundingClientRect();"
        " const frame = f.getBoundingClientRect();"
        " return marks.length && plot.width > 100 && plot.right <= frame.right + 1"
        "   && plot.bottom <= frame.bottom + 1; })"
    )


@pytest.mark.parametrize("page", ["several", "relaxations"])
def test_no_label_is_cut_off(browser: Browser, page: str, request: pytest.FixtureRequest) -> None:
    browser.open(request.getfixturevalue(page), 420)
    assert (
        browser.run(
            "[...document.querySelectorAll('.xtick text, .ytick text, .xtitle, .ytitle')]"
            ".filter(t => { const b = t.getBoundingClientRect();"
            " const svg = t.closest('.main-svg').getBoundingClientRect();"
            " if (!b.width) return false;"  # Plotly itself leaves this one out
            " return b.left < svg.left - 1 || b.bottom > svg.bottom + 1 || b.top < svg.top - 1; })"
            ".map(t => t.textContent).join()"
        )
        == ""
    )


def test_a_click_on_a_run_hides_it_everywhere_and_another_shows_it(
    browser: Browser, several: Path
) -> None:
    browser.open(several)
    assert visible(browser, "loss_time", run=1, series="training loss") == {True}
    browser.click('[data-run="1"]')
    for figure in ("loss_updates", "loss_time", "accuracy_time", "staleness", "utilisation"):
        assert visible(browser, figure, run=1) == {False}
        assert True in visible(browser, figure, run=2)
    assert browser.run("document.querySelector('[data-run=\"1\"]').ariaPressed") == "false"
    browser.click('[data-run="1"]')
    assert visible(browser, "loss_time", run=1, series="training loss") == {True}
    # What was hidden before for another reason still is.
    assert visible(browser, "loss_time", run=1, series="minibatch loss") == {False}


def test_a_reference_line_belongs_to_no_run(browser: Browser, relaxations: Path) -> None:
    browser.open(relaxations)
    browser.click('[data-run="0"]')
    assert visible(browser, "residual_time", run=0) == {False}
    assert visible(browser, "residual_time", series="tolerance") == {True}
    browser.click('#residual_time [data-series="tolerance"]')
    assert visible(browser, "residual_time", series="tolerance") == {False}


def test_a_click_on_a_series_hides_it_in_its_figure_only(browser: Browser, one: Path) -> None:
    browser.open(one)
    assert visible(browser, "loss_updates", series="minibatch loss") == {True}
    browser.click('#loss_updates [data-series="minibatch loss"]')
    assert visible(browser, "loss_updates", series="minibatch loss") == {False}
    assert visible(browser, "loss_updates", series="training loss") == {True}
    assert visible(browser, "loss_time", series="minibatch loss") == {True}


def test_a_click_switches_between_linear_and_log(browser: Browser, one: Path) -> None:
    browser.open(one)
    scale = "document.querySelector('#loss_time .plot')._fullLayout.{}axis.type"
    before = browser.run(scale.format("y"))
    other = {"linear": "log", "log": "linear"}[before]
    browser.click(f'#loss_time [data-axis="y"] [data-scale="{other}"]')
    assert browser.run(scale.format("y")) == other
    assert browser.run(scale.format("x")) == "linear"
    browser.click('#loss_time [data-axis="x"] [data-scale="log"]')
    assert browser.run(scale.format("x")) == "log"
    assert browser.problems == []


def test_logarithmic_axes_have_plain_numbers(browser: Browser, one: Path) -> None:
    browser.open(one)
    browser.click('#loss_updates [data-axis="y"] [data-scale="log"]')
    ticks = "[...document.querySelectorAll('#loss_updates .ytick text')].map(t => t.textContent)"
    # The loss falls from 2.3 to 0.16, that of minibatches a little further.
    browser.wait(f"{ticks}.slice(-4).join() === '0.2,0.5,1,2'")
    browser.click('#loss_updates [data-axis="y"] [data-scale="linear"]')
    browser.wait(f"{ticks}.includes('1.5')")
    assert browser.problems == []


def test_the_mouse_over_a_curve_shows_its_value(browser: Browser, one: Path) -> None:
    browser.open(one)
    x, y = browser.run(
        "(() => { const plot = document.querySelector('#accuracy_time .plot');"
        " plot.scrollIntoView({block: 'center'});"
        " const trace = plot.data[0], layout = plot._fullLayout;"
        " const box = plot.getBoundingClientRect();"
        " return [box.x + layout._size.l + layout.xaxis.d2p(trace.x[5]),"
        "         box.y + layout._size.t + layout.yaxis.d2p(trace.y[5])]; })()"
    )
    browser.move(x - 30, y)
    browser.move(x, y)
    hover = browser.wait("document.querySelector('#accuracy_time .hovertext')?.textContent")
    # Update 120 of 20 ms each; 1 - 2.3 / sqrt(120) / 3.
    assert "0.93" in hover
    assert "2.4" in hover


def test_figures_follow_the_colours_of_the_page(browser: Browser, one: Path) -> None:
    browser.open(one, scheme="light")
    color = "document.querySelector('#loss_time .plot')._fullLayout.font.color"
    light = browser.run(color)
    browser.theme("dark")
    browser.wait(f"{color} !== {json.dumps(light)}")
    assert browser.problems == []
