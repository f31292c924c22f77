"""Columns of tasks, taken down row by row: for the writers of programs and of blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError, unknown
from paracosm.jobs.program import KINDS, STEPS

__all__ = ["Codebook", "ColumnWriter"]


class Codebook:
    """Numbers for texts, given out as they are met. All programs of a job share one of each."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._codes: dict[str, int] = {text: code for code, text in enumerate(texts)}

    def code(self, text: str) -> int:
        """Return the number of a text."""
        return self._codes.setdefault(text, len(self._codes))

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts, in the order of their numbers."""
        return tuple(self._codes)


class ColumnWriter:
    """Takes down tasks, in the order of issue, but for what they wait for.

    Args:
        names, lanes, roles: codebooks, the same for all programs of a job.
    """

    def __init__(self, names: Codebook, lanes: Codebook, roles: Codebook) -> None:
        self.names, self.lanes, self.roles = names, lanes, roles
        self._rows: list[tuple[int, int, int, int, float, int, int]] = []
        self._allocated: dict[int, int] = {}
        self._released: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        name: str,
        lane: str | None,
        duration: float,
        *,
        step: str,
        kind: str,
        role: str | None,
        size: int,
    ) -> int:
        """Take down one task and return its row; the arguments are those of `Program`.

        Raises:
            InputError: a kind or step that is unknown, a role that is missing or has no effect.
        """
        if kind not in KINDS:
            raise unknown("kind of task", kind, KINDS)
        if step not in STEPS:
            raise unknown("step", step, STEPS)
        if (role is None) != (kind == "task"):
            needs = "needs a" if role is None else "has no"
            raise InputError(f"task {name}: a {kind} {needs} role")
        self._rows.append(
            (
                self.names.code(name),
                STEPS.index(step),
                KINDS.index(kind),
                -1 if lane is None else self.lanes.code(lane),
                duration,
                -1 if role is None else self.roles.code(role),
                size,
            )
        )
        return len(self._rows) - 1

    def hold(self, size: int, row: int) -> None:
        """Hold `size` bytes from the begin of a row on."""
        self._allocated[row] = self._allocated.get(row, 0) + size

    def release(self, size: int, row: int) -> None:
        """Let go of `size` bytes at the end of a row."""
        self._released[row] = self._released.get(row, 0) + size

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the columns by the names that `Program` has for them."""
        columns = list(zip(*self._rows, strict=True)) or [()] * len(_TYPES)
        arrays: dict[str, npt.NDArray[Any]] = {
            column: np.array(values, dtype=dtype)
            for (column, dtype), values in zip(_TYPES.items(), columns, strict=True)
        }
        for column, held in (("allocated", self._allocated), ("released", self._released)):
            arrays[column] = np.zeros(len(self._rows), dtype=np.int64)
            for row, size in held.items():
                arrays[column][row] = size
        return arrays


_TYPES: dict[str, type] = {
    **dict.fromkeys(("name", "step", "kind", "lane"), np.int32),
    "duration": np.float64,
    "role": np.int32,
    "size": np.int64,
}
