"""Fitted estimators on disk: one .npz file of arrays and JSON, that runs no code when it is read.

Every value is written as JSON in the array "content", NumPy arrays as references to entries "0",
"1", ... beside it. A record {"is": "Roofline", "of": {...}} is one of the classes listed here.
"checksum" covers all of it.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.files import replacing
from paracosm.profiling.environment import Environment
from paracosm.profiling.estimators.crossvalidate import Score
from paracosm.profiling.estimators.device import Device
from paracosm.profiling.estimators.estimators import Estimators, Neighbourhood, TypeEstimator
from paracosm.profiling.estimators.exact import Exact
from paracosm.profiling.estimators.features import Layout, Seen
from paracosm.profiling.estimators.gaussian import GaussianProcess
from paracosm.profiling.estimators.mlp import Network
from paracosm.profiling.estimators.nearest import Cells
from paracosm.profiling.estimators.roofline import Roofline

__all__ = ["load_estimators", "save_estimators"]

Array = npt.NDArray[Any]

_VERSION = 1

_CLASSES: Mapping[str, type] = {
    each.__name__: each
    for each in (
        *(Estimators, TypeEstimator, Neighbourhood, Device, Score, Environment, Exact),
        *(Roofline, Network, GaussianProcess, Cells, Layout, Seen),
    )
}


def save_estimators(estimators: Estimators, path: str | Path) -> None:
    """Write `estimators` to `path`; a file that is there is replaced, once the new one is whole.

    Raises:
        InputError: it cannot be written.
    """
    arrays: list[Array] = []
    content = {"paracosm estimators": _VERSION, "estimators": _packed(estimators, arrays)}
    entries: dict[str, Array] = {str(number): array for number, array in enumerate(arrays)}
    entries["content"] = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
    entries["checksum"] = _checksum(entries)
    with replacing(path) as beside, beside.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **entries)


def load_estimators(path: str | Path) -> Estimators:
    """Return the estimators of the file at `path`, equal to those saved to the bit.

    Raises:
        InputError: there is no such file; it holds no estimators, or those of a newer version; it
            is damaged.
    """
    entries = _entries(path)
    if "content" not in entries or "checksum" not in entries:
        raise _foreign(path)
    try:
        content = json.loads(entries["content"].tobytes())
        version = content["paracosm estimators"]
    except (ValueError, KeyError, TypeError):
        raise _foreign(path) from None
    if version != _VERSION:
        raise InputError(
            f'"{path}" holds estimators of version {version}, this Paracosm reads {_VERSION}: '
            "fit them again"
        )
    if not np.array_equal(_checksum(entries), entries["checksum"]):
        raise _damaged(path, "its checksum does not match")
    try:
        estimators = _unpacked(content["estimators"], entries)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(estimators, Estimators):
        raise _foreign(path)
    return estimators


def _entries(path: str | Path) -> dict[str, Array]:
    """Return all arrays of the file; an array of objects, which is a pickle, is refused."""
    if not Path(path).is_file():
        raise InputError(f'no estimators at "{path}"')
    try:
        found = np.load(path, allow_pickle=False)
        if not isinstance(found, np.lib.npyio.NpzFile):
            raise _foreign(path)
        with found:
            return dict(found.items())
    except InputError:
        raise
    except ValueError as error:
        if "pickle" in str(error).lower():
            raise InputError(
                f'"{path}" holds Python objects, which reading would run: not estimators that '
                "Paracosm wrote"
            ) from None
        raise _damaged(path, str(error)) from None
    except _DAMAGE as error:
        raise _damaged(path, str(error)) from None


_DAMAGE = (
    *(OSError, EOFError, KeyError, MemoryError, struct.error),
    *(zipfile.BadZipFile, zlib.error, RuntimeError),
)
"""What a flipped bit makes of an archive: RuntimeError is one of a password or a compression that
nobody used."""


def _packed(value: Any, arrays: list[Array]) -> Any:
    """Return `value` as JSON has it; arrays are appended to `arrays`."""
    match value:
        case np.ndarray():
            arrays.append(np.ascontiguousarray(value))
            return {"array": len(arrays) - 1}
        case None | bool() | int() | float() | str():
            return value
        case tuple():
            return [_packed(each, arrays) for each in value]
        case Mapping():
            return {"map": {key: _packed(each, arrays) for key, each in value.items()}}
    if type(value) not in _CLASSES.values() or not is_dataclass(value):
        raise TypeError(f"estimators of class {type(value).__name__} cannot be stored")
    parts = {part.name: _packed(getattr(value, part.name), arrays) for part in fields(value)}
    return {"is": type(value).__name__, "of": parts}


def _unpacked(value: Any, entries: Mapping[str, Array]) -> Any:
    match value:
        case {"array": int(number)}:
            return entries[str(number)]
        case list():
            return tuple(_unpacked(each, entries) for each in value)
        case {"map": dict(content)}:
            return {key: _unpacked(each, entries) for key, each in content.items()}
        case {"is": str(name), "of": dict(parts)}:
            return _CLASSES[name](**{key: _unpacked(each, entries) for key, each in parts.items()})
    return value


def _checksum(entries: Mapping[str, Array]) -> npt.NDArray[np.uint8]:
    digest = hashlib.sha256()
    for name in sorted(entries.keys() - {"checksum"}):
        array = entries[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return np.frombuffer(digest.digest(), dtype=np.uint8)


def _foreign(path: str | Path) -> InputError:
    return InputError(f'"{path}" holds no estimators: expected a file that Estimators.save wrote')


def _damaged(path: str | Path, why: str) -> InputError:
    return InputError(f'"{path}" is damaged, fit the estimators again: {" ".join(why.split())}')
