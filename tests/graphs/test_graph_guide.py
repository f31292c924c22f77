"""The programs of docs/graph.md run as printed, and its model can be captured."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from paracosm.graphs.capture import CaptureOptions, capture

GUIDE = Path(__file__).parents[2] / "docs" / "graph.md"
CAPTURED, BUILT = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_a_graph_that_is_built_has_the_memory_that_the_guide_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(BUILT, {})
    assert capsys.readouterr().out.strip() == BUILT.strip().rpartition("# ")[2]


def test_the_program_that_captures_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("of_the_guide")
    exec(CAPTURED, vars(module))
    nodes, flops = capsys.readouterr().out.split()
    graph = capture(CaptureOptions("mlp", batch=64, optimizer="adam"))
    assert (int(nodes), int(flops)) == (len(graph), graph.flops.sum())
    monkeypatch.setitem(sys.modules, "of_the_guide", module)
    own = capture(CaptureOptions("of_the_guide:model", batch=64))
    assert own.resident["inputs"] == 64 * (784 * 4 + 8)
