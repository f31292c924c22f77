"""Values as JSON and YAML can hold them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np

__all__ = ["plain", "to_json"]


def plain(value: object) -> Any:
    """Return `value` made of dict, list, str, int, float, bool and None only.

    Scalars and arrays of NumPy and PyTorch become numbers and lists, enums their values, paths
    and everything else strings.
    """
    match value:
        case Enum():
            return plain(value.value)
        case None | bool():
            return value
        case str():
            return str(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case PurePath():
            return str(value)
        case np.generic() | np.ndarray():
            return plain(value.tolist())
    if callable(to_list := getattr(value, "tolist", None)):
        return plain(to_list())
    return str(value)


def to_json(value: object) -> str:
    """Return indented JSON that every parser reads: NaN and the infinities become null."""
    return json.dumps(_finite(plain(value)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value
