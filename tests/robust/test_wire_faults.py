"""An emulation on the wire whose peers stall, go silent or die; and who can reach its ports."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tried_commands import Process

pytestmark = pytest.mark.slow

SCRIPT = """
import datetime, pathlib, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=10))
data = torch.ones(100_000)
for step in range(100):
    dist.all_reduce(data)
    pathlib.Path(sys.argv[1]).touch()
    time.sleep(0.02)
"""
LIMIT = 60  # seconds for an end: the script's own limit, and what is waited for in turn
EMULATOR, RANK = "paracosm.emulation.wire.main", "paracosm.emulation.rank.main"


@contextmanager
def under_way(folder: Path) -> Iterator[Process]:
    """Run a script as rank 0 of 3, and wait until it has reduced something."""
    script, begun = folder / "reduce.py", folder / "begun"
    script.write_text(SCRIPT)
    flags = ["--world-size", "3", "--mode", "wire", "--out", str(folder / "run")]
    process = Process(["emulate", *flags, str(script), str(begun)], folder / "tmp")
    try:
        until = time.monotonic() + 120
        while not begun.exists():
            assert process.process.poll() is None, process.said
            assert time.monotonic() < until
            time.sleep(0.02)
        yield process
    finally:
        for line in process.children():
            os.kill(int(line.partition(":")[0]), signal.SIGKILL)


def send(process: Process, module: str, number: signal.Signals) -> None:
    """Send a signal to the child that runs a module."""
    (child,) = (line for line in process.children() if module in line)
    os.kill(int(child.partition(":")[0]), number)


def ended(process: Process, folder: Path) -> str:
    """Return the status with which a run ended in time, leaving nobody behind."""
    process.wait(LIMIT)
    assert process.left() == []
    assert "defect" not in process.said
    summary = json.loads((folder / "run" / "summary.json").read_text())
    return str(summary["status"])


def test_a_peer_that_stalls_holds_up_and_nothing_else(tmp_path: Path) -> None:
    with under_way(tmp_path) as process:
        send(process, EMULATOR, signal.SIGSTOP)
        time.sleep(3)
        send(process, EMULATOR, signal.SIGCONT)
        assert ended(process, tmp_path) == "done"
        assert process.process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_peer_that_goes_silent_or_dies_ends_the_run_in_time(
    number: signal.Signals, tmp_path: Path
) -> None:
    """A socket that goes silent, and one that is reset: gloo in the real rank gives up."""
    with under_way(tmp_path) as process:
        send(process, EMULATOR, number)
        assert ended(process, tmp_path) == "failed"
        assert process.process.returncode == 1


def test_a_real_rank_that_stands_still_can_be_interrupted(tmp_path: Path) -> None:
    with under_way(tmp_path) as process:
        send(process, RANK, signal.SIGSTOP)
        process.process.send_signal(signal.SIGTERM)
        assert ended(process, tmp_path) == "interrupted"
        assert process.process.returncode == 128 + signal.SIGTERM


def test_only_this_machine_reaches_what_listens(tmp_path: Path) -> None:
    with under_way(tmp_path) as process:
        found = [each for line in process.children() for each in listening(line.partition(":")[0])]
        assert found
        assert [address for address in found if address not in LOOPBACK] == []


LOOPBACK = {"0100007F", "0" * 24 + "01000000", "0" * 16 + "FFFF00000100007F"}
"""As /proc/net has them: 127.0.0.1, ::1, and the first in the form of the second."""


def listening(process: str) -> Iterator[str]:
    """Yield the addresses on which a process listens."""
    descriptors = Path("/proc", process, "fd")
    inodes = set[str]()
    for each in descriptors.iterdir():
        with suppress(OSError):  # it is closed by now
            inodes.add(os.readlink(each).removeprefix("socket:[").removesuffix("]"))
    for family in ("tcp", "tcp6"):
        for line in Path("/proc", process, "net", family).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                yield fields[1].partition(":")[0]
