"""The latency and bandwidth of the real rank's own link, from its own messages."""

from __future__ import annotations

from collections import deque

__all__ = ["MeasuredLink"]

_SMALL = 4096  # bytes: up to here a message is all latency
_LARGE = 65_536  # bytes: from here bandwidth shows
_WINDOW = 64  # messages that count


class MeasuredLink:
    """Seconds and seconds per byte of one message, fitted while messages pass.

    A message's time is from our being ready to receive it, when the real rank had it announced
    already, until it was here: what gloo's own ranks take from neighbour to neighbour.

    Attributes:
        alpha: seconds of a small message: the median of the last.
        beta: seconds per byte beyond that: the lower quartile of the last large ones, since others
            may have shared the link.
    """

    def __init__(self) -> None:
        self.alpha = 0.0
        self.beta = 0.0
        self._small: deque[float] = deque(maxlen=_WINDOW)
        self._large: deque[float] = deque(maxlen=_WINDOW)

    def took(self, size: int, seconds: float) -> None:
        """Learn from a message of the real rank's."""
        if size <= _SMALL:
            self._small.append(seconds)
            self.alpha = _quantile(self._small, 0.5)
        elif size >= _LARGE:
            self._large.append(max(0.0, seconds - self.alpha) / size)
            self.beta = _quantile(self._large, 0.25)


def _quantile(values: deque[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]
