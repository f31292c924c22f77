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
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Answer = TypeVar("Answer")


def in_processes(
    function: Callable[..., Answer],
    calls: Iterable[tuple[Any, ...]],
    jobs: int,
    in_order: bool = False,
) -> Iterator[Answer]:
    """Return what a function answers to each of some arguments, `jobs` of them at a time.

    Answers come as they are made, or in the order of the calls. With one job it runs here.
    """
    from joblib import Parallel, delayed

    kind = "generator" if in_order else "generator_unordered"
    answers: Iterator[Answer] = Parallel(n_jobs=jobs, return_as=kind)(
        delayed(_call)(os.getpid(), function, arguments) for arguments in calls
    )
    return answers


def _call(parent: int, function: Callable[..., Answer], arguments: tuple[Any, ...]) -> Answer:
    end_with_parent(parent=parent)
    return function(*arguments)


def end_with_parent(number: int = signal.SIGKILL, parent: int | None = None) -> None:
    """Have Linux send a signal to this process when its parent ends; elsewhere nothing happens.

    Args:
        number: of the signal.
        parent: process id of the one to end with; a process that it did not start is left alone,
            and so is itself.
    """
    if parent is not None and parent != os.getppid():
        if os.getppid() == 1 and parent != os.getpid():
            os._exit(1)  # it has ended already
        return
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, int(number), 0, 0, 0)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    end_with_parent()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
