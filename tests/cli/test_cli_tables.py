"""Tables on a terminal and elsewhere: numbers are never cut."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from paracosm.cli.display import aligned, printer

Capture = pytest.CaptureFixture[str]

NAME = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
ROWS = [("op", ">nodes", ">bytes"), (NAME, "1,234,567", "85.98 GB"), ("short", "1", "1.463 TB")]


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")


def test_elsewhere_than_on_a_terminal_a_row_is_one_line_without_spaces_at_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    printer()(aligned(ROWS))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["op", "nodes", "bytes"],
        [NAME, "1,234,567", "85.98", "GB"],
        ["short", "1", "1.463", "TB"],
    ]
    assert lines == [line.rstrip() for line in lines]


@pytest.mark.parametrize("width", [20, 50, 80])
def test_a_narrow_terminal_folds_names_and_keeps_numbers(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    on_a_terminal(monkeypatch, width)
    printer()(aligned(ROWS))
    printed = capsys.readouterr().out
    assert "…" not in printed
    for number in ("1,234,567", "85.98 GB", "1.463 TB"):
        assert number in printed
    names = [line.split()[0] for line in printed.splitlines()[1:-1]]
    assert "".join(names) == NAME


def test_what_is_printed_is_not_read_as_markup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    on_a_terminal(monkeypatch, 80)
    say = printer()
    say("a [bold] b :smile:")
    say(aligned([("", ""), ("[red]path", ":smile:")]))
    assert capsys.readouterr().out.splitlines() == [
        "a [bold] b :smile:",
        "[red]path  :smile:",
    ]
