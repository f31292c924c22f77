"""Processes that end when the one that started them does.

    python -m paracosm.processes MODULE ARGUMENTS

runs a module as `python -m MODULE ARGUMENTS` would, and ends with the process that started it.
"""

import contextlib
import ctypes
import os
import runpy
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


def end_with_parent(number: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Have Linux send a signal to this process when its parent ends; elsewhere nothing happens.

    Args:
        number: of the signal.
        parent: id of the process to end with; it must have started this one, else nothing happens.
    """
    if parent is not None and parent != os.getppid():
        if os.getppid() == 1 and parent != os.getpid():
            os._exit(1)  # it has ended already
        return
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, int(number), 0, 0, 0)  # PR_SET_PDEATHSIG


def submit_call(executor: Any, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Submit a call to an executor of processes whose initializer calls `ignore_interrupts`.

    Ctrl-C is held back until then from those that it starts: Python would print where it was.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        future: Future[Any] = executor.submit(function, *arguments)
        return future
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_interrupts() -> None:
    """Leave Ctrl-C, which reaches all processes of a terminal, to the one that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


if __name__ == "__main__":
    end_with_parent()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
