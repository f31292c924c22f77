"""Every figure as a file."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from synthetic import make_run

from paracosm.errors import InputError
from paracosm.report import write_images
from paracosm.report.images import draw
from paracosm.results.chart import Axis, Chart, Curve

NAMES = ["loss_updates", "loss_time", "accuracy_time", "staleness", "utilisation", "timeline"]


def test_png_files_are_pictures_with_something_on_them(tmp_path: Path) -> None:
    written = write_images([make_run(tmp_path / "run")], tmp_path / "images")
    assert written == [tmp_path / "images" / f"{name}.png" for name in NAMES]
    for file in written:
        with Image.open(file) as picture:
            assert picture.format == "PNG"
            assert picture.width >= 1000
            assert len(picture.convert("RGB").getcolors(maxcolors=2**24)) > 20


def test_svg_files_parse_and_are_the_same_each_time(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    first = write_images([run], tmp_path / "first", "svg")
    second = write_images([run], tmp_path / "second", "svg")
    assert [file.name for file in first] == [f"{name}.svg" for name in NAMES]
    for one, other in zip(first, second, strict=True):
        assert ElementTree.parse(one).getroot().tag.endswith("svg")
        assert one.read_bytes() == other.read_bytes()


def test_several_runs_overlay_and_each_has_its_timeline(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / f"run{n}", workers=n) for n in (1, 2, 4, 8)]
    runs.append(make_run(tmp_path / "diverged", status="diverged"))
    written = write_images(runs, tmp_path / "images", "svg")
    assert [file.stem for file in written] == [
        *("final_loss", "time_to_goal", "updates_to_goal", "throughput"),
        *NAMES[:-1],
        "timeline_1",
        "timeline_2",
        "timeline_3",
        "timeline_4",
    ]


@pytest.mark.parametrize(("most", "written"), [(1000.0, "1,000"), (1e9, "10^{")])
def test_logarithmic_axes_have_plain_numbers_where_those_are_short(
    most: float, written: str
) -> None:
    line = Curve(np.array([1.0, most]), np.array([1.0, 2.0]), 0, "time")
    chart = Chart("a", "A", Axis("workers", log=True), Axis("time"), (line,))
    figure = Figure()
    draw(chart, ["run"], figure)
    ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert any(written in tick for tick in ticks), ticks


def test_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='unknown image format "pgn": did you mean "png"'):
        write_images([make_run(tmp_path / "run")], tmp_path, "pgn")
