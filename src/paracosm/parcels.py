"""Files that travel with calls to other machines: what arguments name in the current folder."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from paracosm.errors import InputError

MOST_BYTES = 2**28


@dataclass(frozen=True)
class Parcel:
    """Contents of files by their paths from the current folder."""

    files: Mapping[str, bytes] = field(default_factory=dict)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Let the current folder be one that holds the files, and imports look there."""
        folder = self._folder()
        _forget(folder)
        before = Path.cwd()
        os.chdir(folder)
        sys.path.append(folder)
        try:
            yield
        finally:
            os.chdir(before)
            sys.path.remove(folder)

    def _folder(self) -> str:
        key = hashlib.sha256(repr(sorted(self.files.items())).encode()).hexdigest()
        if key not in _FOLDERS:
            _FOLDERS[key] = TemporaryDirectory(prefix=_PREFIX)
            for name, content in self.files.items():
                path = Path(_FOLDERS[key].name, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        return _FOLDERS[key].name


_PREFIX = "paracosm-files-"
_FOLDERS: dict[str, TemporaryDirectory[str]] = {}  # of this process, which removes them at its end


def _forget(folder: str) -> None:
    """Let modules that came with other files be imported again: they may have the same names."""
    others = os.path.join(gettempdir(), _PREFIX)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith(others) and not file.startswith(folder):
            del sys.modules[name]


def parcel_of(arguments: Any) -> Parcel:
    """Return the files that arguments name by a path from the current folder.

    Beside a Python file go those in its folder and in the folders above it, which it may import.
    Absolute paths stay what they are: paths of the machine that a call runs on.

    Args:
        arguments: texts, and lists and mappings of them: "own.py:model", "replay(times.json)".

    Raises:
        InputError: the files are larger than `MOST_BYTES` together.
    """
    found: dict[str, bytes] = {}
    for path in sorted({path for text in _texts(arguments) for path in _named(text)}):
        beside = [each for folder in path.parents for each in folder.glob("*.py")]
        for each in (path, *beside) if path.suffix == ".py" else (path,):
            if str(each) not in found:
                found[str(each)] = each.read_bytes()
    if (size := sum(map(len, found.values()))) > MOST_BYTES:
        largest = max(found, key=lambda name: len(found[name]))
        raise InputError(
            f"{largest}: the files to send to other machines are {size >> 20:,} MiB, at most "
            f"{MOST_BYTES >> 20:,}: put it where all of them see it, and give its absolute path"
        )
    return Parcel(found)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(value.values()))
    elif isinstance(value, Iterable):
        for each in value:
            yield from _texts(each)


def _named(text: str) -> Iterator[Path]:
    """Yield the files that a text may mean: itself, a word of it, or a module of that name."""
    for word in {text, *re.split(r"[\s:;,()=\"']+", text)}:
        for name in (word, f"{word.replace('.', '/')}.py"):
            path = Path(name)
            if len(name) < 255 and not path.is_absolute() and path.is_file():
                if ".." in path.parts:
                    raise InputError(
                        f"{name}: outside of the current folder, which alone is sent to other "
                        "machines: give a path that they see, an absolute one"
                    )
                yield path
