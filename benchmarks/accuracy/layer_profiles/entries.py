"""JSON that is nested by names, and where in it one is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paracosm.errors import InputError, unknown

__all__ = ["Content", "numbers"]


@dataclass(frozen=True)
class Content:
    """A value, and the names that lead to it."""

    value: Any
    where: str

    def under(self, kind: str, name: str) -> Content:
        """Return what stands under a name.

        Raises:
            InputError: nothing does; with the names that are there, or the nearest of them.
        """
        if not isinstance(self.value, Mapping):
            raise InputError(f"{self.where}: holds no mapping of names to values")
        if name not in self.value:
            raise InputError(f"{self.where}: {unknown(kind, name, map(str, self.value))}")
        return Content(self.value[name], f"{self.where}: {name}")

    def layers(self) -> list[Content]:
        """Return what stands under "0", "1", ..., which must be all there is.

        Raises:
            InputError: one of them is missing, or there is something else.
        """
        if not isinstance(self.value, Mapping) or not self.value:
            raise InputError(f"{self.where}: holds no layers")
        for number in range(len(self.value)):
            if str(number) not in self.value:
                raise InputError(f"{self.where}: of {len(self.value)} layers, {number} is missing")
        return [
            Content(self.value[str(number)], f"{self.where}: {number}")
            for number in range(len(self.value))
        ]


def numbers(value: Any, count: int, where: str) -> list[float]:
    """Return a list of `count` numbers, all finite and 0 or more.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(value, list) or len(value) != count:
        raise InputError(f"{where}: is no list of {count} numbers")
    for each in value:
        usable = isinstance(each, int | float) and not isinstance(each, bool)
        if not (usable and math.isfinite(each) and each >= 0):
            raise InputError(f"{where}: {each!r} is not a number, 0 or more")
    return [float(each) for each in value]
