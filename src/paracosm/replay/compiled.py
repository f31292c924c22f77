"""How the loops of this room are compiled.

Numba keeps compiled code on disk by the time stamp of the file that a function stands in, and does
not see changes of what it calls in other files: after editing, delete `*.nbi` and `*.nbc`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba

__all__ = ["compiled"]

_njit: Any = numba.njit


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with Numba and keep the result on disk."""
    options = {"cache": True, "nogil": True, "error_model": "numpy"}
    return cast(Callable[..., Any], _njit(**options)(function))
