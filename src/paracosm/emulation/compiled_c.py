"""Compile C files into a shared library where they are needed for the first time."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from paracosm.errors import InputError
from paracosm.files import replacing
from paracosm.user_cache import user_cache_folder

_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_LIBRARIES = ("-lpthread", "-ldl", "-lm")


def compiled(
    folder: Path, sources: Sequence[str], flags: Sequence[str] = (), asked: str = "--nccl"
) -> Path:
    """Return the shared library of C files, kept under a digest of these and of the compiler.

    `asked` is what needs it, for messages: "--nccl".

    Raises:
        InputError: there is no compiler, or it fails.
    """
    command = compiler(asked)
    version = subprocess.run([command, "--version"], capture_output=True, check=False).stdout
    inputs = sorted([*folder.glob("*.c"), *folder.glob("*.h")])
    digest = hashlib.sha256(version + repr((sources, flags, _FLAGS)).encode())
    for path in inputs:
        digest.update(path.read_bytes())
    library = compiled_folder(asked) / f"{Path(sources[0]).stem}-{digest.hexdigest()[:32]}.so"
    if not library.exists():
        with replacing(library) as unfinished:
            line = [command, *_FLAGS, *flags, *sources, "-o", str(unfinished), *_LIBRARIES]
            done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                said = (done.stderr.strip().splitlines() or ["no message"])[0]
                raise InputError(f"{asked}: {command} cannot compile {sources[0]}: {said}")
    return library


def compiler(asked: str) -> str:
    """Return a C compiler.

    Raises:
        InputError: there is none.
    """
    for name in (os.environ.get("CC", "cc"), "gcc", "clang"):
        path = shutil.which(name)
        if path:
            return path
    raise InputError(f"{asked}: no C compiler (cc, gcc or clang): install gcc")


def compiled_folder(asked: str) -> Path:
    """Return the folder of this user for what is compiled.

    Raises:
        InputError: there is none that only this user can write to.
    """
    folder = user_cache_folder()
    if folder is None:
        raise InputError(
            f"{asked}: no folder of your own for what is compiled: set XDG_CACHE_HOME to one that "
            "only you can write to"
        )
    return folder
