"""Compilation of loops with Numba, function by function or together with all callees."""

import gc
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident, main_thread
from typing import Any, cast

import numba
import numpy as np
from numba.core import compiler, event, targetconfig, types
from numba.core.registry import CPUDispatcher

from paracosm.compiled_cache import enable_cache
from paracosm.compiled_parts import PartCompiler
from paracosm.compiled_references import Referenced
from paracosm.errors import InputError

_Decorator = Callable[[Any], Any]
_njit: Any = numba.njit
_register: Callable[..., Any] = event.register
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
    function._compiler._customize_flags = _flags
    enable_cache(function)
    return function


class _Flags(compiler.Flags):
    """Numba's flags, which are compared at every try of an overload: a tenth of a compilation."""

    __slots__ = ()

    def __hash__(self) -> int:
        return _HASH

    def __eq__(self, other: object) -> Any:
        if type(other) is _Flags and self._values == other._values:
            return True
        equal: Any = super().__eq__
        return equal(other)


_flags: Any = _Flags
_numbas_flags: Any = compiler.Flags
_config_stack: Any = targetconfig.ConfigStack
_HASH = hash(_numbas_flags())  # the same of all flags: Numba hashes their names


def _remember_signatures() -> None:
    """Let Numba remember which signature a function has for given types.

    It tries all that might fit at each call and operator of each function: an eighth of a
    compilation. Equal functions with equal candidates are one object. Where other code compiles a
    function of its own, nothing is remembered.
    """
    functions: Any = types.functions.BaseFunction
    resolve = functions.get_call_type

    def get_call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
        flags = _config_stack.top_or_none()
        if type(flags) is not _Flags:
            return resolve(function, context, args, kws)
        key = context, tuple(args), tuple(kws.items()), flags
        signatures = vars(function).setdefault("_signatures", {})
        signature = signatures.get(key)
        if signature is None:
            signature = signatures[key] = resolve(function, context, args, kws)
        return signature

    functions.get_call_type = get_call_type


_remember_signatures()


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
    values = [value.value if isinstance(value, Referenced) else value for value in values]
    arguments = dict(zip(names, values, strict=False))
    for value in values:
        if hasattr(value, "_fields"):
            arguments = _named(value._fields, value) | arguments
    return arguments


def subroutine(function: Callable[..., Any]) -> Any:
    """Compile as `compiled_whole` does, for calls by compiled functions only.

    An entry from Python unpacks every array of every tuple: it can take as long to compile as the
    function does. Python can call `py_func`.
    """
    return _part(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile as `subroutine` does, into the callers: a call costs more than an event."""
    return _part(function, forceinline=True)


def _part(function: Callable[..., Any], **options: bool) -> Any:
    options |= {"nopython": True, "_nrt": False, "no_cpython_wrapper": True}
    return _cached(_Part(function, targetoptions=_OPTIONS | options, pipeline_class=PartCompiler))


def apart(function: Callable[..., Any]) -> Any:
    """Compile by itself, for calls by `call_apart`: only where somebody needs its address.

    Its arguments are numbers and references, its result is a whole number.
    """
    options = {**_OPTIONS, "nopython": True, "_nrt": False}
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": False}
    return _cached(_Part(function, targetoptions=options))


def address_of(function: Any, *arguments: Any) -> int:
    """Return the address of a function that is `apart`, compiled for arguments like these."""
    typeof: Any = numba.typeof
    kinds = tuple(map(typeof, arguments))
    function.compile(kinds)
    compiled = function.overloads[kinds]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name))


def columns(kind: str, *names: str) -> list[tuple[str, str]]:
    """Return fields of one type, such as "i8", for the dtype of a record."""
    return [(name, kind) for name in names]


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


class _GarbageKept(event.Listener):
    """Keeps Python from looking for garbage while Numba compiles.

    There is little before the end, and looking for it takes a tenth of the time.
    """

    def __init__(self) -> None:
        self._depth = 0  # of compilations, which hold Numba's lock
        self._enabled = False

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._enabled = gc.isenabled()
            gc.disable()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and self._enabled:
            gc.enable()


_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
_signals_held = _SignalsHeld()
for _kind in ("numba:compiler_lock", "numba:run_pass"):
    _register(_kind, _signals_held)
_register("numba:compile", _GarbageKept())


class _Part(CPUDispatcher):
    """A compiled function without an entry from Python, where a call would crash."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"{self.py_func.__qualname__} is for compiled functions: call its py_func")
