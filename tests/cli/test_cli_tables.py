"""Tables on a terminal and elsewhere: numbers are never cut."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from paracosm.cli.display import aligned, labelled, paragraph, printer

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


PATH = f"runs/{'long' * 30}/a-name"


@pytest.mark.parametrize(("columns", "width"), [("120", 120), ("40", 80), (None, 100)])
def test_a_sentence_is_wrapped_to_the_terminal_but_no_path_or_number_is_broken(
    columns: str | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(
        "os.get_terminal_size", lambda *_: pytest.fail("not of what runs the tests")
    )
    monkeypatch.setattr(sys, "__stdout__", None)
    numbers = " ".join(["It takes 1,234 ms, 15 % of it"] * 20)
    lines = paragraph(f"{numbers} in {PATH}.").splitlines()
    assert " ".join(lines) == f"{numbers} in {PATH}."
    assert lines[-1].endswith(f"{PATH}.")
    assert (
        max(map(len, lines[:-1])) <= width < max(map(len, lines[:-1])) + len("It takes 1,234 ms,")
    )
    assert not any(line.split()[-1][-1].isdigit() for line in lines)


def test_texts_behind_labels_have_a_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printed = labelled([("status", "done"), ("by default", "word " * 20)])
    first = f"{'by default':12}{'word ' * 13}".rstrip()
    assert printed.splitlines() == ["status      done", first, " " * 12 + ("word " * 7).rstrip()]
