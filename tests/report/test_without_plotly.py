"""Reports where Plotly and Matplotlib are not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from paracosm.cli import main


def test_a_report_has_its_tables_and_says_what_draws_charts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("plotly", "plotly.offline", "matplotlib"):
        monkeypatch.setitem(sys.modules, module, None)
    out = tmp_path / "run"
    command = ["train", "--timing-only", "--updates", "20", "--out", str(out), "--quiet"]
    assert main(command) == 0
    page = (out / "report.html").read_text()
    assert "pip install &quot;paracosm[report]&quot;" in page
    assert "<dt>Updates<dd>20" in page
    assert main(["report", str(out), "--images", "png"]) == 2
    assert 'needs matplotlib: pip install "paracosm[report]"' in capsys.readouterr().err
