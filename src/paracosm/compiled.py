"""How loops are compiled with Numba: one function a loop, or one piece with all that it calls.

Numba keeps compiled code on disk by the time stamp of the file that a function stands in, and does
not see changes of what it calls in other files: after editing, delete `*.nbi` and `*.nbc`.
"""

from collections.abc import Callable
from typing import Any, cast

import numba
from numba.core.registry import CPUDispatcher

_njit: Any = numba.njit
# An entry from C, which nobody asks for, takes a tenth of the time to compile.
_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with Numba and keep the result on disk."""
    return cast(Callable[..., Any], _njit(cache=True, **_OPTIONS)(function))


def compiled_whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that makes no array, together with all that is `inlined`.

    Without Numba's run time there is no counting of references, which costs more than the work.
    """
    return cast(Callable[..., Any], _njit(cache=True, _nrt=False, **_OPTIONS)(function))


def subroutine(function: Callable[..., Any], **options: bool) -> Any:
    """Compile as `compiled_whole` does, for calls by compiled functions only.

    An entry from Python unpacks every array of every tuple: it can take as long to compile as the
    function does. Python can call `py_func`.
    """
    options |= {"nopython": True, "_nrt": False, "no_cpython_wrapper": True}
    part = _Part(function, targetoptions=_OPTIONS | options)
    part.enable_caching()
    return part


def inlined(function: Callable[..., Any]) -> Any:
    """Compile into the callers: a call hands over all arrays, and costs more than an event."""
    return subroutine(function, forceinline=True)


def columns(kind: str, *names: str) -> list[tuple[str, str]]:
    """Return fields of one type, "i8" or the like, for the dtype of a record."""
    return [(name, kind) for name in names]


class _Part(CPUDispatcher):
    """A compiled function without an entry from Python: a call from there would crash."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self.py_func.__qualname__} is for compiled functions: call its py_func")
