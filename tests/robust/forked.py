"""The program in forked children of a process that has everything loaded."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO


@dataclass
class Child:
    """A child that runs a function; what it says on standard error goes to a file."""

    pid: int
    heard: IO[bytes]  # a file without a name
    code: int | None = None  # its exit code, when it has ended; -N where signal N has killed it

    @property
    def said(self) -> str:
        size = os.fstat(self.heard.fileno()).st_size
        return os.pread(self.heard.fileno(), size, 0).decode(errors="replace")

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        if self.code is None:
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code

    def has_ended(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        return self.code is not None

    def kill(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


def forked(function: Callable[[], int]) -> Child:
    """Start a child; its exit code is what the function returns, 70 after an exception."""
    heard = tempfile.TemporaryFile()  # noqa: SIM115 (of the child)
    pid = os.fork()
    if pid:
        return Child(pid, heard)
    code = 70
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(heard.fileno(), 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        code = function()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def program(arguments: Sequence[str]) -> Child:
    """Start the program with arguments."""
    from paracosm.cli import main

    return forked(lambda: main(list(arguments)))
