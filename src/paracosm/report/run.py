"""A run as the report speaks of it: its name, its summary, what went wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from paracosm.results import Summary
from paracosm.timeline import Timeline

if TYPE_CHECKING:
    from paracosm.studies import RunFolder, Series


@dataclass(frozen=True, eq=False)
class Run:
    """One run of a report.

    Attributes:
        folder: where it is.
        name: what it is called in figures and tables, different for every run of the report.
        index: its place in the report, which decides its colour.
        numbers: the summary; of an unfinished run, what its metrics say so far.
        trouble: one sentence on why the run did not end as it should; None if it did.
    """

    folder: RunFolder
    name: str
    index: int
    numbers: Summary
    trouble: str | None = None
    _read: dict[str, Series] = field(default_factory=dict, repr=False)

    @cached_property
    def timeline(self) -> Timeline | None:
        """The recorded spans; None without any."""
        timeline = self.folder.timeline()
        return timeline if timeline is not None and len(timeline.spans) else None

    def series(self, name: str) -> Series:
        """Return one metric; empty if the run has none of that name."""
        if name not in self._read:
            self._read[name] = self.folder.series(name)
        return self._read[name]
