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
    """One run of a report."""

    folder: RunFolder
    name: str  # different for every run of the report
    index: int  # its place in the report, which decides its colour
    numbers: Summary  # the summary; unfinished: what the metrics say so far
    trouble: str | None = None  # one sentence on why it did not end as it should
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
