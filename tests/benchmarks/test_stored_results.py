"""Benchmarks replace the row of a table that they measured again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stored_results import store_result


def test_a_result_replaces_the_row_about_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "performance.json"
    file.write_text(json.dumps({"columns": [], "rows": [{"what": "a"}, {"what": "b"}]}))
    monkeypatch.setattr("sys.argv", ["benchmarks/engine.py"])
    before = file.read_text()
    monkeypatch.delenv("STORE_RESULTS", raising=False)
    store_result("a", "2 s", file)
    assert file.read_text() == before
    monkeypatch.setenv("STORE_RESULTS", "1")
    store_result("a", "2 s", file)
    store_result("c", "3 s", file)
    first, second, third = json.loads(file.read_text())["rows"]
    assert first["measured"] == "2 s"
    assert first["command"] == "`benchmarks/engine.py`"
    assert second == {"what": "b"}
    assert third["what"] == "c"
