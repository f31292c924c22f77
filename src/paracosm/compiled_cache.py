"""Compiled functions on disk: one folder of the user's for each content of the rooms with kernels.

Numba's own cache is keyed by the place of a source file, so every checkout and every environment
compiles again; it misses changes to callees in other files; and two processes that compile the same
function for different types can enter one file under both in its index. Here the folder is named
after what is compiled, by which compiler, so whoever has the same sources shares it; and each
compiled signature has a file of its own, which appears complete.
"""

import contextlib
import hashlib
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import caching, serialize
from numba.core.runtime import nrt

from paracosm.compiled_parts import loading_parts
from paracosm.user_cache import kept_folder, user_cache_folder

ROOMS = ("network", "prediction/parameter_servers", "relaxation", "simulation", "timing")
"""What has kernels, and what they are compiled from."""

_PACKAGE = Path(__file__).parent
_dumps: Any = serialize.dumps


def enable_cache(function: Any) -> None:
    """Keep what is compiled of a Numba dispatcher in `CACHE`, if that is a folder."""
    if CACHE is not None:
        make: Any = _KernelCache  # Numba is not typed
        cache = make(function.py_func)
        cache._cache_file = _Files(str(CACHE), cache._impl.filename_base)
        function._cache = cache


def _cache_folder() -> Path | None:
    """Return the folder of what is compiled from the sources as they are now, by this Numba.

    It is None where there can be none that nobody else can write to, since what is in it is run:
    then every process compiles again. One that somebody else has made first is not used.
    """
    compilers = (numba.__version__, llvmlite.__version__, sys.version, sys.platform)
    digest = hashlib.sha256(repr(compilers).encode())
    for source in sorted(_PACKAGE.glob("compiled*.py")):
        digest.update(source.read_bytes())
    for room in ROOMS:
        for source in sorted((_PACKAGE / room).rglob("*.py")):
            digest.update(source.read_bytes())
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    base = Path(chosen) if chosen else user_cache_folder()
    return None if base is None else kept_folder(base, "kernels", digest.hexdigest()[:16])


CACHE = _cache_folder()
"""Where compiled functions are kept; None where nothing can be written."""


class _Locator(caching._CacheLocator):
    """Names what is compiled of a function by its module, and by its source file elsewhere."""

    def __init__(self, function: Any, source: str) -> None:
        self._py_file = source  # Numba names it where something cannot be cached
        self._module = function.__module__
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(CACHE)

    def ensure_cache_path(self) -> None:
        pass  # it is there, or `enable_cache` has left the function without a cache

    def get_source_stamp(self) -> str:
        if self._module.startswith("paracosm."):
            return ""  # the folder's name holds its content
        return hashlib.sha256(Path(self._py_file).read_bytes()).hexdigest()

    def get_disambiguator(self) -> str:
        place = f"{self._module} {self._line} {self.get_source_stamp()}"
        return hashlib.sha256(place.encode()).hexdigest()[:16]

    @classmethod
    def from_function(cls, function: Any, source: str) -> "_Locator":
        return cls(function, source)


_LOCATORS: list[type[object]] = [_Locator]


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes = _LOCATORS

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Return what was compiled: a part, or an entry from Python."""
        rebuilt: Any = super().rebuild
        (_, kind, _), *_ = payload
        with loading_parts(target_context) if kind == "bitcode" else contextlib.nullcontext():
            return rebuilt(target_context, payload)


class _KernelCache(caching.FunctionCache):
    """Numba's cache of one function, with a file for each signature and no index."""

    _impl_class = _Implementation

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is on disk, without what Numba imports for compiling (a third of a second).

        The compiler refreshes its contexts itself; what runs needs the runtime system alone.
        """
        nrt.rtsys.initialize(target_context)
        cache: Any = self  # Numba is not typed
        return cache._load_overload(sig, target_context)


class _Files:
    """The compiled signatures of one function."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder, self._name = folder, name

    def load(self, key: Any) -> Any:
        try:
            with open(self._file(key), "rb") as file:
                kept, data = pickle.load(file)
        except (OSError, EOFError, pickle.UnpicklingError):
            return None
        return data if kept == key else None

    def save(self, key: Any, data: Any) -> None:
        file = self._file(key)
        unfinished = file.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):  # a full disk: the next process compiles again
            unfinished.write_bytes(_dumps((key, data)))
            unfinished.replace(file)

    def flush(self) -> None:
        for file in Path(self._folder).glob(f"{self._name}-*.kernel"):
            file.unlink(missing_ok=True)

    def _file(self, key: Any) -> Path:
        digest = hashlib.sha256(str(key).encode()).hexdigest()[:16]
        return Path(self._folder, f"{self._name}-{digest}.kernel")
