"""The notebooks of the examples run from their first cell to their last."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_its_results(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)  # kept without outputs
    nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(path.parent)}}
    ).execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    shown = [out["data"] for out in outputs if "data" in out]
    assert any("<table>" in data.get("text/html", "") for data in shown)
    assert any("image/png" in data or "<img" in data.get("text/html", "") for data in shown)


def test_there_is_a_notebook_for_each_door() -> None:
    names = {path.stem for path in NOTEBOOKS}
    assert names == {"train", "relax", "predict", "emulate", "time_to_accuracy"}
