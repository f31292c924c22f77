"""Things of the user's own, named `package.module:factory` where a built-in name could stand."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from paracosm.errors import InputError

__all__ = ["call_factory", "is_reference", "one_line"]


def is_reference(name: str) -> bool:
    """Whether `name` has the form `package.module:factory`."""
    return ":" in name


def call_factory(
    kind: str, reference: str, offered: Mapping[str, Any], required: bool = False
) -> Any:
    """Call the factory that `reference` names and return what it makes.

    It gets those of the `offered` arguments that it has parameters for, by name; if it requires
    others, all of them in order; if it takes none, none. The current folder is searched too.

    Args:
        kind: "model" or "data set", for messages.
        reference: `package.module:factory`.
        offered: arguments by name.
        required: whether a factory that has no parameter for all of them is refused.

    Raises:
        InputError: it cannot be found, or it fails; with the type and message of its own error.
    """
    factory = _find(kind, reference)
    positional, named = _arguments(kind, reference, factory, offered)
    if required and len(positional) + len(named) < len(offered):
        raise InputError(f'{kind} "{reference}" takes no {", ".join(offered)}')
    try:
        return factory(*positional, **named)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f'{kind} "{reference}" failed: {one_line(error)}') from error


def one_line(error: BaseException) -> str:
    """Return the type and the message of an error on one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _find(kind: str, reference: str) -> Callable[..., Any]:
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise InputError(f'{kind} "{reference}": expected package.module:factory')
    # A console script does not search the current folder, where the user's own module lies.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InputError(
            f'{kind} "{reference}": cannot import {module_name}: {one_line(error)}'
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        what = "has no" if factory is None else "has a variable, not a function,"
        raise InputError(f'{kind} "{reference}": {module_name} {what} "{attribute}"')
    return factory  # type: ignore[no-any-return]  # callable() says no more than that


def _arguments(
    kind: str, reference: str, factory: Callable[..., Any], offered: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and the named arguments to call the factory with."""
    try:
        signature = inspect.signature(factory)
    except ValueError:  # some callables written in C have none
        return (), {}
    named = {name: value for name, value in offered.items() if name in signature.parameters}
    attempts: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), named),
        (tuple(offered.values()), {}),
    ]
    for positional, keywords in attempts:
        try:
            signature.bind(*positional, **keywords)
        except TypeError:
            continue
        return positional, keywords
    takes = f"({', '.join(offered)}), some of them by name, or nothing" if offered else "nothing"
    raise InputError(
        f'{kind} "{reference}" has the parameters {signature}; a factory takes {takes}'
    )
