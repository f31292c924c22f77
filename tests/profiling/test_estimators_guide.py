"""docs/profiling.md: its program that fits estimators runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from synthetic_device import draw, timings_of

from paracosm.profiling.database import ProfileDatabase

GUIDE = (Path(__file__).parents[2] / "docs" / "profiling.md").read_text()


def test_the_program_of_the_guide_prints_scores_and_an_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with ProfileDatabase.open("profiles.db", create=True) as database:
        database.add(timings_of(draw("dev.add.Tensor", 12, 0)))
    (program,) = re.findall(r"```python\n([^`]*fit_estimators\(.*?)```", GUIDE, re.DOTALL)
    exec(program, {})
    score, estimate = capsys.readouterr().out.splitlines()
    assert score.startswith("dev.add.Tensor")
    assert estimate.endswith("exact exact")
