"""Several predictions, one after the other, of which an interrupt keeps those that are done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from paracosm.prediction.replica import Progress

Case = TypeVar("Case")
Found = TypeVar("Found")


def until_interrupted(
    cases: Iterable[Case], predicted: Callable[[Case], Found], progress: Progress | None
) -> list[Found]:
    """Return the predictions of the cases, or of those that were done when Ctrl-C came.

    `progress` is called with how many are done. Where not even the first is, the interrupt goes on.
    """
    found: list[Found] = []
    try:
        for case in cases:
            found.append(predicted(case))
            if progress is not None:
                progress(len(found), None)
    except KeyboardInterrupt:
        if not found:
            raise
    return found
