"""Distinct things, numbered in the order in which they occur."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["numbered"]

Entry = TypeVar("Entry", bound=Hashable)


def numbered(
    entries: Sequence[Entry], codes: npt.NDArray[np.int32]
) -> tuple[tuple[Entry, ...], npt.NDArray[np.int32]]:
    """Return the distinct entries that occur, as they are first met, and the codes for them.

    Equal entries become one. Negative codes stand for no entry and stay.
    """
    used, first = np.unique(codes, return_index=True)
    met: dict[Entry, int] = {}
    fresh = np.full(len(entries) + 1, -1, dtype=np.int32)
    for code in used[np.argsort(first)].tolist():
        if code >= 0:
            fresh[code] = met.setdefault(entries[code], len(met))
    return tuple(met), np.where(codes < 0, codes, fresh[codes])
