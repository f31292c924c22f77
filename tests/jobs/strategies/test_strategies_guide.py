"""The program of docs/strategies.md prints what it says, and its tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paracosm.jobs.strategies.strategy import KEYS, NAMES

GUIDE = Path(__file__).parents[3] / "docs" / "strategies.md"


def test_the_program_of_the_guide_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = GUIDE.read_text()
    ((program, printed),) = re.findall(
        r"```python\n(.*?)```\n\n((?:    [^\n]*\n)+)", text, re.DOTALL
    )
    exec(program, {})
    assert capsys.readouterr().out == re.sub("^    ", "", printed, flags=re.M)


def test_the_tables_of_the_guide_have_every_key_and_name() -> None:
    text = GUIDE.read_text()
    first = "".join(re.findall(r"^\| (`[^|]*) \|", text, re.M))
    named = set(re.findall(r"`([^`]*)`", first))
    assert named == KEYS.keys() | NAMES.keys()
