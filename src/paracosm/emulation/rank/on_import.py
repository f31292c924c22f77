"""Change modules when they are imported, without importing them."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Change = Callable[[Any], None]


def on_import(name: str, change: Change) -> None:
    """Call `change` with a module: now if it is loaded, else as soon as it is."""
    module = sys.modules.get(name)
    if module is not None:
        change(module)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.changes[name] = change


class _Finder:
    def __init__(self) -> None:
        self.changes: dict[str, Change] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        change = self.changes.pop(name, None)
        if change is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_change(module: ModuleType) -> None:
                execute(module)
                change(module)

            spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


_finder = _Finder()
