"""Ending with the launcher, also where that is killed and can end nobody."""

from __future__ import annotations

import ctypes
import signal

__all__ = ["end_with_parent"]

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have Linux send SIGTERM to this process when its parent ends; elsewhere nothing happens."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    except (AttributeError, OSError):
        return
