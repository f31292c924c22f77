"""How the event loop is compiled: into one piece.

Of functions in other files, Numba does not see changes: after editing, delete `*.nbi` and `*.nbc`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba

__all__ = ["compiled_whole", "inlined"]

# Nothing here makes an array: without Numba's run time there is no counting of references, which
# cost more than the work.
_njit: Any = numba.njit
_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "_nrt": False}


def compiled_whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with Numba, together with all that is `inlined`, and keep the result on disk."""
    return cast(Callable[..., Any], _njit(**_OPTIONS)(function))


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile into the callers: a call hands over all arrays, and costs more than an event."""
    return cast(Callable[..., Any], _njit(forceinline=True, **_OPTIONS)(function))
