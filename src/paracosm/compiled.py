"""Compilation of loops with Numba, function by function or together with all callees."""

import hashlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident, main_thread
from typing import Any, cast

import numba
import numpy as np
from numba.core import cgutils, compiler, event, imputils, types
from numba.core.registry import CPUDispatcher
from numba.core.typing import templates
from numba.extending import intrinsic, models, register_model

from paracosm.compiled_cache import enable_cache
from paracosm.compiled_parts import PartCompiler
from paracosm.errors import InputError

_Decorator = Callable[[Any], Any]
_njit: Any = numba.njit
_utilities: Any = cgutils
_intrinsic: _Decorator = intrinsic
_register: Callable[..., Any] = event.register
_resolver: _Decorator = templates.infer_getattr
_getter = cast(Callable[[Any], _Decorator], imputils.lower_getattr_generic)
_model = cast(Callable[[Any], _Decorator], register_model)
# An unused entry from C takes a tenth of the compile time.
_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with Numba and keep the result on disk."""
    return cast(Callable[..., Any], _cached(_njit(**_OPTIONS)(function)))


def compiled_whole(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that allocates no array, together with all `inlined` callees.

    Without Numba's runtime there is no reference counting, which costs more than the work.
    """
    return cast(Callable[..., Any], _cached(_njit(_nrt=False, **_OPTIONS)(function)))


def _cached(function: Any) -> Any:
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        raise InputError("NUMBA_DISABLE_JIT is set, and simulated time needs Numba: unset it")
    enable_cache(function)
    return function


def shaped(shapes: str) -> Callable[[Callable[..., Any]], Any]:
    """Make a compiled function check the shapes of its arrays, which are otherwise unchecked.

    Args:
        shapes: "n: begin end; n+1: offsets; * 4: stamps": names of parameters, or of fields of
            tuples, by shape: "n" is the same length wherever it stands, "*" any.
    """

    def make(function: Any) -> Any:
        kernel = Kernel(function.py_func, targetoptions=function.targetoptions)
        parts = [part.split(":") for part in shapes.split(";")]
        kernel.shapes = {name: shape.split() for shape, names in parts for name in names.split()}
        return _cached(kernel)

    return make


class Kernel(CPUDispatcher):
    """A compiled function whose arrays are checked first."""

    shapes: Mapping[str, Sequence[str]]

    def __call__(self, *args: Any) -> Any:
        lengths: dict[str, int] = {}
        given = _named(self.py_func.__code__.co_varnames, args)
        for name, shape in self.shapes.items():
            actual = np.shape(given[name])
            for wanted, length in zip(shape, actual, strict=True):
                symbol, _, more = wanted.partition("+")
                here = length - int(more or 0)
                known = int(symbol) if symbol.isdigit() else lengths.setdefault(symbol, here)
                if symbol != "*" and (here < 0 or here != known):
                    raise ValueError(
                        f"{self.py_func.__qualname__}: {name} is of shape {actual}, not "
                        f"({', '.join(shape)}) with {symbol} = {known}"
                    )
        return super().__call__(*args)


