"""The unit of an axis of sizes."""

from __future__ import annotations

__all__ = ["size_unit"]


def size_unit(largest: float) -> tuple[float, str]:
    """Return the factor and the name of the unit that suits sizes up to `largest` bytes."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if largest >= 10**power:
            return 10.0**-power, unit
    return 1.0, "B"
