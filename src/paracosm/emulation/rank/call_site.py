"""The line of a script that a call comes from."""

from __future__ import annotations

import os
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import torch

import paracosm

NOWHERE = "an unknown line"  # what to say where it is not known

_PACKAGES = (torch.__spec__, paracosm.__spec__, find_spec("triton"))
_INSIDE = tuple(
    str(Path(spec.origin).parent) + os.sep
    for spec in _PACKAGES
    if spec is not None and spec.origin is not None
)
_LIBRARY = sysconfig.get_path("stdlib") + os.sep
_INSTALLED = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))

_names: dict[str, str] = {}


def call_site() -> str:
    """Return "train.py:42" of the innermost frame that is not `is_inside`; "" if none is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not is_inside(path):
            return f"{_names[path]}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def is_inside(path: str) -> bool:
    """Whether a file belongs to torch, Triton, Paracosm or Python's own library."""
    name = _names.get(path)
    if name is None:
        name = _names[path] = _name(path)
    return not name


def line_of_script() -> str:
    """Return "train.py:42" of the innermost frame of the script itself; "" if none is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "__main__":
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _name(path: str) -> str:
    if path.startswith(("<", *_INSIDE)):
        return ""
    if path.startswith(_LIBRARY) and not path.startswith(_INSTALLED):
        return ""
    return Path(path).name
