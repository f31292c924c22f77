"""Functions of the user's: compiled ones run inside the loop, Python ones are called by it.

A function that Numba compiled is handed to the loop as a pointer with a fixed signature, so the
loop itself is compiled once, for all functions there will ever be. Such a pointer cannot raise: it
says that its function did, and the caller calls that function again to have the exception.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from paracosm.compiled_references import NoFunction
from paracosm.errors import InputError
from paracosm.relaxation.kernel.arrays import read_only, rows_of

Function = Callable[..., Any]


@dataclass(frozen=True)
class UserFunctions:
    """The functions of a run."""

    update: Any  # pointers to compiled functions; where there are none, what has the same type, so
    choose: Any  # that the loop is compiled once
    time: Any
    compiled_values: bool  # whether these are the user's
    compiled_rows: bool
    compiled_time: bool
    python_values: Function | None  # the user's functions that are not compiled
    python_rows: Function | None
    python_time: Function | None
    compiled: dict[str, Any]  # those that are, by what they say: "values", "rows", "time"
    map: Function | None  # the fixed-point map, callable from Python


def user_functions(
    update: Function | None,
    choose: Function | None,
    time: Function | None,
    fixed_point: Function | None,
) -> UserFunctions:
    """Sort functions into those that are compiled and those that are not."""
    import numba
    from scipy.sparse import csr_array

    typeof: Any = numba.typeof
    real, whole = numba.types.float64, numba.types.int64
    # Only `out` and `room` are to be written.
    reals, wholes = typeof(read_only(np.zeros(1))), typeof(read_only(np.zeros(1, np.int64)))
    matrix = typeof(rows_of(csr_array((1, 1))))
    update, fixed_point = _for_any_types(update), _for_any_types(fixed_point)
    values = update if fixed_point is None else fixed_point
    by_values, by_rows, by_time = map(_is_compiled, (values, choose, time))
    kind, new_values = ("update function", _update) if fixed_point is None else ("map", _map)
    update_type = whole(reals, wholes, matrix, reals, real[::1])
    choose_type = whole(whole, whole, real, whole[::1])
    given = {"values": (by_values, values), "rows": (by_rows, choose), "time": (by_time, time)}
    return UserFunctions(
        update=_pointer(kind, values, new_values, update_type),
        choose=_pointer("pattern function", choose, _into_room, choose_type),
        time=_pointer("time function", time, _seconds, real(whole, whole, real)),
        compiled_values=by_values,
        compiled_rows=by_rows,
        compiled_time=by_time,
        python_values=None if by_values else values,
        python_rows=None if by_rows else choose,
        python_time=None if by_time else time,
        compiled={what: function for what, (is_compiled, function) in given.items() if is_compiled},
        map=fixed_point,
    )


def _is_compiled(function: Function | None) -> bool:
    import numba.core.dispatcher

    return isinstance(function, numba.core.dispatcher.Dispatcher)


def _for_any_types(function: Any) -> Any:
    """Return a function that its author compiled for given types, for those of read-only arrays."""
    if not _is_compiled(function) or function._can_compile:
        return function
    return type(function)(function.py_func, targetoptions=function.targetoptions)


def _pointer(kind: str, function: Any, safe: Any, signature: Any) -> Any:
    import numba

    if not _is_compiled(function):
        return NoFunction(signature)
    try:
        return _compiled_pointer(function, safe, signature)
    except (numba.core.errors.NumbaError, TypeError) as error:
        reason = " ".join(str(error).split())
        what = f"{kind} {function.py_func.__name__}"
        if "setitem(readonly" in reason or "Cannot modify readonly" in reason:
            raise InputError(f"{what}: it writes to what is read-only: write to `out`") from None
        types = ", ".join(map(str, signature.args))
        raise InputError(f"{what}: cannot be compiled for ({types}): {reason[:200]}") from None


@lru_cache(maxsize=64)
def _compiled_pointer(function: Any, safe: Any, signature: Any) -> Any:
    import numba

    return numba.cfunc(signature)(safe(function))


def _update(function: Any) -> Function:
    """Return an update function that says whether it raised."""

    def update(x: Any, rows: Any, A: Any, b: Any, out: Any) -> Any:
        raised = 0
        try:
            function(x, rows, A, b, out)
        except Exception:
            raised = 1
        return raised

    return update


def _map(function: Any) -> Function:
    """Return the map (x, rows, out) as an update function, which gets A and b besides."""
    import numba

    return _update(numba.njit(lambda x, rows, A, b, out: function(x, rows, out)))


def _into_room(function: Any) -> Function:
    """Let a pattern function write its rows to `room` if they fit; return how many, -1 if it
    raised."""

    def choose(processor: Any, update: Any, u: Any, room: Any) -> Any:
        size = -1
        try:
            rows = function(processor, update, u)
            if rows.size <= room.size:
                for place in range(rows.size):
                    room[place] = rows[place]
            size = rows.size
        except Exception:
            size = -1
        return size

    return choose


def _seconds(function: Any) -> Function:
    """Return a time function that is NaN where it raised."""

    def time(processor: Any, update: Any, u: Any) -> Any:
        seconds = np.nan
        try:
            seconds = function(processor, update, u)
        except Exception:
            seconds = np.nan
        return seconds

    return time