def _named(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return values by name, those in tuples among them; of equal names the outermost."""
    arguments = dict(zip(names, values, strict=False))
    for value in values:
        if hasattr(value, "_fields"):
            arguments = _named(value._fields, value) | arguments
    return arguments


def subroutine(function: Callable[..., Any], **options: bool) -> Any:
    """Compile as `compiled_whole` does, for calls by compiled functions only.

    An entry from Python unpacks every array of every tuple: it can take as long to compile as the
    function does. Python can call `py_func`.
    """
    return _part(function, PartCompiler, **options)


def by_reference(function: Callable[..., Any]) -> Any:
    """Compile as `subroutine` does, where all arguments are numbers and references.

    Nobody writes to what a reference is of, so LLVM need not read it again after other writes:
    Numba's flag says so of all pointers, of which arrays would be some.
    """
    part = subroutine(function)

    def unaliased(flags: Any) -> Any:
        flags.noalias = True
        return flags

    part._compiler._customize_flags = unaliased
    return part


def inlined(function: Callable[..., Any]) -> Any:
    """Compile into the callers: a call hands over all arrays, and costs more than an event."""
    # Optimised by themselves: the loops of events are an eighth slower if only their callers are.
    return _part(function, compiler.Compiler, forceinline=True)


def _part(function: Callable[..., Any], pipeline: Any, **options: bool) -> Any:
    options |= {"nopython": True, "_nrt": False, "no_cpython_wrapper": True}
    return _cached(_Part(function, targetoptions=_OPTIONS | options, pipeline_class=pipeline))


def columns(kind: str, *names: str) -> list[tuple[str, str]]:
    """Return fields of one type, such as "i8", for the dtype of a record."""
    return [(name, kind) for name in names]


@_intrinsic
def reference(_: Any, value: Any) -> Any:
    """Return a named tuple by reference, as are named tuples in it, for as long as the caller runs.

    By value a call hands over every field of every array by itself: with a hundred arrays that
    takes more time to compile, and to run, than most functions do.
    """

    def store(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return _utilities.alloca_once_value(builder, given[0])

    return Reference(value)(value), store


@_intrinsic
def dereference(_: Any, pointer: Any) -> Any:
    """Return the named tuple that a reference is of, for a callee that takes it by value."""

    def load(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.load(given[0])

    return pointer.target(pointer), load


class Reference(types.Type):
    """The type of a named tuple by reference."""

    def __init__(self, target: Any) -> None:
        self.target = target
        # Symbols have the names of their arguments' types: short ones are sooner read.
        words = f"{target.instance_class.__module__} {target}"
        digest = hashlib.sha256(words.encode()).hexdigest()[:16]
        super().__init__(name=f"{target.instance_class.__name__}{digest}")

    @property
    def instance_class(self) -> Any:
        return self.target.instance_class


_NAMED = (types.NamedTuple, types.NamedUniTuple)


@_model(Reference)
class _Pointer(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        start: Any = super().__init__
        start(manager, kind, manager[kind.target].get_value_type().as_pointer())


@_resolver
class _Fields(templates.AttributeTemplate):
    key = Reference

    def generic_resolve(self, value: Any, attr: str) -> Any:  # type: ignore[override]
        if attr not in value.target.fields:
            return None
        kind = value.target.types[value.target.fields.index(attr)]
        return Reference(kind) if isinstance(kind, _NAMED) else kind


@_getter(Reference)
def _field(context: Any, builder: Any, pointer: Any, value: Any, name: str) -> Any:
    place = pointer.target.fields.index(name)
    field = _utilities.gep_inbounds(builder, value, 0, place)
    return field if isinstance(pointer.target.types[place], _NAMED) else builder.load(field)


@contextmanager
def compiling_announced(announce: Callable[[], None]) -> Iterator[None]:
    """Call `announce` once, when Numba first compiles what no process has compiled before."""
    with event.install_listener("numba:compile", _Announced(announce)):
        yield


class _Announced(event.Listener):
    def __init__(self, announce: Callable[[], None]) -> None:
        self._announce: Callable[[], None] | None = announce

    def on_start(self, event: Any) -> None:
        announce, self._announce = self._announce, None
        if announce is not None:
            announce()

    def on_end(self, event: Any) -> None:
        pass


class _SignalsHeld(event.Listener):
    """Holds signals back while Numba compiles in the main thread, up to its next pass.

    LLVM calls Python back with what it has compiled, and collects garbage by calls of its own. What
    a signal's handler raises there, such as Ctrl-C's KeyboardInterrupt, Python prints and forgets;
    then Numba misses the code, which is an error of another kind, or goes on.
    """

    def __init__(self) -> None:
        self._depth = 0  # of Numba's lock, which is held while something is compiled or loaded
        self._handlers: dict[int, Any] = {}
        self._received: list[int] = []

    def on_start(self, event: Any) -> None:
        if get_ident() != main_thread().ident:  # signals are handled in the main thread only
            return
        if event.kind == "numba:run_pass":
            if self._received:
                self._release()
            return
        self._depth += 1
        if self._depth == 1:
            try:
                for number in _SIGNALS:
                    self._hold(number)
            except BaseException:
                self._release()
                raise

    def on_end(self, event: Any) -> None:
        if get_ident() == main_thread().ident and event.kind != "numba:run_pass" and self._depth:
            self._depth -= 1
            if self._depth == 0:
                self._release()

    def _hold(self, number: int) -> None:
        handler = signal.getsignal(number)
        if callable(handler):
            self._handlers[number] = handler
            signal.signal(number, lambda number, frame: self._received.append(number))

    def _release(self) -> None:
        self._depth = 0
        while self._handlers:
            signal.signal(*self._handlers.popitem())
        received, self._received = self._received, []
        for number in received:
            signal.raise_signal(number)


_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
_signals_held = _SignalsHeld()
for _kind in ("numba:compiler_lock", "numba:run_pass"):
    _register(_kind, _signals_held)


class _Part(CPUDispatcher):
    """A compiled function without an entry from Python, where a call would crash."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self.py_func.__qualname__} is for compiled functions: call its py_func")
