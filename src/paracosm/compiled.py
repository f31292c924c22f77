"""Compilation of loops with Numba, function by function or together with all callees."""

import gc
import hashlib
import signal
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import get_ident, main_thread
from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, compiler, event, imputils, targetconfig, types
from numba.core.registry import CPUDispatcher
from numba.core.typing import templates
from numba.extending import (
    NativeValue,
    intrinsic,
    models,
    register_model,
    typeof_impl,
    unbox,
)
from numba.np.numpy_support import as_dtype

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
_type_of = cast(Callable[[Any], _Decorator], typeof_impl.register)
_unbox = cast(Callable[[Any], _Decorator], unbox)
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
    compilation. Equal functions with equal candidates are one object.
    """
    functions: Any = types.BaseFunction
    resolve = functions.get_call_type

    def get_call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
        flags = _config_stack.top_or_none()
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
    kinds = tuple(map(_typeof, arguments))
    function.compile(kinds)
    compiled = function.overloads[kinds]
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_cfunc_wrapper_name))


def columns(kind: str, *names: str) -> list[tuple[str, str]]:
    """Return fields of one type, such as "i8", for the dtype of a record."""
    return [(name, kind) for name in names]


class Referenced:
    """A named tuple, with named tuples in it, that compiled functions take by reference.

    By value a call hands over every field of every array by itself: with a hundred arrays that
    takes more time to compile, and to run, than most functions do. Here the fields are words of 64
    bits behind each other, from which compiled code loads a field where it names it: numbers, C's
    addresses of functions, and arrays as Numba has them in registers.

    Raises:
        TypeError: a field is something else, such as an array that is not contiguous.
    """

    def __init__(self, value: Any) -> None:
        self.value = value  # whose arrays live as long as the words do
        self._words = np.array(list(_words(value)), np.int64)
        self.address = int(self._words.ctypes.data)


class NoFunction:
    """What stands for a function of a signature of Numba's where there is none to be called."""

    address = 0

    def __init__(self, signature: Any) -> None:
        self.signature = signature


def _words(value: Any) -> Iterator[int]:
    if isinstance(value, tuple):
        for field in value:
            yield from _words(field)
    elif isinstance(value, np.ndarray) and value.flags.c_contiguous:
        yield from (value.ctypes.data, *value.shape)
    elif isinstance(value, (bool, int, np.bool_, np.integer)):
        yield int(value)
    elif isinstance(value, float):
        yield int(np.float64(value).view(np.int64))
    elif value is not None:
        if not hasattr(value, "address"):
            raise TypeError(f"{value!r} cannot be handed over by reference")
        yield value.address


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


def _size(kind: Any) -> int:
    """Return how many words a field takes."""
    if isinstance(kind, _NAMED):
        return sum(_size(field) for field in kind.types)
    if isinstance(kind, types.Array):
        return 1 + int(kind.ndim)
    return 0 if kind == types.none else 1


@_type_of(Referenced)
def _type_of_referenced(value: Referenced, _: Any) -> Any:
    """Return the type, which for a hundred arrays Numba takes two milliseconds to find."""
    key = _fingerprint(value.value)
    if key not in _types:
        _types[key] = Reference(_typeof(value.value))
    return _types[key]


@_type_of(NoFunction)
def _type_of_no_function(value: NoFunction, _: Any) -> Any:
    return types.FunctionType(value.signature)


def _fingerprint(value: Any) -> Hashable:
    """Return what the type of a field depends on."""
    if isinstance(value, tuple):
        return type(value), *map(_fingerprint, value)
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim, value.flags.writeable
    kind: Any = _typeof(value) if hasattr(value, "address") else type(value)
    return cast(Hashable, kind)


_types: dict[Hashable, Reference] = {}
_typeof: Any = numba.typeof


@_unbox(Reference)
def _address_of(kind: Any, referenced: Any, compilation: Any) -> Any:
    python = compilation.pyapi
    address = python.object_getattr_string(referenced, "address")
    pointer = python.long_as_voidptr(address)
    python.decref(address)
    make: Any = NativeValue
    return make(compilation.builder.bitcast(pointer, _WORDS), compilation.pyapi.c_api_error())


_WORDS: Any = ir.IntType(64).as_pointer()


