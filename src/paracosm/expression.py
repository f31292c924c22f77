"""Names with parameters, as algorithms and optimizers are written: `ssp(slack=3)`."""

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from paracosm.errors import InputError, unknown

_COMMA = re.compile(r",(?![^(]*\))")  # but not those of a tuple
_CALL = re.compile(r"\s*([A-Za-z][\w-]*)\s*(?:\((.*)\))?\s*", re.DOTALL)


def parse_expression(text: object, kind: str) -> tuple[str, list[str], dict[str, str]]:
    """Split `name(a, b, key=value)` into the name, the positional and the named arguments.

    Raises:
        InputError: if `text` does not have that form; `kind` names what is being read.
    """
    if not isinstance(text, str):
        raise InputError(f"write the {kind} as text: name or name(key=value, ...)")
    article = "an" if kind[0] in "aeiou" else "a"
    cannot = f'cannot read "{text}" as {article} {kind}'
    match = _CALL.fullmatch(text)
    if match is None:
        raise InputError(f"{cannot}: write name or name(key=value, ...)")
    name, inside = match.groups()
    positional: list[str] = []
    named: dict[str, str] = {}
    for argument in _COMMA.split(inside) if (inside or "").strip() else []:
        key, equals, value = (part.strip() for part in argument.partition("="))
        if not (value if equals else key):
            raise InputError(f"{cannot}: an argument is empty")
        if not equals:
            positional.append(key)
        elif key in named:
            raise InputError(f"{cannot}: {key} is given twice")
        else:
            named[key] = value
    return name.lower(), positional, named


def split_list(text: str) -> list[str]:
    """Return the parts of a list of such names: `asgd, ssp(slack=3, cache=true)` has two."""
    return [part.strip() for part in _COMMA.split(text)]


def bind(
    name: str, positional: Sequence[str], named: Mapping[str, str], parameters: Collection[str]
) -> dict[str, str]:
    """Return what `parse_expression` found of a name by its `parameters`, which are in order.

    Raises:
        InputError: more values than parameters, a parameter that is not known or given twice.
    """
    if len(positional) > len(parameters):
        takes = f"the parameters {', '.join(parameters)}" if parameters else "no parameters"
        raise InputError(f"{name} takes {takes}, got {len(positional)} values")
    arguments = dict(zip(parameters, positional, strict=False))
    for key, value in named.items():
        if key not in parameters:
            if not parameters:
                raise InputError(f'{name} takes no parameters, got "{key}"')
            raise unknown(f"parameter of {name}", key, parameters)
        if key in arguments:
            raise InputError(f"{name}: {key} is given twice")
        arguments[key] = value
    return arguments


def read_literal(text: str) -> Any:
    """Parse a truth value, a number or a tuple of numbers; return any other text unchanged."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text
