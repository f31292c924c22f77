"""Public names of a package whose modules are imported when a name is first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exported_from(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return a package's `__getattr__`, by the public names of its modules.

    So `paracosm train --help` imports neither Numba nor what a run needs.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return get
