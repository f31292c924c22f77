"""Named tuples of many arrays, and addresses of functions, as compiled functions take them."""

import hashlib
from collections.abc import Callable, Hashable, Iterator
from typing import Any, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, imputils, types
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

_Decorator = Callable[[Any], Any]
_utilities: Any = cgutils
_intrinsic: _Decorator = intrinsic
_resolver: _Decorator = templates.infer_getattr
_getter = cast(Callable[[Any], _Decorator], imputils.lower_getattr_generic)
_model = cast(Callable[[Any], _Decorator], register_model)
_type_of = cast(Callable[[Any], _Decorator], typeof_impl.register)
_unbox = cast(Callable[[Any], _Decorator], unbox)


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
    # The address in C comes first; Numba's versions have several names for it.
    function[0] = builder.inttoptr(address, function[0].type)
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
        address = _utilities.create_struct_proxy(function)(context, builder, value=given[0])[0]
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
