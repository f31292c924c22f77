"""Ctrl-C ends a run with what it has."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread


@contextmanager
def ended_by_interrupt(stop: Callable[[], None] = lambda: None) -> Iterator[list[bool]]:
    """Let Ctrl-C stop the run where it is safe; a second one interrupts at once.

    Yields a list that is empty until then.
    """
    interrupted: list[bool] = []

    def interrupt(number: int, frame: object) -> None:
        if interrupted:
            raise KeyboardInterrupt
        interrupted.append(True)
        stop()

    usual = signal.default_int_handler
    # Where somebody else handles the signal, or ignores it, or in a thread, it is not ours.
    ours = signal.getsignal(signal.SIGINT) is usual and current_thread() is main_thread()
    if ours:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        if ours:
            signal.signal(signal.SIGINT, usual)
