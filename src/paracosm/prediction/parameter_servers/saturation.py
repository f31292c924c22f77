"""From how many workers on more of them bring little."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["LITTLE", "saturates_at"]

LITTLE = 0.1
"""Of what one worker brings alone: less for each further worker is little."""


def saturates_at(throughput: Mapping[int, float], alone: float) -> int | None:
    """Return the first number of workers from which on more of them bring little.

    The workers from that number up to the largest one bring less than `LITTLE` of a worker alone
    each, in the mean, and so do those up to every number between.

    Args:
        throughput: steps/s by number of workers.
        alone: steps/s of one worker that has the servers to itself.

    Returns:
        The number; None where throughput grows up to the largest one.
    """
    numbers = sorted(throughput)
    for place, number in enumerate(numbers[:-1]):
        gains = (
            (throughput[more] - throughput[number]) / (more - number)
            for more in numbers[place + 1 :]
        )
        if max(gains) < LITTLE * alone:
            return number
    return None
