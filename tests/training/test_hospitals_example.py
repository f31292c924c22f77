"""The example of clients' own data, and the commands that the guide to clients prints for it."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from paracosm.cli import main

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "federated" / "hospitals.py"


@pytest.mark.slow
def test_what_fits_into_a_time_is_faster(capsys: pytest.CaptureFixture[str]) -> None:
    assert runpy.run_path(str(EXAMPLE))["main"](["--seeds", "1"]) == 0
    assert capsys.readouterr().out.count("\nyes  ") == 3


def test_hospitals_share_the_tumours_among_them() -> None:
    example = runpy.run_path(str(EXAMPLE))
    hospitals = example["load"](12)
    sizes = [
        len(train_y) + len(test_y)
        for _, train_y, _, test_y in map(hospitals.__getitem__, range(12))
    ]
    assert sum(sizes) == 569
    assert min(sizes) >= 8


def test_the_guide_s_commands_for_own_data_run_as_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "clients.md").read_text()
    sections = text.partition("## Data of your own")[2].partition("\n## Client speeds")[0]
    commands = re.findall(r"```\nparacosm (train .*?)```", sections, re.DOTALL)
    assert len(commands) == 3
    monkeypatch.chdir(ROOT)
    for command in commands:
        assert main(shlex.split(command.replace("\\\n", " "))) == 0
        assert "by client           accuracy" in capsys.readouterr().out
