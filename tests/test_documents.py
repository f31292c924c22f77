"""The programs in README and the guides run as printed."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def programs(name: str) -> list[str]:
    """Return the Python programs of a document: the blocks that begin with an import."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)
    return [block for block in blocks if block.startswith(("from ", "import "))]


def test_every_file_that_a_document_links_to_exists() -> None:
    documents = [
        *ROOT.glob("*.md"),
        *ROOT.glob("examples/**/*.md"),
        *ROOT.glob("benchmarks/**/*.md"),
    ]
    links = [
        (document, link)
        for document in documents
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", document.read_text())
    ]
    assert len(links) > 40
    assert [link for document, link in links if not (document.parent / link).exists()] == []


def test_the_readme_trains_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = programs("README.md")
    exec(program, {})
    updates, staleness = capsys.readouterr().out.split()
    assert updates == "200"
    assert float(staleness) == pytest.approx(7, rel=0.1)


def test_the_guide_to_python_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "docs" / "python.md").read_text()
    monkeypatch.chdir(tmp_path)
    known: dict[str, object] = {}
    found = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL)
    assert len(found) == 5
    for program, printed in found:
        exec(program, known)
        assert capsys.readouterr().out == printed


def test_the_programs_of_the_relaxation_guide_run(capsys: pytest.CaptureFixture[str]) -> None:
    solve, functions = programs("docs/relaxation.md")
    exec(solve, {})
    status, residual, *_ = capsys.readouterr().out.split()
    assert status == "converged"
    assert float(residual) <= 1e-8
    exec(functions, {})
    assert capsys.readouterr().out == "True\n"


def test_the_program_of_the_training_guide_trains(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = programs("docs/training.md")
    exec(program, {})
    loss, staleness = map(float, capsys.readouterr().out.split())
    assert 0 < loss < 2.3
    assert staleness == pytest.approx(7, rel=0.05)


def test_the_program_of_the_guide_to_jobs_waits_as_it_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (program,) = programs("docs/jobs.md")
    exec(program, {})
    assert capsys.readouterr().out == "0.066 0.03\n"


def test_every_law_has_its_test() -> None:
    laws = re.findall(
        r"`([\w/]+\.py)::(test_\w+)` \|$", (ROOT / "docs" / "laws.md").read_text(), re.M
    )
    assert len(laws) >= 40
    for path, name in laws:
        assert f"def {name}(" in (ROOT / "tests" / path).read_text(), f"{path}::{name}"


def test_tables_of_results_are_those_of_the_files_of_results() -> None:
    made = runpy.run_path(str(ROOT / "docs" / "made_tables.py"))["pages"]()
    assert {path.name for path in made} == {"accuracy.md", "performance.md", "tried-scripts.md"}
    for path, text in made.items():
        assert path.read_text() == text, f"{path.name}: run docs/made_tables.py"
