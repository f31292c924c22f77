"""Write down which files this process makes or writes, where TRACED says; Python imports this."""

import os
import sys
from typing import Any

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_trace = os.open(os.environ["TRACED"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    match event, arguments:
        case "open", (str() | bytes() as path, _, int(flags)) if flags & _WRITING:
            _write(path)
        case "os.mkdir", (path, _, folder):
            _write(path, folder)
        case "os.rename" | "os.link", (_, path, _, folder):
            _write(path, folder)
        case "os.symlink", (_, path, folder):
            _write(path, folder)
        case "sqlite3.connect", (str() as path,) if path.startswith("file:"):
            _write(path.removeprefix("file://").partition("?")[0])


def _write(path: Any, folder: int = -1) -> None:
    path = os.fsdecode(path)
    if path.endswith((".pyc", "__pycache__")) or ".pyc." in path:
        return  # of Python itself
    if folder >= 0:
        path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
    os.write(_trace, os.fsencode(os.path.abspath(path)) + b"\n")


sys.addaudithook(_watch)
