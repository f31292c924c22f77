"""The program of docs/graph-capture.md runs as printed, and its model can be captured."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from paracosm.graphs.capture import CaptureOptions, capture

GUIDE = Path(__file__).parents[2] / "docs" / "graph-capture.md"


def test_the_program_of_the_guide_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    module = ModuleType("of_the_guide")
    exec(program, vars(module))
    nodes, flops = capsys.readouterr().out.split()
    graph = capture(CaptureOptions("mlp", batch=64, optimizer="adam"))
    assert (int(nodes), int(flops)) == (len(graph), graph.flops.sum())
    monkeypatch.setitem(sys.modules, "of_the_guide", module)
    own = capture(CaptureOptions("of_the_guide:model", batch=64))
    assert own.resident["inputs"] == 64 * (784 * 4 + 8)
