"""How a run ends: by itself, or with what it has."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread

from paracosm.training.record import Ended, RunRecord


def play_to_end(
    record: RunRecord, play: Callable[[list[bool]], None], stop: Callable[[], None] = lambda: None
) -> str:
    """Evaluate, play a run, evaluate where it ended; return its status.

    Args:
        record: of the run.
        play: the run; it is given a list that is empty until Ctrl-C ends it.
        stop: ends `play` where it does not look at the list.
    """
    is_interrupted = False
    record.evaluate()
    try:
        with _ended_by_interrupt(stop) as interrupted:
            play(interrupted)
        is_interrupted = bool(interrupted)
    except KeyboardInterrupt:
        is_interrupted = True
    except Ended:
        pass
    record.evaluate()
    return "interrupted" if is_interrupted and record.divergence is None else record.status


@contextmanager
def _ended_by_interrupt(stop: Callable[[], None]) -> Iterator[list[bool]]:
    """Let Ctrl-C stop the run where it is safe; a second one interrupts at once."""
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
