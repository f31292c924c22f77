"""Errors that a user can act on: one line that says what is wrong, where, and what would be right.

The command line prints the message of these and nothing else; every other exception is a bug in
Paracosm and keeps its traceback.
"""

import importlib
import importlib.util
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.machinery import ModuleSpec
from types import ModuleType


class InputError(ValueError):
    """Input that cannot be used (a file, a flag, a configuration); the message is one line."""

    def __str__(self) -> str:
        return on_one_line(super().__str__())


LONGEST = 900
"""Characters of a message."""


def on_one_line(text: str) -> str:
    """Return a message without its line breaks, and without the middle of what is too long.

    Letters by which it could control a terminal become "?".
    """
    line = "".join(
        character if character.isprintable() else "?" for character in " ".join(text.split())
    )
    if len(line) <= LONGEST:
        return line
    return f"{line[: LONGEST // 2]} ... {line[-LONGEST // 2 :]}"


def shown(value: object) -> str:
    """Return a value as a message shows it: Python refuses to write thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 10_000:
        return f"a whole number of {value.bit_length():,} bits"
    return repr(value)


class MissingExtraError(ImportError):
    """A package of an optional extra is not installed; the message names the command to run."""


def unknown(kind: str, name: object, valid: Iterable[str]) -> InputError:
    """Return the error for a `name` that is not among the `valid` ones, naming the nearest."""
    if not isinstance(name, str):  # in Python, whatever is given
        return InputError(f"{kind}: give a name, not a value of type {type(name).__name__}")
    choices = list(valid)
    capital = name[:1].swapcase() + name[1:]  # KB is kB; but Gb is not GB
    near = [capital] if capital in choices else get_close_matches(name, choices, n=1, cutoff=0.5)
    hint = f'did you mean "{near[0]}"?' if near else f"choose from {', '.join(choices)}"
    return InputError(f'unknown {kind} "{name}": {hint}')


def require(module: str, extra: str, purpose: str) -> ModuleType:
    """Import `module`, which comes with the optional `extra`.

    Raises:
        MissingExtraError: names the missing package, its `purpose`, and the command that installs
            it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise _missing(module, extra, purpose) from None


def check_installed(module: str, extra: str, purpose: str) -> ModuleSpec:
    """Return where `module` is, without importing it; MissingExtraError as of `require`."""
    spec = importlib.util.find_spec(module)
    if spec is None:
        raise _missing(module, extra, purpose)
    return spec


def _missing(module: str, extra: str, purpose: str) -> MissingExtraError:
    package = module.partition(".")[0]
    return MissingExtraError(f'{purpose} needs {package}: pip install "paracosm[{extra}]"')
