"""No thread of gloo's needs the interpreter while it ends: that would abort the process."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest
import torch.distributed as dist
from rank_processes import SCRIPTS, start

from paracosm.emulation.rank import gloo_threads
from paracosm.emulation.rank.gloo_threads import wait_before_groups_end, wait_for_gloo

# As Linux shows threads of a ProcessGroupGloo on x86-64 (202 is futex) and on ARM (98).
IDLE = "202 0x5582512449c0 0x189 0x0 0x0 0x0 0xffffffff 0x7fe951711d10 0x7fe974640f16"
IDLE_ON_ARM = "98 0xaaab02c3e5e8 0x189 0x0 0x0 0x0 0xffffffff 0xffff8a7fe6b0 0xffff9e2f1a3c"
FOR_A_PEER = "202 0x7fe048009338 0x189 0x0 0x7fe05e7f5240 0x0 0xffffffff 0x7fe05e7f50f0 0x7fe0824a3"
FOR_A_MUTEX = "202 0x5582512449a0 0x80 0x2 0x0 0x0 0x0 0x7fe951711d10 0x7fe974640f16"
ASLEEP = "230 0x1 0x1 0x7fe05e7f5240 0x0 0x0 0x0 0x7fe05e7f50f0 0x7fe0824a3f16"


def thread(tasks: Path, number: int, call: str | None, name: str = "pt_gloo_runloop") -> None:
    (tasks / str(number)).mkdir(parents=True, exist_ok=True)
    (tasks / str(number) / "comm").write_text(f"{name}\n")
    if call is not None:
        (tasks / str(number) / "syscall").write_text(f"{call}\n")


@pytest.mark.parametrize("call", [IDLE, IDLE_ON_ARM, None])
def test_idle_threads_are_not_waited_for(tmp_path: Path, call: str | None) -> None:
    thread(tmp_path, 1, "running", "python")
    thread(tmp_path, 2, call)
    assert wait_for_gloo(tmp_path, patience=0.0)


def test_without_threads_of_gloo_nothing_is_waited_for(tmp_path: Path) -> None:
    thread(tmp_path, 1, "running", "python")
    assert wait_for_gloo(tmp_path, patience=0.0)
    assert wait_for_gloo(tmp_path / "elsewhere than on Linux", patience=0.0)


@pytest.mark.parametrize("call", ["running", FOR_A_PEER, FOR_A_MUTEX, ASLEEP])
def test_threads_with_work_are_waited_for(tmp_path: Path, call: str) -> None:
    thread(tmp_path, 1, IDLE)
    thread(tmp_path, 2, call)
    assert not wait_for_gloo(tmp_path, patience=0.01)
    done = threading.Timer(0.2, thread, (tmp_path, 2, IDLE))
    begin = time.monotonic()
    done.start()
    assert wait_for_gloo(tmp_path, patience=60.0)
    assert time.monotonic() - begin >= 0.2


@pytest.mark.skipif(sys.platform != "linux", reason="threads are unwound on Linux alone")
def test_a_rank_ends_after_a_thread_has_freed_its_tensors() -> None:
    """The thread asks for the interpreter a second after the script has ended."""
    command = [sys.executable, "-m", "paracosm.cli.app", "emulate", "--mode", "wire"]
    flags = ["--world-size", "2", "--latency", "100ms"]
    done = start([*command, *flags, str(SCRIPTS / "released.py")])
    assert "freed by gloo" in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
    assert "terminate called" not in done.stderr


def test_a_group_is_destroyed_when_its_threads_have_freed_their_tensors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a model that goes later waits for a thread that waits for what the model holds."""
    calls: list[object] = []
    monkeypatch.setattr(dist.distributed_c10d, "destroy_process_group", calls.append)
    monkeypatch.setattr(dist, "destroy_process_group", calls.append)
    monkeypatch.setattr(gloo_threads, "wait_for_gloo", lambda: calls.append("waited"))
    wait_before_groups_end()
    dist.destroy_process_group("a")  # type: ignore[arg-type]
    dist.distributed_c10d.destroy_process_group("b")  # type: ignore[arg-type]
    assert calls == ["waited", "a", "waited", "b"]
