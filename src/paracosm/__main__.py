"""The program, as `paracosm` and as `python -m paracosm`."""

from __future__ import annotations

import gc
import os
import signal
import sys

OBJECTS = 10_000
"""New objects from which on Python looks for cycles among them: 700 are too few for a program that
makes a hundred thousand for good while it imports its modules."""

DATABASE = "profiles.db"  # that a prediction looks into where no other is named
TIMED = (["profile"], ["predict"], ["measure"])  # what times, and what predicts from timings


def program() -> int:
    """Run the command line and return its exit code.

    Ctrl-C ends it without a traceback also while modules are imported, and on its way out.
    """
    gc.set_threshold(OBJECTS, *gc.get_threshold()[1:])
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.argv[1:2] in TIMED and not _by_datasheets(sys.argv[1:]):
        from paracosm.profiling.allocator import restart_pinned

        restart_pinned()  # before what takes long to import
    from paracosm.cli import main

    signal.signal(signal.SIGINT, usual)
    code = main()
    gc.freeze()  # else Python looks once more for cycles among all that was imported, as it ends
    if usual is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


def _by_datasheets(words: list[str]) -> bool:
    """Whether a command predicts hardware of the catalogue, which needs no timing of this machine:
    no database can have timings of that name."""
    flags = {word.partition("=")[0] for word in words}
    given = words[0] == "predict" and "--hardware" in flags and "--db" not in flags
    return given and not os.path.exists(DATABASE)


if __name__ == "__main__":
    sys.exit(program())
