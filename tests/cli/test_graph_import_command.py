"""`paracosm graph import` on files of other programs, and its guide."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from paracosm.cli import main
from paracosm.graphs import load_graph
from paracosm.graphs.importers.formats import FORMATS

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "importers"
PAGE = (ROOT / "docs" / "graph.md").read_text()
GUIDE = PAGE.partition("\n## Import from")[2].partition("\n## ")[0]


def run(*words: str) -> int:
    return main(list(words))


# Dimensions of ONNX as protobuf has them: with the size 4, and with an empty name.
FIRST_IS_4, FIRST_IS_OPEN = b"\x0a\x02\x08\x04", b"\x0a\x02\x12\x00"


def test_every_format_has_its_row_in_the_guide() -> None:
    named = set(re.findall(r"^\| `([\w-]+)` \|", GUIDE, re.M))
    assert named == set(FORMATS)


def test_the_commands_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "model.onnx": "convnet.onnx",
        "graph.pb": "convnet_sgd.pb",
        "saved_model.pb": "saved_model.pb",
        "step.pb": "convnet_step.pb",
        "timeline.json": "convnet_timeline.json.gz",
        "step.json": "step_jaxpr.json.gz",
        "rank0.et": "../chakra/cycle.et",
    }
    for name, source in files.items():
        (tmp_path / name).write_bytes((DATA / source).read_bytes())
    closed = (DATA / "convnet.onnx").read_bytes()
    assert closed.count(FIRST_IS_4) == 2  # of the input and the output
    (tmp_path / "open.onnx").write_bytes(closed.replace(FIRST_IS_4, FIRST_IS_OPEN))
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^    paracosm (graph import .*)$", GUIDE, re.M)
    ran = 0
    for command in commands:
        words = shlex.split(command)
        if not (tmp_path / words[2]).exists():
            continue
        if words[2] == "rank0.et":  # the cycle of this trace is one of control dependencies
            words.append("--data-only")
        assert run(*words, "--force", "--quiet") == 0, command
        assert len(load_graph(tmp_path / words[words.index("--out") + 1]))
        ran += 1
    assert ran == len(commands) - 1  # a trace of the profiler would be too large here


def test_what_could_not_be_found_out_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "job.graph"
    assert run("graph", "import", str(DATA / "saved_model.pb"), "--out", str(out)) == 0
    assert capsys.readouterr().out == (
        f"{out}: 13 nodes, 3 values without a shape, so without work (--size batch=N gives the "
        "missing size)\n"
    )
    words = ("graph", "import", str(DATA / "ddp_et.json.gz"), "--step", "5", "--force", "--json")
    assert run(*words, "--out", str(out)) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["provenance"]["importer"] == "pytorch"
    assert summary["provenance"]["step"] == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("convnet.onnx", "--size", "batch"),
            "--size batch: give a name and a number of 1 or more",
        ),
        (
            ("saved_model.pb", "--size", "batch=2", "--size", "batch=3"),
            "--size batch is given twice",
        ),
        (("convnet.onnx", "--size", "N=0"), "--size N=0: give a name and a number of 1 or more"),
        (
            ("convnet.onnx", "--size", "N=2"),
            "--size N has no effect: the model",
        ),
        (("saved_model.pb", "--size", "N=2"), 'unknown size "N": choose from batch'),
        (("convnet.onnx", "--data-only"), "--data-only has no effect on an ONNX model"),
        (("convnet.onnx", "--optimizer", "adam"), "--optimizer has no effect without --train"),
        (("convnet.onnx", "--format", "jaxpr"), "the JSON is truncated or damaged"),
        (("step_jaxpr.json.gz", "--kineto", "gone.json"), "gone.json: no such file"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, *flags = words
    out = str(tmp_path / "job.graph")
    assert run("graph", "import", str(DATA / file), *flags, "--out", out) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
