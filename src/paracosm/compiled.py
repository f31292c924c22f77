"""How loops are compiled with Numba: one function a loop, or one piece with all that it calls.

Numba keeps compiled code on disk by the time stamp of the file that a function stands in, and does
not see changes of what it calls in other files: after editing, delete `*.nbi` and `*.nbc`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba

__all__ = ["columns", "compiled", "compiled_whole", "inlined"]

_njit: Any = numba.njit
_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with Numba and keep the result on disk."""
    return cast(Callable[..., Any], _njit(**_OPTIONS)(function))


def compiled_whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that makes no array, together with all that is `inlined`.

    Without Numba's run time there is no counting of references, which costs more than the work.
    """
    return cast(Callable[..., Any], _njit(_nrt=False, **_OPTIONS)(function))


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile into the callers: a call hands over all arrays, and costs more than an event."""
    return cast(Callable[..., Any], _njit(forceinline=True, _nrt=False, **_OPTIONS)(function))


def columns(kind: str, *names: str) -> list[tuple[str, str]]:
    """Return fields of one type, "i8" or the like, for the dtype of a record."""
    return [(name, kind) for name in names]
