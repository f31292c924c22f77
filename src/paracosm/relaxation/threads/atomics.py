"""Primitives that Numba lacks: atomics, a clock, and yielding the core.

Each is a few LLVM instructions or a call of the C library, inlined into compiled code that holds no
global interpreter lock; nothing here is callable from Python. A function that uses them can be
cached on disk, since the C library's functions are bound by name when it is loaded.

Every atomic is sequentially consistent: besides ordering the hardware, that keeps the compiler from
moving the plain loads and stores of shared vectors past it.
"""

import sys
from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import types
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic

from paracosm.compiled import compiled
from paracosm.errors import InputError

_ORDER = "seq_cst"
_WORD, _DOUBLE = ir.IntType(64), ir.DoubleType()
# Of POSIX clocks: the number of CLOCK_MONOTONIC differs between systems.
_MONOTONIC = {"linux": 1, "darwin": 6}

cgutils = cast(Any, untyped_cgutils)


def check_platform() -> None:
    """Refuse systems without POSIX clocks."""
    if sys.platform not in _MONOTONIC:
        raise InputError(
            f"real threads are measured with POSIX clocks, which {sys.platform} lacks: measure on "
            "Linux or macOS"
        )


def _intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    return cast(Callable[..., Any], intrinsic(function))


def _element(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


@_intrinsic
def load(_typing: Any, array: Any, index: Any) -> Any:
    """Return `array[index]` of an int64 array."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(pointer, _ORDER, 8)

    return types.int64(array, types.intp), codegen


@_intrinsic
def store(_typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Set `array[index] = value` of an int64 array."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, signature.args[0], *arguments[:2])
        builder.store_atomic(arguments[2], pointer, _ORDER, 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), codegen


@_intrinsic
def add(_typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Add `value` to `array[index]` of an int64 array; return what was there before."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, signature.args[0], *arguments[:2])
        return builder.atomic_rmw("add", pointer, arguments[2], _ORDER)

    return types.int64(array, types.intp, types.int64), codegen


@_intrinsic
def add_float(_typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Add `value` to `array[index]` of a float64 array; return what was there before."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, signature.args[0], *arguments[:2])
        return builder.atomic_rmw("fadd", pointer, arguments[2], _ORDER)

    return types.float64(array, types.intp, types.float64), codegen


@_intrinsic
def compare_and_swap(_typing: Any, array: Any, index: Any, expected: Any, value: Any) -> Any:
    """Set `array[index] = value` of an int64 array if it is `expected`; return whether it was."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _element(context, builder, signature.args[0], *arguments[:2])
        pair = builder.cmpxchg(pointer, arguments[2], arguments[3], _ORDER, _ORDER)
        return builder.extract_value(pair, 1)

    return types.boolean(array, types.intp, types.int64, types.int64), codegen


@_intrinsic
def now(_typing: Any) -> Any:
    """Return the monotonic clock in nanoseconds, an int64."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.IntType(32)
        moment = cgutils.alloca_once(builder, ir.LiteralStructType([_WORD, _WORD]))
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(kind, [kind, moment.type]), "clock_gettime"
        )
        builder.call(function, [ir.Constant(kind, _MONOTONIC[sys.platform]), moment])
        seconds = builder.load(cgutils.gep_inbounds(builder, moment, 0, 0))
        nanoseconds = builder.load(cgutils.gep_inbounds(builder, moment, 0, 1))
        return builder.add(builder.mul(seconds, ir.Constant(_WORD, 1_000_000_000)), nanoseconds)

    return types.int64(), codegen


@_intrinsic
def step_aside(_typing: Any) -> Any:
    """Yield the core to a waiting thread."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        function = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(ir.IntType(32), []), "sched_yield"
        )
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), codegen


@_intrinsic
def pause(_typing: Any) -> Any:
    """Tell the core that this is a spinning loop; nothing on cores that know no such hint."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if builder.module.triple.startswith("x86_64"):
            hint = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause"
            )
            builder.call(hint, [])
        return context.get_dummy_value()

    return types.void(), codegen


LINE = 8  # int64 words of a cache line
# Places in the array: x's lock; whether to stop; the starting line; when the run began, and when
# its convergence was detected (nanoseconds); how it ended; how often the threads were called to
# confirm convergence, arrived, and had it decided.
LOCK, STOP, ARRIVED, GO, BEGAN, DETECTED, STATUS, CALLED, WAITING, DECIDED = range(
    0, 10 * LINE, LINE
)
CONTROL_WORDS = 10 * LINE

_SPINS = 64  # between two attempts to give the core away


@compiled
def acquire(locks: Any, at: Any) -> None:
    """Take the lock `locks[at]`: spin while it is held, and let others run now and then."""
    spins = 0
    while not compare_and_swap(locks, at, 0, 1):
        while load(locks, at) != 0:
            spins += 1
            if spins % _SPINS == 0:
                step_aside()
            else:
                pause()


@compiled
def release(locks: Any, at: Any) -> None:
    """Release the lock `locks[at]`."""
    store(locks, at, 0)


@compiled
def begin_together(control: Any, threads: Any) -> None:
    """Wait until all `threads` are here (or the run is stopped); the last one notes the time."""
    if add(control, ARRIVED, 1) + 1 == threads:
        store(control, BEGAN, now())
        store(control, GO, 1)
    while load(control, GO) == 0 and load(control, STOP) == 0:
        step_aside()
