"""Source files as trees, for tests that read the code itself."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """Return the tree of a file, and keep it."""
    return parse(path)


def parse(path: Path) -> ast.Module:
    """Return the tree of a file; nothing in it can be collected, and looking for it takes longer
    than parsing does.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if was_enabled:
            gc.enable()
