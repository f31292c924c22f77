"""The measurements of examples/papers/neuronabox: its page shows what was measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "papers" / "neuronabox"
LIMIT = 60.0  # seconds


def run_again(out: Path) -> str:
    """Return the tables of what is kept beside the page, as Markdown."""
    command = [sys.executable, "run.py", "--again", "measured", "--out", str(out)]
    done = subprocess.run(
        command, cwd=EXAMPLE, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stderr
    return (out / "results.md").read_text()


def test_the_page_shows_what_was_measured(tmp_path: Path) -> None:
    written = run_again(tmp_path)
    page = (EXAMPLE / "README.md").read_text()
    assert written in page
    for picture in tmp_path.glob("figures/*.png"):
        assert (EXAMPLE / "figures" / picture.name).stat().st_size < 100_000
        assert f"figures/{picture.name}" in page


def test_nothing_measured_is_said_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "run.py", "--again", str(tmp_path), "--out", str(tmp_path / "out")]
    done = subprocess.run(
        command, cwd=EXAMPLE, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"run.py: {tmp_path}: nothing measured: table1.json")
    assert len(done.stderr.splitlines()) == 1
