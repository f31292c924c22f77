"""Processes end when the one that started them does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

STARTS = """
import os, subprocess, sys, time
from paracosm.processes import python_module
child = subprocess.Popen(python_module("sleeper"))
print(child.pid, flush=True)
time.sleep(float(sys.argv[1]))
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_module_ends_with_the_process_that_started_it(tmp_path: Path, seconds: float) -> None:
    """Also where that is killed before the module begins."""
    (tmp_path / "sleeper.py").write_text("import time; time.sleep(100)")
    command = [sys.executable, "-c", STARTS, str(seconds)]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    until = time.monotonic() + 60
    while _is_running(int(done.stdout)):
        assert time.monotonic() < until
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
