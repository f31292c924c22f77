"""The example of buffered rounds against synchronous ones, with one seed."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "federated" / "run.py"


@pytest.mark.slow
def test_buffered_rounds_are_several_times_faster_where_some_clients_are_slow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert runpy.run_path(str(EXAMPLE))["main"](["--seeds", "1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    claims = [line for line in printed if line.startswith(("yes", "NO"))]
    assert len(claims) == 3
    assert all(claim.startswith("yes") for claim in claims)


def test_too_few_updates_are_seen(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(EXAMPLE))
    for design in example["DESIGNS"].values():
        design["updates"] = 2
    assert example["main"](["--seeds", "1"]) == 1
    assert "NO   every run reaches the target" in capsys.readouterr().out
