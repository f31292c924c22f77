"""User-defined factories, written `package.module:factory` in place of a built-in name. The module
may be a file: `folder/file.py:factory`.
"""

import ast
import importlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any
from urllib.parse import quote, unquote

from paracosm.errors import InputError, MissingExtraError
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
    arguments = _arguments(kind, reference, factory, offered)
    try:
        return factory(**arguments), frozenset(arguments)
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
    if module_name.endswith(".py") and not Path(module_name).is_file():
        raise InputError(f'{kind} "{reference}": no such file: {module_name}')
    try:
        load = _load_file if module_name.endswith(".py") else _load_module
        module = load(module_name)
    except (Exception, SystemExit) as error:
        raise InputError(
            f'{kind} "{reference}": cannot import {module_name}: {describe_error(error)}'
        ) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        problem = "has no" if function is None else "has a variable, not a function,"
        raise InputError(f'{kind} "{reference}": {module_name} {problem} "{attribute}"')
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


def failure(error: BaseException) -> tuple[str, int]:
    """Return the line that says what an error is, and the exit code that it asks for: 2 where the
    input or the user's own code is wrong, 1 where this machine is, or Paracosm.
    """
    if isinstance(error, InputError | MissingExtraError):
        return str(error), 2
    own = users_place(error)
    if own is None or not own.raises:  # else the user's code has opened a file, and the like
        match error:
            case MemoryError():
                return f"out of memory: {error}" if str(error) else "out of memory", 1
            case OSError():
                where = f"{error.filename}: " if error.filename is not None else ""
                return f"{where}{error.strerror or error}", 1
    reason = describe_error(error, place=False)[:300]
    if own is not None:
        code = 1 if isinstance(error, OSError | MemoryError) else 2
        return f"{own}: {reason} (PARACOSM_DEBUG=1 shows the traceback)", code
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(place.filename)}:{place.lineno}"
    line = "please report it, with the traceback that PARACOSM_DEBUG=1 shows"
    return f"a bug in Paracosm ({where}: {reason}): {line}", 1


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
    for cause in (error, error.__cause__):
        frames = traceback.extract_tb(cause.__traceback__) if cause is not None else []
        # Where Paracosm is installed, it lies among the libraries.
        ours = [frame for frame in frames if frame.filename.startswith(_OURS)]
        frames = [f for f in frames if f in ours or not _is_in_library(f.filename)]
        theirs = [frame for frame in frames if frame not in ours]
        if theirs:
            return Place(theirs[-1].filename, theirs[-1].lineno, theirs[-1] is frames[-1])
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


_stamps: dict[str, Stamp] = {}  # by module: of its file, when it was run


def _load_file(name: str) -> ModuleType:
    """Run a file as a module, once, and again where it has changed since; it may import its
    neighbours, as a script may.
    """
    path = Path(name).resolve()
    module_name = _module_of(path)
    if module_name in sys.modules and _stamps.get(module_name) == file_stamp(path):
        return sys.modules[module_name]
    sys.modules.pop(module_name, None)
    return importlib.import_module(module_name)


# What a file defines is pickled by the name of its module, which a process that has not run the
# file yet imports. So the name holds the path, without dots: what stands before one is a package.

_MOVED = "PARACOSM_MOVED_FILES"  # environment variable, so that processes of a process have it too


@contextmanager
def files_moved(origin: str, folder: Path) -> Iterator[None]:
    """Load files below `origin`, a folder of another machine, from their copies in `folder`."""
    before = os.environ.get(_MOVED)
    os.environ[_MOVED] = json.dumps([origin, str(folder.resolve())])
    try:
        yield
    finally:
        if before is None:
            del os.environ[_MOVED]
        else:
            os.environ[_MOVED] = before


def file_of_module(name: str) -> Path | None:
    """Return the file that a module was loaded from by its path; None for any other module."""
    return Path(unquote(name)) if name.startswith("/") else None


def _module_of(path: Path) -> str:
    origin, folder = _moved()
    if path.is_relative_to(folder):
        path = origin / path.relative_to(folder)
    return quote(str(path)).replace(".", "%2E")


def _copy_of(file: Path) -> Path:
    origin, folder = _moved()
    copy = folder / file.relative_to(origin) if file.is_relative_to(origin) else file
    return copy if copy.exists() else file


def _moved() -> tuple[Path, Path]:
    origin, folder = json.loads(os.environ.get(_MOVED, '["/", "/"]'))
    return Path(origin), Path(folder)


class _Finder:
    """Finds modules that are named after their file."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        file = file_of_module(name)
        if file is None:
            return None
        file = _copy_of(file)
        return spec_from_file_location(name, file, loader=_Loader(name, str(file)))


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        """Compile the file: what Python keeps of it may be of a version of the same second."""
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        folder = str(Path(self.path).parent)
        if folder not in sys.path:
            sys.path.append(folder)
        stamp = file_stamp(self.path)
        super().exec_module(module)
        _stamps[self.name] = stamp


sys.meta_path.append(_Finder)


def reference_to(value: type | Callable[..., Any]) -> str:
    """Return `file.py:name` or `package.module:name` of a class or function, for `named_function`.

    A file in the current folder or below has a path from there.
    """
    module = value.__module__
    if module == "__main__":
        path = getattr(sys.modules[module], "__file__", None)
        file = Path(path).resolve() if path and path.endswith(".py") else None
    else:
        file = file_of_module(module)
    if file is not None:
        file, folder = _copy_of(file), Path.cwd()
        module = str(file.relative_to(folder) if file.is_relative_to(folder) else file)
    return f"{module}:{value.__qualname__}"


def _arguments(
    kind: str, reference: str, factory: Callable[..., Any], offered: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        signature = inspect.signature(factory)
    except ValueError:  # some callables written in C have none
        return {}
    known = {name: value for name, value in offered.items() if value is not None}
    arguments = {name: value for name, value in known.items() if name in signature.parameters}
    try:
        signature.bind(**arguments)
    except TypeError:
        parameters = signature.parameters.items()
        required = [name for name, parameter in parameters if parameter.default is parameter.empty]
        absent = [name for name in required if name in offered and name not in known]
        if absent:
            raise InputError(
                f'{kind} "{reference}" requires {", ".join(absent)}, not available here'
            ) from None
        raise InputError(
            f'{kind} "{reference}" has the parameters {signature}; it is called, by name, with '
            f"any of {', '.join(offered)}"
        ) from None
    return arguments


def constant_in(file: Path, name: str) -> str:
    """Return a text that an object of a module is made with, read from the source of that."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == name:
            return str(ast.literal_eval(node.value))
    raise LookupError(f"{file} has no {name}")
