"""`paracosm graph capture` as its users call it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from paracosm.cli import main
from paracosm.graphs import load_graph
from paracosm.graphs.capture import CaptureOptions, capture

Capture = pytest.CaptureFixture[str]


def call(*arguments: str) -> int:
    return main(["graph", "capture", *arguments])


def test_the_file_holds_what_was_captured(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "mlp.graph"
    flags = ("--batch", "3", "--shape", "2x5", "--optimizer", "adam", "--foreach", "--classes", "7")
    assert call("mlp", *flags, "--out", str(out)) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("mlp, batch 3, 2x5\n")
    assert str(out) in printed
    written = load_graph(out)
    expected = capture(CaptureOptions("mlp", 3, (2, 5), 7, optimizer="adam", foreach=True))
    assert written.ops == expected.ops
    np.testing.assert_array_equal(written.dependencies, expected.dependencies)
    assert written.provenance == expected.provenance


def test_json_is_the_summary_and_nothing_else(capsys: Capture) -> None:
    assert call("mlp", "--no-train", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["resident"]["parameters"] == 4 * (65 * 64 + 65 * 10)  # digits: 8x8 pixels
    assert summary["wall_time"] > 0
    assert set(summary["phases"]) == {"forward"}


def test_nothing_is_overwritten_unasked(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "mlp.graph"
    out.write_text("mine")
    assert call("mlp", "--out", str(out)) == 2
    assert out.read_text() == "mine"
    assert "exists: --force replaces it" in capsys.readouterr().err
    assert call("mlp", "--out", str(out), "--force", "--quiet") == 0
    assert load_graph(out).provenance["model"] == "mlp"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("resnet18", "--shape", "3x32xx"), "--shape: write sizes such as 3x32x32, not 3x32xx"),
        (("resnet18", "--batch", "0"), "batch: 0, but at least 1 is needed"),
        (("mlp", "--force"), "--force replaces a file: give --out as well"),
        (("mlp", "--json", "--quiet"), "--json and --quiet exclude each other"),
        (("nowhere.at_all:model",), "cannot import nowhere.at_all"),
    ],
)
def test_bad_input_is_one_line(flags: tuple[str, ...], message: str, capsys: Capture) -> None:
    assert call(*flags) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
