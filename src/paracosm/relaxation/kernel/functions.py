"""Functions of the user's: compiled ones run inside the loop, Python ones are called by it.

A function that Numba compiled is handed to the loop as a pointer with a fixed signature, so the
loop itself is compiled once, for all functions there will ever be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from paracosm.errors import InputError
from paracosm.relaxation.kernel.arrays import Rows

__all__ = ["UserFunctions", "user_functions"]

Function = Callable[..., Any]


@dataclass(frozen=True)
class UserFunctions:
    """The functions of a run.

    Attributes:
        update, choose, time: pointers to compiled functions; to one that is never called where the
            user gave none, so that the loop has one type and is compiled once.
        compiled_values, compiled_rows, compiled_time: whether they are the user's.
        python_values, python_rows, python_time: the user's functions that are not compiled.
        map: the fixed-point map, callable from Python.
    """

    update: Any
    choose: Any
    time: Any
    compiled_values: bool
    compiled_rows: bool
    compiled_time: bool
    python_values: Function | None
    python_rows: Function | None
    python_time: Function | None
    map: Function | None


def user_functions(
    update: Function | None,
    choose: Function | None,
    time: Function | None,
    fixed_point: Function | None,
) -> UserFunctions:
    """Sort functions into those that are compiled and those that are not.

    Raises:
        InputError: a compiled function that does not take the arguments it will get.
    """
    values = update if fixed_point is None else fixed_point
    compiled_values = _is_compiled(values)
    if fixed_point is None or not compiled_values:
        update_pointer = _pointer("update function", values, _update_type(), _no_update)
    else:
        update_pointer = _pointer("map", _ignoring_matrix(values), _update_type(), _no_update)
    return UserFunctions(
        update=update_pointer,
        choose=_pointer(
            "pattern function",
            _into_room(choose) if _is_compiled(choose) else choose,
            _choose_type(),
            _no_rows,
        ),
        time=_pointer("time function", time, _time_type(), _no_time),
        compiled_values=compiled_values,
        compiled_rows=_is_compiled(choose),
        compiled_time=_is_compiled(time),
        python_values=None if compiled_values else values,
        python_rows=None if _is_compiled(choose) else choose,
        python_time=None if _is_compiled(time) else time,
        map=fixed_point,
    )


def _no_update(x: Any, rows: Any, A: Any, b: Any, out: Any) -> None:
    pass


def _no_rows(processor: Any, update: Any, u: Any, room: Any) -> Any:
    return 0


def _no_time(processor: Any, update: Any, u: Any) -> Any:
    return 1.0


def _is_compiled(function: Function | None) -> bool:
    import numba.core.dispatcher

    return isinstance(function, numba.core.dispatcher.Dispatcher)


def _pointer(kind: str, function: Any, signature: Any, otherwise: Function) -> Any:
    """Return `function` as a pointer of the given signature, `otherwise` if it is not compiled."""
    import numba

    if not _is_compiled(function):
        return _never_called(otherwise, signature)
    try:
        return _compiled_pointer(function, signature)
    except (numba.core.errors.NumbaError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{kind} {function.py_func.__name__}: cannot be compiled for {signature}: {reason}"
        ) from None


@lru_cache(maxsize=8)
def _never_called(function: Any, signature: Any) -> Any:
    import numba

    return numba.cfunc(signature, cache=True)(function)


@lru_cache(maxsize=64)
def _compiled_pointer(function: Any, signature: Any) -> Any:
    import numba

    return numba.cfunc(signature)(function.py_func)


@lru_cache(maxsize=64)
def _ignoring_matrix(function: Any) -> Any:
    """Return the compiled map (x, rows, out) as an update function, which gets A and b besides."""
    import numba

    def update(x: Any, rows: Any, A: Any, b: Any, out: Any) -> None:
        function(x, rows, out)

    return numba.njit(update)


@lru_cache(maxsize=64)
def _into_room(function: Any) -> Any:
    """Return the compiled pattern function as one that writes the rows to `room`, if they fit.

    It returns how many there are. The loop could not free an array that it is given.
    """
    import numba

    def choose(processor: Any, update: Any, u: Any, room: Any) -> Any:
        rows = function(processor, update, u)
        if rows.size <= room.size:
            for place in range(rows.size):
                room[place] = rows[place]
        return rows.size

    return numba.njit(choose)


def _update_type() -> Any:
    import numba

    _typeof: Any = numba.typeof
    from numba import types

    floats, whole = types.float64[::1], types.int64[::1]
    rows = Rows(np.zeros(1, np.int64), np.zeros(1, np.int32), np.zeros(1))
    return types.void(floats, whole, _typeof(rows), floats, floats)


def _choose_type() -> Any:
    from numba import types

    return types.int64(types.int64, types.int64, types.float64, types.int64[::1])


def _time_type() -> Any:
    from numba import types

    return types.float64(types.int64, types.int64, types.float64)
