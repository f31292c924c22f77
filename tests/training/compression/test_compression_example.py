"""The program under examples/compression runs, and its checks hold."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

RUN = Path(__file__).parents[3] / "examples" / "compression" / "run.py"


@pytest.mark.slow
def test_error_feedback_is_needed_and_compression_pays_on_slow_links(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert runpy.run_path(str(RUN))["main"](["--quick"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("\nok  ") == 4
    assert "FAIL" not in printed
