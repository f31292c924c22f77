"""How the loops of real threads, and of their replays, are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba

__all__ = ["compiled"]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with Numba, free of the global interpreter lock, and keep the result on disk.

    Numba infers the types of compiled functions; mypy is told the same here, once.
    """
    make = numba.njit(cache=True, nogil=True, error_model="numpy")
    return cast(Callable[..., Any], make(function))
