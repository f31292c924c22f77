"""The program, as `paracosm` and as `python -m paracosm`."""

from __future__ import annotations

import gc
import signal
import sys

OBJECTS = 10_000
"""New objects from which on Python looks for cycles among them: 700 are too few for a program that
makes a hundred thousand for good while it imports its modules."""


def program() -> int:
    """Run the command line and return its exit code.

    Ctrl-C ends it without a traceback also while modules are imported, and on its way out.
    """
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from paracosm.cli import main

    signal.signal(signal.SIGINT, usual)
    code = main()
    if usual is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


if __name__ == "__main__":
    sys.exit(program())
