"""Processes that end when the one that started them does."""

import contextlib
import ctypes
import os
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any


def end_with_parent(number: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Have Linux send a signal to this process when its parent ends; elsewhere nothing happens.

    Args:
        number: of the signal.
        parent: id of the process to end with; it must have started this one, else nothing happens.
    """
    if parent in (None, os.getppid()):
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).prctl(1, int(number), 0, 0, 0)  # PR_SET_PDEATHSIG
    if parent not in (None, os.getpid()) and os.getppid() == 1 != parent:
        os._exit(1)  # it has ended already


def python_module(name: str, *flags: str) -> tuple[str, ...]:
    """Return a command that runs a module, and ends with this process; flags are of Python."""
    return (sys.executable, *flags, "-m", __name__, str(os.getpid()), name)


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back from this thread, and from what it starts until that calls `on_interrupt`.

    Python would print where it was, if only while it imports modules.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def on_interrupt(handler: Any) -> None:
    """Set what Ctrl-C does here from now on."""
    signal.signal(signal.SIGINT, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def submit_call(executor: Any, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Submit a call to an executor of processes whose initializer calls `ignore_interrupts`."""
    if os.name == "posix":  # started later, it would let Ctrl-C through to this thread again
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()
    with interrupts_held():
        future: Future[Any] = executor.submit(function, *arguments)
    return future


def ignore_interrupts() -> None:
    """Leave Ctrl-C, which reaches all processes of a terminal, to the one that started this one."""
    on_interrupt(signal.SIG_IGN)


if __name__ == "__main__":
    end_with_parent(parent=int(sys.argv[1]))
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
