"""Which ops wait for which, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["dependencies_of", "dependents_of", "in_order"]

Ints = npt.NDArray[np.int64]


def dependencies_of(waits: Sequence[Iterable[int]]) -> tuple[Ints, Ints]:
    """Return `first_dependency` and `dependencies`, as a `JobProfile` has them.

    Args:
        waits: by op, those that it waits for.
    """
    rows = [list(each) for each in waits]
    first = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return first, np.array([op for row in rows for op in row], np.int64)


def dependents_of(first_dependency: Ints, dependencies: Ints) -> tuple[Ints, Ints]:
    """Return the same the other way round: `dependents[first[i]:first[i + 1]]` wait for op i.

    Args:
        first_dependency, dependencies: as a `JobProfile` has them.
    """
    ops = len(first_dependency) - 1
    waiting = np.repeat(np.arange(ops), np.diff(first_dependency))
    order = np.argsort(dependencies, kind="stable")
    return np.searchsorted(dependencies[order], np.arange(ops + 1)), waiting[order]


def in_order(waits: Ints, first_dependent: Ints, dependents: Ints) -> list[int]:
    """Return ops, each behind those that it waits for (Kahn's algorithm).

    Ops that wait for each other, and those that wait for such, are not among them.

    Args:
        waits: by op, how many ops it waits for.
        first_dependent, dependents: as `dependents_of` returns them.
    """
    left, first, after = waits.tolist(), first_dependent.tolist(), dependents.tolist()
    order = [op for op, count in enumerate(left) if not count]
    for op in order:
        for waiting in after[first[op] : first[op + 1]]:
            left[waiting] -= 1
            if not left[waiting]:
                order.append(waiting)
    return order
