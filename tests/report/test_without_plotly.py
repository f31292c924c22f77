"""Reports where Plotly and Matplotlib are not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import paracosm
from paracosm.cli import main
from paracosm.errors import MissingExtraError


def test_a_report_draws_its_figures_alone_and_images_say_what_draws_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("plotly", "plotly.offline", "plotly.graph_objects", "matplotlib"):
        monkeypatch.setitem(sys.modules, module, None)
    out = tmp_path / "run"
    command = ["train", "--timing-only", "--updates", "20", "--out", str(out), "--quiet"]
    assert main(command) == 0
    page = (out / "report.html").read_text()
    assert 'id="figures-data"' in page
    assert "const drawing =" in page
    assert "<dt>Updates<dd>20" in page
    assert main(["report", str(out), "--images", "png"]) == 2
    assert 'needs matplotlib: pip install "paracosm[report]"' in capsys.readouterr().err
    with pytest.raises(MissingExtraError, match=r"paracosm\[report\]"):
        _ = paracosm.open(out).figures
