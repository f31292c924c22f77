"""User-defined factories, written `package.module:factory` in place of a built-in name. The module
may be a file: `folder/file.py:factory`.
"""

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from paracosm.errors import InputError
from paracosm.files import Stamp, file_stamp


def is_reference(name: str) -> bool:
    """Whether `name` has the form `package.module:factory`."""
    return ":" in name


def call_factory(
    kind: str, reference: str, offered: Mapping[str, Any]
) -> tuple[Any, frozenset[str]]:
    """Call the factory that `reference` names; return its result and its arguments.

    It is called with those of the `offered` arguments that it has parameters for, by name. The
    current folder is searched too.

    Args:
        kind: "model" or "data set", for messages.
        reference: `package.module:factory` or `file.py:factory`.
        offered: arguments by name; None for one that is not known.

    Raises:
        InputError: it cannot be found, requires other arguments, or fails (with the type and
            message of its error).
    """
    factory = named_function(kind, reference)
    given = _arguments(kind, reference, factory, offered)
    try:
        return factory(**given), frozenset(given)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f'{kind} "{reference}" failed: {describe_error(error)}') from error


def named_function(kind: str, reference: str) -> Callable[..., Any]:
    """Return what `reference` names; a module is looked for in the current folder too.

    Args:
        kind: "model" or "data set", for messages.
        reference: `package.module:function` or `file.py:function`.

    Raises:
        InputError: it cannot be found, or its module fails (with the module's error).
    """
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise InputError(f'{kind} "{reference}": expected package.module:factory')
    try:
        load = _load_file if module_name.endswith(".py") else _load_module
        module = load(module_name)
    except (Exception, SystemExit) as error:
        raise InputError(
            f'{kind} "{reference}": cannot import {module_name}: {describe_error(error)}'
        ) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        what = "has no" if function is None else "has a variable, not a function,"
        raise InputError(f'{kind} "{reference}": {module_name} {what} "{attribute}"')
    return function  # type: ignore[no-any-return]  # callable() says no more than that


def describe_error(error: BaseException, place: bool = True) -> str:
    """Return the type and the message of an error on one line, and its place in the user's code."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # of a class of the user's
        message = ""
    told = f"{type(error).__name__}: {message}" if message else type(error).__name__
    where = users_place(error) if place else None
    return told if where is None else f"{told} ({where})"


@dataclass(frozen=True)
class Place:
    """A line of the user's code."""

    file: str
    line: int | None
    raises: bool  # itself, or a library that it calls; not Paracosm

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def users_place(error: BaseException) -> Place | None:
    """Return where the user's code comes last in an error's traceback, or in that of its cause."""
    # The cause as well: a coroutine's StopIteration is raised again as a RuntimeError.
    for each in (error, error.__cause__):
        frames = traceback.extract_tb(each.__traceback__) if each is not None else []
        # Where Paracosm is installed, it lies among the libraries.
        ours = [frame for frame in frames if frame.filename.startswith(_OURS)]
        frames = [f for f in frames if f in ours or not _is_in_library(f.filename)]
        own = [frame for frame in frames if frame not in ours]
        if own:
            return Place(own[-1].filename, own[-1].lineno, own[-1] is frames[-1])
    return None


def _is_in_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or file.endswith(_CYTHON)


_OURS = str(Path(__file__).parent)
_LIBRARIES = (sys.prefix, sys.base_prefix, "<")
_CYTHON = (".pyx", ".pxi", ".pxd")  # whose frames name the file where it was compiled


def _load_module(name: str) -> ModuleType:
    # A console script does not search the current folder, where the user's own module lies.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    return importlib.import_module(name)


_loaded: dict[str, Stamp] = {}


def _load_file(name: str) -> ModuleType:
    """Run a file as a module, once, and again where it has changed since; it may import its
    neighbours, as a script may.
    """
    path = Path(name).resolve()
    stamp = file_stamp(path)
    known = sys.modules.get(str(path))
    if known is not None and _loaded.get(str(path)) == stamp:
        return known
    spec = importlib.util.spec_from_file_location(str(path), path)
    assert spec is not None  # the name ends with .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[str(path)] = module  # before it runs: dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[str(path)]
        raise
    _loaded[str(path)] = stamp
    return module


def _arguments(
    kind: str, reference: str, factory: Callable[..., Any], offered: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        signature = inspect.signature(factory)
    except ValueError:  # some callables written in C have none
        return {}
    known = {name: value for name, value in offered.items() if value is not None}
    given = {name: value for name, value in known.items() if name in signature.parameters}
    try:
        signature.bind(**given)
    except TypeError:
        parameters = signature.parameters.items()
        required = [name for name, each in parameters if each.default is each.empty]
        absent = [name for name in required if name in offered and name not in known]
        if absent:
            raise InputError(
                f'{kind} "{reference}" requires {", ".join(absent)}, not available here'
            ) from None
        raise InputError(
            f'{kind} "{reference}" has the parameters {signature}; it is called, by name, with '
            f"any of {', '.join(offered)}"
        ) from None
    return given
