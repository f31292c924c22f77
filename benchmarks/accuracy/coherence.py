"""How much in step the workers of a run are, by when their steps begin and end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def coherence(begins: Sequence[Floats], ends: Sequence[Floats], times: Floats) -> Floats:
    """Return how much in step workers are at some times: 1 if all are at one point of a step.

    The length of the mean of exp(2 pi i f), where f is the part of its step that a worker has done
    (Kuramoto's order parameter); about 0.89 / sqrt(workers) if they have nothing to do with each
    other (0.64 of two).

    Args:
        begins, ends: of each worker's steps, in seconds, ascending; NaN of steps that did not end.
        times: in seconds.
    """
    points = np.zeros(len(times), complex)
    for begin, end in zip(begins, ends, strict=True):
        done = ~np.isnan(end)
        first, last = begin[done], end[done]
        place = np.clip(np.searchsorted(first, times, side="right") - 1, 0, len(first) - 1)
        part = np.clip((times - first[place]) / (last[place] - first[place]), 0, 1)
        points += np.exp(2j * np.pi * part)
    return np.asarray(np.abs(points) / len(begins))
