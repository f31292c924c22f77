"""The page in a real browser: it renders, complains of nothing, asks for nothing, and responds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from chromium import NAMES, Browser, find_chromium, wait_for
from PIL import Image
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


def drawn(browser: Browser, figure: str, **which: object) -> bool:
    """Whether the figure shows a trace of a run or series."""
    conditions = "".join(f"[data-{key}={json.dumps(str(value))}]" for key, value in which.items())
    selector = json.dumps(f"#{figure} .trace{conditions}")
    return bool(browser.run(f"document.querySelectorAll({selector}).length > 0"))


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
    # Nothing sticks out to the side, and every figure has drawn something within its frame, those
    # that were folded too.
    browser.run("document.querySelectorAll('details').forEach(each => each.open = true)")
    browser.wait("[...document.querySelectorAll('.plot')].every(p => p.querySelector('.drawing'))")
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(
        "[...document.querySelectorAll('figure')].every(f => {"
        " const marks = [...f.querySelectorAll('.trace')].filter(t => t.getAttribute('d'));"
        " const plot = f.querySelector('.drawing').getBoundingClientRect();"
        " const frame = f.getBoundingClientRect();"
        " return marks.length && plot.width > 100 && plot.right <= frame.right + 1"
        "   && plot.bottom <= frame.top + f.scrollHeight + 2; })"
    )


@pytest.mark.parametrize(("width", "opened"), [(420, 0), (1280, 3)])
def test_what_stands_below_the_figures_is_folded_on_a_narrow_screen(
    browser: Browser, one: Path, width: int, opened: int
) -> None:
    browser.open(one, width)
    folds = "[...document.querySelectorAll('section > details:has(h2)')]"
    assert browser.run(f"{folds}.filter(fold => fold.open).length") == opened
    assert browser.run(f"{folds}.length") == 3


@pytest.mark.parametrize("page", ["several", "relaxations"])
@pytest.mark.parametrize("width", [420, 1280])
def test_no_label_is_cut_off_or_covers_another(
    browser: Browser, page: str, width: int, request: pytest.FixtureRequest
) -> None:
    browser.open(request.getfixturevalue(page), width)
    found = browser.run(
        "(() => { const boxes = t => t.getBoundingClientRect(), wrong = [];"
        " for (const svg of document.querySelectorAll('.drawing')) {"
        "  const frame = boxes(svg), texts = [...svg.querySelectorAll('text')];"
        "  for (const t of texts) { const b = boxes(t);"
        "   if (b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 1"
        "       || b.bottom > frame.bottom + 1) wrong.push('cut ' + t.textContent); }"
        "  for (const which of ['x', 'y']) {"
        "   const ticks = [...svg.querySelectorAll('.tick.' + which)].map(boxes);"
        "   ticks.forEach((a, i) => ticks.slice(i + 1).forEach(b => {"
        "    if (a.left < b.right && b.left < a.right && a.top < b.bottom - 3"
        "        && b.top < a.bottom - 3) wrong.push('covered'); })); } }"
        " return wrong.join(); })()"
    )
    assert found == ""


def test_a_click_on_a_run_hides_it_everywhere_and_another_shows_it(
    browser: Browser, several: Path
) -> None:
    browser.open(several)
    assert drawn(browser, "loss_time", run=1, series="training loss")
    browser.click('[data-run="1"]')
    for figure in ("loss_updates", "loss_time", "accuracy_time", "staleness", "utilisation"):
        assert not drawn(browser, figure, run=1)
        assert drawn(browser, figure, run=2)
    assert browser.run("document.querySelector('[data-run=\"1\"]').ariaPressed") == "false"
    browser.click('[data-run="1"]')
    assert drawn(browser, "loss_time", run=1, series="training loss")
    # What was hidden before for another reason still is.
    assert not drawn(browser, "loss_time", run=1, series="minibatch loss")


def test_a_reference_line_belongs_to_no_run(browser: Browser, relaxations: Path) -> None:
    browser.open(relaxations)
    browser.click('[data-run="0"]')
    assert not drawn(browser, "residual_time", run=0)
    assert drawn(browser, "residual_time", series="tolerance")
    browser.click('#residual_time [data-series="tolerance"]')
    assert not drawn(browser, "residual_time", series="tolerance")


def test_a_click_on_a_series_hides_it_in_its_figure_only(browser: Browser, one: Path) -> None:
    browser.open(one)
    assert drawn(browser, "loss_updates", series="minibatch loss")
    browser.click('#loss_updates [data-series="minibatch loss"]')
    assert not drawn(browser, "loss_updates", series="minibatch loss")
    assert drawn(browser, "loss_updates", series="training loss")
    assert drawn(browser, "loss_time", series="minibatch loss")


TICKS = "[...document.querySelectorAll('#{} .tick.{}')].map(t => t.textContent)"


def test_a_click_switches_to_a_logarithmic_axis_of_plain_numbers(
    browser: Browser, one: Path
) -> None:
    browser.open(one)
    ticks = TICKS.format("loss_updates", "y")
    # The loss falls from 2.3 to 0.16, that of minibatches a little further.
    linear = browser.run(ticks)
    assert "1.5" in linear
    browser.click('#loss_updates [data-axis="y"] [data-scale="log"]')
    assert browser.run(ticks)[-4:] == ["0.2", "0.5", "1", "2"]
    browser.click('#loss_updates [data-axis="y"] [data-scale="linear"]')
    assert browser.run(ticks) == linear
    browser.click('#loss_time [data-axis="x"] [data-scale="log"]')
    assert "0.05" in browser.run(TICKS.format("loss_time", "x"))  # an update takes 20 ms
    assert browser.problems == []


def test_the_mouse_over_a_curve_shows_its_value(browser: Browser, one: Path) -> None:
    browser.open(one)
    point = (
        "(() => { const plot = document.querySelector('#accuracy_time .plot');"
        " plot.scrollIntoView({block: 'center'});"
        " const path = plot.querySelector('.trace'), at = path.getAttribute('d').slice(1);"
        " const [x, y] = at.split('L')[5].split(' ').map(Number);"
        " const box = plot.getBoundingClientRect(); return [box.x + x, box.y + y]; })()"
    )
    x, y = browser.run(point)
    browser.move(x - 30, y)
    browser.move(x, y)
    told = browser.wait("document.querySelector('#accuracy_time .told')?.textContent")
    # Update 120 of 20 ms each; 1 - 2.3 / sqrt(120) / 3.
    assert told == "test accuracy 0.930013 at 2.4"


def test_the_mouse_over_a_run_shows_its_settings(browser: Browser, several: Path) -> None:
    browser.open(several)
    left, top, width, height = browser.run(
        "(() => { const p = document.querySelector('#utilisation .trace[data-run=\"2\"]');"
        " p.scrollIntoView({block: 'center'}); const b = p.getBoundingClientRect();"
        " return [b.x, b.y, b.width, b.height]; })()"
    )
    browser.move(left, top)
    browser.move(left + width / 2, top + height / 2)
    told = browser.wait("document.querySelector('#utilisation .told')?.textContent")
    assert told.endswith("asgd, 4 workers (asgd4)asgd, 4 workers, seed 3, mlp, lr 0.2")


def test_a_comparison_on_a_telephone_has_an_end(browser: Browser, several: Path) -> None:
    browser.open(several, 400)
    assert browser.run("document.documentElement.scrollHeight") < 4000


def test_dragging_zooms_and_a_double_click_goes_back(browser: Browser, one: Path) -> None:
    browser.open(one)
    ticks = TICKS.format("loss_updates", "x")
    before = browser.run(ticks)
    left, top, width, height = browser.run(
        "(() => { const p = document.querySelector('#loss_updates .plot');"
        " p.scrollIntoView({block: 'center'}); const b = p.getBoundingClientRect();"
        " return [b.x, b.y, b.width, b.height]; })()"
    )
    browser.drag(left + 0.4 * width, top + 0.3 * height, left + 0.6 * width, top + 0.6 * height)
    assert browser.run(ticks) != before
    browser.run(
        "document.querySelector('#loss_updates .plot').dispatchEvent(new MouseEvent('dblclick'))"
    )
    assert browser.run(ticks) == before


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_a_button_saves_a_figure(
    browser: Browser, several: Path, tmp_path: Path, ending: str
) -> None:
    browser.open(several)
    browser.downloads_to(tmp_path)
    browser.click(f"#loss_time [data-save={ending}]")
    file = tmp_path / f"loss_time.{ending}"
    wait_for(lambda: file.exists() and file.stat().st_size > 0)
    if ending == "svg":
        root = ElementTree.fromstring(file.read_text())
        texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
        # Its title, its legend and its axes are in it.
        assert "Loss against virtual time" in texts
        assert "asgd, 16 workers" in texts
        assert "loss" in texts
        assert root.get("width") == str(2 * 960)
    else:
        image = Image.open(file)
        assert image.width == 2 * 960
        assert len(image.convert("RGB").getcolors(1 << 20)) > 8  # curves of several colours
    assert browser.problems == []


def test_figures_follow_the_colours_of_the_page(browser: Browser, one: Path) -> None:
    browser.open(one, scheme="light")
    color = "document.querySelector('#loss_time .drawing').getAttribute('fill')"
    light = browser.run(color)
    browser.theme("dark")
    browser.wait(f"{color} !== {json.dumps(light)}")
    assert browser.problems == []


@pytest.mark.parametrize("page", ["one", "several", "relaxations"])
def test_a_page_is_small_and_soon_there(
    browser: Browser, page: str, request: pytest.FixtureRequest
) -> None:
    file = request.getfixturevalue(page)
    assert file.stat().st_size < 1_500_000
    times = []
    for _ in range(3):
        browser.open(file)
        times.append(
            browser.run("performance.getEntriesByType('navigation')[0].domComplete") / 1000
        )
    assert min(times) < 0.5


def test_the_names_of_runs_stay_while_their_numbers_scroll(browser: Browser, several: Path) -> None:
    browser.open(several, 400)
    first = "document.querySelector('table.numbers tbody th')"
    before = browser.run(f"{first}.getBoundingClientRect().left")
    moved = browser.run(
        f"(() => {{ const s = {first}.closest('.scroll'); s.scrollLeft = 200;"
        " return s.scrollLeft; })()"
    )
    assert moved == 200  # there is more than 400 pixels show
    assert browser.run(f"{first}.getBoundingClientRect().left") == before
    assert browser.run(f"{first}.offsetWidth") < 200
