"""Typed records that map to JSON, and conversion of values to JSON."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, fields
from enum import Enum
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    NoReturn,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from paracosm.errors import InputError
from paracosm.factory import reference_to


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
class JsonObject(Mapping[str, Any]):
    """A frozen record whose fields are read as attributes or, as in JSON, by name.

    Subclasses are data classes, made with keywords and changed by `dataclasses.replace`.

    A field with the default None is left out of mapping and JSON while it is None; a field without
    a default is always present.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __init_subclass__(cls) -> None:
        # Methods made for each of fifty classes would take as long as importing NumPy.
        dataclass(init=False, repr=False, eq=False)(cls)

    def __init__(self, **values: Any) -> None:
        kind, defaults = type(self).__name__, _defaults(type(self))
        if unknown := values.keys() - defaults.keys():
            raise TypeError(f"{kind} has no field {', '.join(sorted(unknown))}")
        vars(self).update(defaults, **values)
        missing = [name for name, value in vars(self).items() if value is MISSING]
        if missing:
            raise TypeError(f"{kind} needs {', '.join(missing)}")

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__qualname__}({values})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __getitem__(self, name: str) -> Any:
        if name not in _fields(type(self)) or self._is_left_out(name):
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in _fields(type(self)) if not self._is_left_out(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _is_left_out(self, name: str) -> bool:
        return _fields(type(self))[name] and getattr(self, name) is None

    def to_dict(self) -> dict[str, Any]:
        """Return the object as nested dicts and lists, as in JSON."""
        mapping: dict[str, Any] = to_builtin(self)
        return mapping

    @classmethod
    def from_dict(cls, found: Mapping[str, Any], where: str = "") -> Self:
        """Return the object that a mapping describes, for example one read from JSON. Unknown names
        are ignored. A missing field is None: the summary of an unfinished run has only known
        values. Where a file is named, only numbers may be null (as JSON has no NaN) besides what
        may be None.

        Raises:
            InputError: a value is not of its field's type; `where` it stands begins the message.
        """
        kinds = _hints(cls)
        known = {
            name: _typed(kinds[name], found[name], where and where + name)
            for name in _fields(cls)
            if name in found
        }
        needed = (field.name for field in fields(cls) if field.default is MISSING)
        return cls(**{**dict.fromkeys(needed), **known})


@cache
def _fields(kind: type[JsonObject]) -> Mapping[str, bool]:
    """Return the fields of a type by name, and whether None leaves each out."""
    return {field.name: field.default is None for field in fields(kind) if field.init}


@cache
def _defaults(kind: type[JsonObject]) -> Mapping[str, Any]:
    """Return the default of each field of a type."""
    return {each.name: each.default for each in fields(kind)}


_hints = cache(get_type_hints)


def _typed(kind: Any, value: Any, where: str) -> Any:
    """Convert a JSON value to the type of its annotation."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or (value is None and (not where or kind is float or NoneType in arguments)):
        return value
    if origin in (Union, UnionType):
        return _typed(
            next(argument for argument in arguments if argument is not NoneType), value, where
        )
    if origin is Sequence and isinstance(value, list | tuple):
        return [_typed(arguments[0], item, where) for item in value]
    if isinstance(value, Mapping):
        below = where and f"{where}."
        if origin is Mapping:
            return {key: _typed(arguments[1], item, below + key) for key, item in value.items()}
        if isinstance(kind, type) and issubclass(kind, JsonObject):
            return value if isinstance(value, kind) else kind.from_dict(value, below)
    elif origin is Literal or (
        isinstance(value, _SCALARS.get(kind, NoneType))
        and isinstance(value, bool) == (kind is bool)
    ):
        return value
    shown = "null" if value is None else str(value)[:60]
    raise InputError(f"{where}: {shown!r} cannot stand here")


_SCALARS: Mapping[Any, Any] = {float: Real, int: Integral, str: str, bool: bool}


def to_builtin(value: object) -> Any:
    """Return `value` made of dict, list, str, int, float, bool and None only.

    Scalars and arrays of NumPy and PyTorch become numbers and lists, enums their values,
    classes their names (`package.module:Class`), paths and everything else strings.
    """
    match value:
        case Enum():
            return to_builtin(value.value)
        case None | bool():
            return value
        case str():
            return str(value)
        case Integral():
            return int(value)
        case Real():
            return float(value)
        case Mapping():
            return {str(key): to_builtin(item) for key, item in value.items()}
        case type():
            return reference_to(value)
        case list() | tuple():
            return [to_builtin(item) for item in value]
    if callable(to_list := getattr(value, "tolist", None)):
        listed = to_list()
        # A complex number that Python has no type for is its own list.
        return str(value) if type(listed) is type(value) else to_builtin(listed)
    return str(value)


def to_json(value: object) -> str:
    """Return indented JSON that every parser reads: NaN and the infinities become null."""
    text = json.dumps(_finite(to_builtin(value)), indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n"


def with_digest(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a summary with what shows later that it was damaged."""
    return {**summary, "digest": _digest(summary)}


def without_digest(summary: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the content of a `summary.json` as it was before `with_digest`.

    Raises:
        InputError: it has another digest, or none.
    """
    rest = {key: value for key, value in summary.items() if key != "digest"}
    if summary.get("digest") != _digest(rest):
        raise InputError(f"{where}: damaged: it is not what was written (see its digest)")
    return rest


def _digest(summary: Mapping[str, Any]) -> str:
    return hashlib.blake2b(to_json(summary).encode(), digest_size=16).hexdigest()


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value
