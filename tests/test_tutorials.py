"""The commands of the tutorials run as printed, and print what is printed.

    python tests/test_tutorials.py    # writes anew what each command prints

A block after `<!-- measured -->` has durations of this machine; of others each line is compared.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*-*.md"))
BLOCK = re.compile(r"(<!-- measured -->\n)?```console\n\$ ((?:.*\\\n)*.*)\n((?:.*\n)*?)```\n")
LONGEST = 24  # lines of a command's output that are shown


def run(command: str, folder: Path) -> str:
    """Return what a command prints, run in `folder`, which has the repository's files beside it."""
    for name in ("examples", "tests"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    shell = f'paracosm() {{ {sys.executable} -m paracosm "$@"; }}; {command}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "110"}
    environment["XDG_CONFIG_HOME"] = str(folder)
    done = subprocess.run(
        ["bash", "-c", shell], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    lines = [line.rstrip() for line in done.stdout.rstrip().splitlines()]
    if len(lines) > LONGEST:
        lines = [*lines[: LONGEST - 1], "..."]
    return "".join(f"{line}\n" for line in lines)


def without_wall_time(text: str) -> str:
    return re.sub(r"wall time +.*", "", text)


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    blocks = BLOCK.findall(path.read_text())
    assert blocks
    for measured, command, shown in blocks:
        printed = run(command, tmp_path)
        if not measured:
            assert without_wall_time(printed) == without_wall_time(shown)


def rewritten(text: str, folder: Path) -> str:
    return BLOCK.sub(
        lambda found: f"{found[1] or ''}```console\n$ {found[2]}\n{run(found[2], folder)}```\n",
        text,
    )


if __name__ == "__main__":
    for path in TUTORIALS:
        with tempfile.TemporaryDirectory() as folder:
            path.write_text(rewritten(path.read_text(), Path(folder)))
        print(path)
