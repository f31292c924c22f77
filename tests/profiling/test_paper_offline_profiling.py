"""The reproduction of the paper, as small as it goes: its structure, not its numbers."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "papers" / "offline_profiling" / "run.py"
DOCUMENT = ROOT / "docs" / "paper-offline-profiling.md"
SMALL = ("--quick", "--models", "resnet18", "--batch", "2")
PARTS = 6


def run(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the example."""
    command = [sys.executable, str(EXAMPLE), "--out", str(out), *SMALL, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the example and return what it wrote."""
    out = tmp_path_factory.mktemp("paper") / "run"
    finished = run(out, "--budget", "1s")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.count(" ... ") == PARTS
    return out


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return content


def test_all_figures_tables_and_findings_are_on_the_page(
    folder: Path, results: dict[str, Any]
) -> None:
    page = (folder / "index.html").read_text(encoding="utf-8")
    for name in ("figure2", "table2", "steady", "designs"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert page.count("<img ") == 4
    for table in ("Table 1", "Table 2", "Held-out shapes", "Designs", "Standard errors"):
        assert f"<b>{table}.</b>" in page
    where = {check["where"] for check in results["checks"]}
    assert where == {"Figure 2", "Section 3", "Table 1", "Table 2", "Section 2"}
    assert page.count('<td class="verdict') == len(results["checks"])


def test_figure_2_varies_input_channels_of_one_convolution(results: dict[str, Any]) -> None:
    for series in results["figure2"]:
        first = 16 if series["name"] == "multiples of 16" else 15
        assert series["channels"] == [first + 16 * step for step in range(8)]
        assert min(series["seconds"]) > 0
        # Channels change nothing but how long each of the sums is.
        assert {f / c for f, c in zip(series["flops"], series["channels"], strict=True)} == {
            2 * 9 * 4 * 64 * 32 * 32
        }


def test_table_2_has_every_way_to_predict_an_iteration(results: dict[str, Any]) -> None:
    (found,) = results["table2"].values()
    for way in ("own", "warm", "held_out"):
        assert found["errors"][way] == pytest.approx(found[way] / found["measured"] - 1)
        assert found[way] > 0
    whole = found["own"] + found["caches"] + found["gaps"]
    assert whole == pytest.approx(found["measured"])


def test_table_1_names_what_this_machine_lacks(results: dict[str, Any]) -> None:
    transfers = {(each["kind"], each["scenario"]) for each in results["table1"]["transfers"]}
    assert ("all_reduce", "gloo 2 processes") in transfers
    assert ("shared memory", "bi-direct") in transfers
    missing = {tuple(name.split(", ")) for name in results["table1"]["missing"]}
    for name in ("uni-direct", "bi-direct"):
        assert (("device to device", name) in transfers) != (("device to device", name) in missing)


def test_designs_are_tried_on_the_same_ops(results: dict[str, Any]) -> None:
    whole = {each["design"]: each for each in results["designs"] if each["op"] == "all"}
    assert whole["paper"]["ops"] == whole["model-like"]["ops"] > 0
    assert all(math.isfinite(each["weighted"]) for each in whole.values())


def test_a_second_run_measures_only_what_is_missing_and_fills_the_document(
    folder: Path, results: dict[str, Any], tmp_path: Path
) -> None:
    out = shutil.copytree(folder, tmp_path / "run")
    lost = out / "parts" / "grids.json"  # as if the first run had been interrupted there
    before = json.loads(lost.read_text(encoding="utf-8"))
    lost.unlink()
    document = shutil.copy(DOCUMENT, tmp_path / "page.md")
    finished = run(out, "--budget", "1s", "--document", str(document))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.count(" ... ") == 1
    after = json.loads(lost.read_text(encoding="utf-8"))
    assert after == before | {"of_an_earlier_run": before["ops"]}
    assert json.loads((out / "results.json").read_text(encoding="utf-8")) == results
    page = Path(document).read_text(encoding="utf-8")
    assert (out / "results.md").read_text(encoding="utf-8") in page
    assert page.partition("<!--")[0] == DOCUMENT.read_text(encoding="utf-8").partition("<!--")[0]
    for image in ("figure2", "table2", "steady", "designs"):
        assert (tmp_path / "images" / f"offline-{image}.png").exists()


def test_a_folder_of_another_budget_is_left_alone(folder: Path) -> None:
    finished = run(folder, "--budget", "2s")
    assert finished.returncode == 1
    assert finished.stderr.count("\n") == 1
    assert "another budget (1.0, now 2.0): give another --out" in finished.stderr
