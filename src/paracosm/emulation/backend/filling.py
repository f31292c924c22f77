"""Filling large outputs in the background, as the threads of a backend do."""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable

import torch

__all__ = ["Filling"]


class Filling:
    """A thread that fills outputs one after the other, with one core."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def put(self, fill: Callable[[], None]) -> None:
        """Call a function soon; at once where the thread has ended, as the process does."""
        with self._lock:
            if not self._closed:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name="paracosm-fill", daemon=True
                    )
                    self._thread.start()
                self._jobs.put(fill)
                return
        with torch.inference_mode():
            fill()

    def close(self) -> None:
        """End the thread when it has done what it has."""
        with self._lock:
            self._closed = True
            self._jobs.put(None)
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        _compute_alone()
        with torch.inference_mode():  # tensors that were made in it may be written in it alone
            while (fill := self._jobs.get()) is not None:
                fill()


def _compute_alone() -> None:
    """Have no OpenMP threads for this thread; `torch.set_num_threads` is for all new threads."""
    torch.get_num_threads()  # makes the setting of this thread, which is then changed
    try:
        ctypes.CDLL(None).omp_set_num_threads(1)
    except (AttributeError, OSError):
        return
