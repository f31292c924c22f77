"""JSON files that others wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paracosm.errors import InputError

__all__ = ["read_json"]


def read_json(path: Path) -> dict[str, Any]:
    """Return the mapping that a JSON file holds.

    Raises:
        InputError: it cannot be read, or holds something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds no mapping of names to values")
    return content
