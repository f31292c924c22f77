"""How the processes of a job end, with others in their place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from paracosm.emulation import job
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.job import run_job

PATIENCE = 20.0  # seconds


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """What runs as each rank, in the shell."""
    commands: dict[int, str] = {}

    def start(setting: Any, *_: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sh", "-c", commands[setting.rank]], process_group=0)

    monkeypatch.setattr(job, "_start_rank", start)
    monkeypatch.setattr(job, "_start_emulator", lambda *_: None)
    return commands


def config_of(*ranks: int) -> EmulateConfig:
    mode: Any = "wire" if len(ranks) > 1 else "backend"
    return EmulateConfig(script=Path("train.py"), world_size=8, rank=ranks, mode=mode)


def test_the_exit_code_is_that_of_the_rank_that_failed(
    ranks: dict[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_GRACE", 0.2)
    ranks |= {0: "exec sleep 60", 3: "exit 7", 5: "exit 0"}
    ended = run_job(config_of(0, 3, 5), 0, tmp_path, lambda _: None)
    assert (ended.exit_code, ended.interrupted) == (7, False)  # not that of 0, which is killed


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_launcher_ends_the_script(
    ranks: dict[int, str], tmp_path: Path, sign: signal.Signals
) -> None:
    ranks[0] = f"trap 'touch {tmp_path}/asked; exit 3' INT; while :; do sleep 0.05; done"
    usual = signal.default_int_handler if sign == signal.SIGINT else signal.SIG_DFL
    found = signal.signal(sign, usual)  # the tests' own, where they run under nohup
    timer = threading.Timer(0.5, os.kill, (os.getpid(), sign))
    timer.start()
    try:
        ended = run_job(config_of(0), 0, tmp_path, lambda _: None)
        timer.join()
        assert ended.interrupted
        assert (tmp_path / "asked").exists()
        assert signal.getsignal(sign) == usual
    finally:
        signal.signal(sign, found)


@pytest.mark.skipif(sys.platform != "linux", reason="others do not tell children")
def test_a_rank_ends_with_a_launcher_that_is_killed() -> None:
    rank = (
        "import time\nfrom paracosm.emulation.rank.main import end_with_parent\n"
        "end_with_parent()\nprint('there', flush=True)\ntime.sleep(60)\n"
    )
    launcher = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {rank!r}])"
    with subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        process.kill()
        killed = time.monotonic()
        process.stdout.read()  # until nobody is left who could write
        assert time.monotonic() - killed < PATIENCE


LAUNCHER = """
import contextlib
import os
import sys
from pathlib import Path

from paracosm.emulation import job
from paracosm.emulation.config import EmulateConfig, Setting

what, folder = sys.argv[1], Path(sys.argv[2])
(folder / "script.py").write_text("import time\\ntime.sleep(60)")
config = EmulateConfig(script=folder / "script.py", world_size=4, mode="wire")
if what == "rank":
    setting = Setting(config, 0, 0, folder / "rank0.records", os.getpid())
    job._start_rank(setting, 1, job._Job(), contextlib.ExitStack())
else:
    job._start_emulator(config, 0, folder, 1, job._Job())
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="others do not tell children")
@pytest.mark.parametrize("what", ["rank", "emulator"])
def test_what_a_launcher_started_as_it_was_killed_ends(what: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", LAUNCHER, what, str(tmp_path)]
    begun = time.monotonic()
    subprocess.run(command, stdout=subprocess.PIPE, check=True)  # until nobody can write any more
    assert time.monotonic() - begun < 40.0


def test_a_rank_whose_emulator_failed_is_not_left_waiting(
    ranks: dict[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "_GRACE_ALONE", 0.3)
    ranks |= {0: "exec sleep 60", 3: "exec sleep 60"}

    def dies(config: Any, seed: int, folder: Path, port: int, job: Any) -> Any:
        job.emulator = subprocess.Popen(["sh", "-c", "exit 1"])
        return job.emulator

    monkeypatch.setattr(job, "_start_emulator", dies)
    begun = time.monotonic()
    ended = run_job(config_of(0, 3), 0, tmp_path, lambda records: None)
    assert time.monotonic() - begun < PATIENCE
    assert ended.emulator == 1
    assert ended.exit_code == -signal.SIGKILL
