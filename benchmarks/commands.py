"""Time and memory of each command of the README: its first run on a machine, and its second.

    python benchmarks/commands.py
    python benchmarks/commands.py "paracosm train" --help

Words choose the commands that contain one of them; what a command reads of another one's run
must be chosen with it. Each command has a cache of its own that is empty before its first run, so
that this one compiles what it needs. Time is that of the processor, with what is waited for by
processes that the command starts: programs beside it make it longer, but not by as much as the time
of the clock. Memory is the most that one process held.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stored_results import store_row

ROOT = Path(__file__).parent.parent
FILE = ROOT / "benchmarks" / "results" / "commands.json"
STARTS = ("paracosm --help", "paracosm train --help", "paracosm train --updates 10")
"""Commands that do little: Python's start, and that of the libraries."""


class Cost(NamedTuple):
    """What a command cost: seconds of the processor and of the clock, and bytes."""

    processor: float
    clock: float
    memory: int


def commands_of(text: str) -> list[str]:
    """Return the commands in the code blocks of a Markdown page, in their order."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("paracosm ")]


def costs(command: str, folder: Path) -> Iterator[Cost]:
    """Run a command in a folder, twice with one new cache; yield what each run cost.

    Raises:
        CalledProcessError: it failed.
    """
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "XDG_CACHE_HOME": cache}
        for _ in range(2):
            words = shlex.split(command)
            if "--out" in words:
                _remove(folder / words[words.index("--out") + 1])
            yield cost_of(expanded(words, folder), folder, environment)


def expanded(words: list[str], folder: Path) -> list[str]:
    """Return the words of a command with the files of a folder for patterns such as `a/*.gz`."""
    files = [
        sorted(str(path.relative_to(folder)) for path in folder.glob(word)) if "*" in word else []
        for word in words
    ]
    return [name for word, names in zip(words, files, strict=True) for name in names or [word]]


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def cost_of(words: list[str], folder: Path, environment: dict[str, str] | None = None) -> Cost:
    """Run a command in a folder; CalledProcessError if it failed."""
    command = [sys.executable, "-m", *words]
    with (folder / "printed.txt").open("w") as printed:
        begin = time.monotonic()
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=printed, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
        clock = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        print((folder / "printed.txt").read_text(), file=sys.stderr)
        raise subprocess.CalledProcessError(process.returncode, command)
    return Cost(usage.ru_utime + usage.ru_stime, clock, usage.ru_maxrss << 10)


def _row(command: str, first: Cost, second: Cost) -> dict[str, str]:
    return {
        "command": f"`{command}`",
        "first run, processor": f"{first.processor:.1f} s",
        "clock": f"{first.clock:.1f} s",
        "second run, processor": f"{second.processor:.1f} s",
        "clock ": f"{second.clock:.1f} s",
        "memory": f"{max(first.memory, second.memory) / 1e6:,.0f} MB",
    }


def main() -> int:
    """Run the commands, print what they cost, and store it."""
    every = [*STARTS, *commands_of((ROOT / "README.md").read_text())]
    chosen = [line for line in every if any(word in line for word in sys.argv[1:] or [""])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("examples", "tests"):
            (folder / part).symlink_to(ROOT / part)
        for command in chosen:
            row = _row(command, *costs(command, folder))
            print(json.dumps(row), flush=True)
            store_row(FILE, "command", row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
