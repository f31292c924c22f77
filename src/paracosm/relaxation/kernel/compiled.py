"""How the functions of this package are compiled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numba

from paracosm.compiled import compiled_whole as compiled

__all__ = ["compiled", "inlined", "is_on_disk"]

_njit: Any = numba.njit
_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """As `compiled`, but callers get the code in place of a call.

    For what runs at every event: a call hands over some hundred values, most of them parts of
    arrays, and costs more than the event.
    """
    return cast(Callable[..., Any], _njit(inline="always", **_OPTIONS)(function))


def is_on_disk(function: Any) -> bool:
    """Say whether a compiled version of `function` is on disk; it may be of an older source."""
    folder = Path(function.stats.cache_path)
    return any(folder.glob(f"*{function.py_func.__name__}-*.nbi"))