@_model(Reference)
class _Pointer(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        start: Any = super().__init__
        start(manager, kind, _WORDS)


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
    return _loaded_field(context, builder, pointer.target, value, pointer.target.fields.index(name))


def _loaded_field(context: Any, builder: Any, target: Any, value: Any, place: int) -> Any:
    kind = target.types[place]
    start = sum(map(_size, target.types[:place]))

    def word(number: int) -> Any:
        at = builder.gep(value, [ir.Constant(ir.IntType(64), start + number)], inbounds=True)
        loaded = builder.load(at)
        # Nobody writes to words: they need not be read again after a write to an array.
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    if isinstance(kind, _NAMED):
        return builder.gep(value, [ir.Constant(ir.IntType(64), start)], inbounds=True)
    if kind == types.none:
        return context.get_dummy_value()
    if kind == types.boolean:
        return builder.trunc(word(0), ir.IntType(1))
    if kind == types.float64:
        return builder.bitcast(word(0), ir.DoubleType())
    if isinstance(kind, types.FunctionType):
        return _function(context, builder, kind, word(0))
    if isinstance(kind, types.Array):
        return _array(context, builder, kind, word)
    return builder.trunc(word(0), context.get_value_type(kind))


def _array(context: Any, builder: Any, kind: Any, word: Callable[[int], Any]) -> Any:
    """Return an array as Numba has it, with the fields of its `ArrayModel`; it owns no data."""
    model = context.get_value_type(kind)
    item = as_dtype(kind.dtype).itemsize
    array = ir.Constant(model, None)
    lengths = [word(1 + axis) for axis in range(kind.ndim)]
    stride: Any = ir.Constant(ir.IntType(64), item)
    array = builder.insert_value(array, stride, 3)
    array = builder.insert_value(array, builder.inttoptr(word(0), model.elements[4]), 4)
    for axis in reversed(range(kind.ndim)):
        array = builder.insert_value(array, lengths[axis], [5, axis])
        array = builder.insert_value(array, stride, [6, axis])
        if axis:
            stride = builder.mul(lengths[axis], stride, flags=["nsw"])
    size = lengths[0]
    for length in lengths[1:]:
        size = builder.mul(size, length, flags=["nsw"])
    return builder.insert_value(array, size, 2)


def _function(context: Any, builder: Any, kind: Any, address: Any) -> Any:
    function = _utilities.create_struct_proxy(kind)(context, builder)
    function.c_addr = builder.inttoptr(address, function.c_addr.type)
    return function._getvalue()


@_intrinsic
def dereference(_: Any, pointer: Any) -> Any:
    """Return the named tuple that a reference is of, for a callee that takes it by value."""

    def load(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        target = pointer.target
        places = range(len(target.types))
        fields = [_loaded_field(context, builder, target, given[0], place) for place in places]
        return context.make_tuple(builder, target, fields)

    return pointer.target(pointer), load


@_intrinsic
def call_address(_: Any, function: Any, arguments: Any) -> Any:
    """Call a compiled function by its address in C, which cannot raise.

    Numba's own call looks for an entry from Python too, which takes long to compile.
    """
    signature = function.signature

    def call(context: Any, builder: Any, _: Any, given: Any) -> Any:
        address = _utilities.create_struct_proxy(function)(context, builder, value=given[0]).c_addr
        pointer = builder.bitcast(address, context.get_value_type(function.ftype))
        values = _utilities.unpack_tuple(builder, given[1])
        casts = zip(values, arguments.types, signature.args, strict=True)
        return builder.call(pointer, [context.cast(builder, *cast) for cast in casts])

    return signature.return_type(function, arguments), call


@_intrinsic
def call_apart(_: Any, address: Any, arguments: Any) -> Any:
    """Call what is at an address of `address_of` with a tuple of arguments of the same types."""

    def call(context: Any, builder: Any, _: Any, given: Any) -> Any:
        kinds = [context.get_value_type(kind) for kind in arguments.types]
        kind = ir.FunctionType(ir.IntType(64), kinds).as_pointer()
        values = _utilities.unpack_tuple(builder, given[1])
        return builder.call(builder.inttoptr(given[0], kind), values)

    return types.int64(address, arguments), call


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
