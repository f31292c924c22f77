"""Files that travel with calls to other machines: what arguments name in the current folder."""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paracosm.errors import InputError
from paracosm.factory import files_moved
from paracosm.files import temporary_folder

MOST_BYTES = 2**28
_FOLDERS: dict[str, Path] = {}  # of this process
_OPENED = ExitStack()
atexit.register(_OPENED.close)  # removes them


@dataclass(frozen=True)
class Parcel:
    """Contents of files by their paths from the current folder."""

    files: Mapping[str, bytes] = field(default_factory=dict)
    origin: str = "/"  # the folder that their paths start from, on the machine that sends them

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Change to a folder that holds the files, and add it to the import path."""
        key = hashlib.sha256(repr(sorted(self.files.items())).encode()).hexdigest()
        folder = _FOLDERS.get(key)
        if folder is None:
            folder = _FOLDERS[key] = _OPENED.enter_context(temporary_folder())
            for name, content in self.files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        others = tuple(str(path) for path in _FOLDERS.values() if path is not folder)
        for name, module in list(sys.modules.items()):  # other files may have the same names
            if (getattr(module, "__file__", None) or "").startswith(others):
                del sys.modules[name]
        before = Path.cwd()
        os.chdir(folder)
        sys.path.append(str(folder))
        try:
            with files_moved(self.origin, folder):
                yield
        finally:
            os.chdir(before)
            sys.path.remove(str(folder))


def parcel_of(arguments: Any) -> Parcel:
    """Return the files that arguments name by a path from the current folder.

    With a Python file go those beside it and in the folders above, which it may import. Absolute
    paths stay what they are: paths of the machine that a call runs on.

    Args:
        arguments: texts, and lists and mappings of them: "own.py:model", "replay(times.json)".

    Raises:
        InputError: a file outside of the current folder, or more than `MOST_BYTES` of them.
    """
    contents: dict[str, bytes] = {}
    for path in sorted({path for text in _texts(arguments) for path in _named(text)}):
        neighbours = [
            path for folder in path.parents for path in folder.glob("*.py") if path.is_file()
        ]
        for file in (path, *neighbours) if path.suffix == ".py" else (path,):
            contents.setdefault(str(file), file.read_bytes())
    if (size := sum(map(len, contents.values()))) > MOST_BYTES:
        largest = max(contents, key=lambda name: len(contents[name]))
        raise InputError(
            f"{largest}: the files to send to workers are {size >> 20:,} MiB, at most "
            f"{MOST_BYTES >> 20:,}: put it on a disk that they share, and give its absolute path"
        )
    return Parcel(contents, os.getcwd()) if contents else Parcel()


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Iterable):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _named(text: str) -> Iterator[Path]:
    """Yield the files that a text may mean: itself, a word of it, or a module of that name."""
    for word in {text, *re.split(r"[\s:;,()=\"']+", text)}:
        for name in (word, f"{word.replace('.', '/')}.py"):
            path = Path(name)
            if len(name) < 255 and not path.is_absolute() and path.is_file():
                if ".." in path.parts:
                    raise InputError(
                        f"{name}: outside of the current folder, which alone is sent to workers: "
                        "give an absolute path, of a disk that they share"
                    )
                yield path
