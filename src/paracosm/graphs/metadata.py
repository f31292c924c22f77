"""What a file says of a graph as a whole, beside its nodes: JSON texts by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paracosm.errors import InputError

__all__ = ["KEYS", "Metadata", "decode_metadata", "encode_metadata"]

KEYS = ("resident", "before", "provenance")


@dataclass(frozen=True, slots=True)
class Metadata:
    """The last arguments of `build_graph`, which see."""

    resident: dict[str, int]
    before: list[tuple[int, int]]
    provenance: dict[str, Any]


def encode_metadata(
    resident: Mapping[str, int], before: list[tuple[int, int]], provenance: Mapping[str, Any]
) -> dict[str, str]:
    """Return the texts."""
    return {
        "resident": json.dumps(dict(resident)),
        "before": json.dumps(before),
        "provenance": json.dumps(dict(provenance)),
    }


def decode_metadata(texts: Mapping[str, str | bytes], where: str) -> Metadata:
    """Return what `encode_metadata` was given.

    Raises:
        InputError: one of the texts is missing, or not what it should be.
    """
    values = {}
    for key in KEYS:
        if key not in texts:
            raise InputError(f'{where}: the metadata "{key}" is missing')
        try:
            values[key] = json.loads(texts[key])
        except (TypeError, ValueError):
            raise InputError(f'{where}: the metadata "{key}" is not JSON') from None
    resident, before, provenance = (values[key] for key in KEYS)
    if not isinstance(resident, dict) or not all(map(_is_integer, resident.values())):
        raise InputError(f'{where}: the metadata "resident" is no mapping of names to bytes')
    if not isinstance(before, list) or not all(map(_is_pair, before)):
        raise InputError(f'{where}: the metadata "before" is no list of pairs of bytes and ids')
    if not isinstance(provenance, dict):
        raise InputError(f'{where}: the metadata "provenance" is no mapping')
    return Metadata(resident, [(size, last) for size, last in before], provenance)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < 2**63


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_integer, value))
