"""The commands of README, of the tutorials and of the pages that start from one's own file run as
printed.

    python tests/test_tutorials.py [page.md ...]    # writes anew what each command prints

A block after `<!-- file: name.py -->` is a file that the commands find in their folder. A block
after `<!-- measured -->` has durations of this machine; of others each line is compared.
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
PAGES = sorted(
    page
    for folder in ("tutorials", "your-own")
    for page in (ROOT / "docs" / folder).glob("*.md")
    if page.stem != "index"
)
FILE = re.compile(r"<!-- file: (\S+) -->\n```python\n((?:.*\n)*?)```\n")
BLOCK = re.compile(r"(<!-- measured -->\n)?```console\n\$ ((?:.*\\\n)*.*)\n((?:.*\n)*?)```\n")
README = ROOT / "README.md"
FENCE = re.compile(r"^```(\w*)\n((?:.*\n)*?)```\n", re.M)
LONGEST = 24  # lines of a command's output that are shown


def run(command: str, folder: Path) -> str:
    """Return what a command prints, run in `folder`, which has the repository's files beside it."""
    for name in ("examples", "tests"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    shell = f'paracosm() {{ {sys.executable} -m paracosm "$@"; }}; {command}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "110"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
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
    return re.sub(r"wall time +.*|Recorded in \S+ \w+ here", "", text)


def write_files(text: str, folder: Path) -> None:
    for name, content in FILE.findall(text):
        (folder / name).write_text(content)


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_prints_what_it_says(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    write_files(text, tmp_path)
    blocks = BLOCK.findall(text)
    assert blocks
    for measured, command, shown in blocks:
        printed = run(command, tmp_path)
        if not measured:
            assert without_wall_time(printed) == without_wall_time(shown)


@pytest.mark.slow
def test_the_commands_of_the_readme_run_as_printed(tmp_path: Path) -> None:
    printed, shown = "", 0
    for language, block in FENCE.findall(README.read_text()):
        if language or block.startswith("make "):
            continue
        if block.startswith("paracosm "):
            printed = "".join(run(command, tmp_path) for command in block.splitlines())
        else:  # what the commands of the block before it print, in part
            assert without_wall_time(block) in without_wall_time(printed)
            shown += 1
    assert shown == 1


def rewritten(text: str, folder: Path) -> str:
    write_files(text, folder)
    return BLOCK.sub(
        lambda block: f"{block[1] or ''}```console\n$ {block[2]}\n{run(block[2], folder)}```\n",
        text,
    )


if __name__ == "__main__":
    for path in [Path(name) for name in sys.argv[1:]] or PAGES:
        with tempfile.TemporaryDirectory() as folder:
            path.write_text(rewritten(path.read_text(), Path(folder)))
        print(path)
