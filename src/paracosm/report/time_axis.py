"""The unit of a time axis."""

from __future__ import annotations

__all__ = ["time_unit"]


def time_unit(longest: float) -> tuple[float, str]:
    """Return the factor and the name of the unit that suits times up to `longest` seconds."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if longest * factor >= 1:
            return factor, unit
    return (1.0, "s") if longest <= 0 else (1e9, "ns")
