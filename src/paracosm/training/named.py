"""Named dataclasses with parameters, parsed from and formatted as text.

`ssp(slack=3)` is the class called "ssp" with its field `slack` at 3.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from paracosm.errors import InputError
from paracosm.expression import bind, read_literal

LARGEST = 1e9
"""What a learning rate or a parameter that scales steps may be: multiplied by one another and by
the number of workers they must stay within single precision."""


READS_TEXT = "reads text"
"""Metadata of a field: true where the class itself reads the text that its value is written as."""


def arguments_of(
    kind: type, name: str, positional: Sequence[str], named: Mapping[str, str]
) -> dict[str, Any]:
    """Return the values of a dataclass's fields that `parse_expression` found in a text."""
    ordered = sorted(fields(kind), key=lambda field: bool(field.kw_only))
    kinds = {field.name: type(field.default) for field in ordered}
    texts = {field.name for field in ordered if field.metadata.get(READS_TEXT)}
    for key, each in kinds.items():
        if each not in _WANTED:
            raise InputError(
                f"{name}: its parameter {key} has no default that is a number, a truth value or a "
                "word: give it one"
            )
    arguments = bind(name, positional, named, kinds)
    return {
        key: value if key in texts else _read(name, key, value, kinds[key])
        for key, value in arguments.items()
    }


def write_named(thing: Any, name: str | None = None) -> str:
    """Return the text that is read as `thing`: defaults are left out."""
    name = thing.name if name is None else name
    changed = [
        f"{field.name}={getattr(thing, field.name)}"
        for field in fields(thing)
        if getattr(thing, field.name) != field.default
    ]
    return f"{name}({', '.join(changed)})" if changed else str(name)


def at_least(thing: Any, least: int, *names: str) -> None:
    """Raise InputError unless each of the named fields is that or more."""
    _check(thing, names, lambda value: value >= least, f"at least {least}")


def above_0(thing: Any, *names: str) -> None:
    """Raise InputError unless each of the named fields is above 0."""
    _check(thing, names, lambda value: value > 0, "above 0")


def below_1(thing: Any, *names: str) -> None:
    """Raise InputError unless each of the named fields is 0 or more, and below 1."""
    _check(thing, names, lambda value: 0 <= value < 1, "in [0, 1)")


def _check(thing: Any, names: Sequence[str], is_right: Callable[[Any], bool], wanted: str) -> None:
    for name in names:
        value = getattr(thing, name)
        if not is_right(value):
            raise InputError(f"{thing.name}: {name} must be {wanted}, got {value}")
        if isinstance(value, float) and value > LARGEST:
            raise InputError(f"{thing.name}: {name} must be at most {LARGEST:g}, got {value:g}")


_WANTED = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


def _read(name: str, key: str, text: str, kind: type) -> Any:
    value = read_literal(text)
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise InputError(f'{name}: {key} must be {_WANTED[kind]}, got "{text}"')
    return value
