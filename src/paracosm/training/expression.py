"""Names with parameters, as algorithms and optimizers are written: `ssp(slack=3)`."""

from __future__ import annotations

import re

from paracosm.errors import InputError

__all__ = ["parse_expression", "read_literal"]

_CALL = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?:\((.*)\))?\s*", re.DOTALL)


def parse_expression(text: str, kind: str) -> tuple[str, list[str], dict[str, str]]:
    """Split `name(a, b, key=value)` into the name, the positional and the named arguments.

    Raises:
        InputError: if `text` does not have that form; `kind` says what was to be read.
    """
    match = _CALL.fullmatch(text)
    if match is None:
        raise InputError(f'cannot read "{text}" as {_a(kind)}: write name or name(key=value, ...)')
    name, inside = match.groups()
    positional: list[str] = []
    named: dict[str, str] = {}
    for argument in (inside or "").split(",") if (inside or "").strip() else []:
        key, equals, value = (part.strip() for part in argument.partition("="))
        if not (value if equals else key):
            raise InputError(f'cannot read "{text}" as {_a(kind)}: an argument is empty')
        if not equals:
            positional.append(key)
        elif key in named:
            raise InputError(f'cannot read "{text}" as {_a(kind)}: {key} is given twice')
        else:
            named[key] = value
    return name.lower(), positional, named


def read_literal(text: str) -> bool | int | float | str:
    """Return the truth value, number or word that `text` writes."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
