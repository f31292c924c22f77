"""A run as the report speaks of it: its name, its key numbers, what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from paracosm.errors import InputError
from paracosm.report.words import Words, trouble, words_of

if TYPE_CHECKING:
    from paracosm.study.run_folder import RunFolder
    from paracosm.study.series import Series
    from paracosm.timeline import Timeline

__all__ = ["Run", "described"]


@dataclass(frozen=True)
class Run:
    """One run of a report.

    Attributes:
        folder: where it is.
        name: what it is called in figures and tables, different for every run of the report.
        index: its place in the report, which decides its colour.
    """

    folder: RunFolder
    name: str
    index: int
    _read: dict[str, Series] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def numbers(self) -> Mapping[str, Any]:
        """The summary; of an unfinished run, what its metrics say so far."""
        if self.folder.summary is not None:
            return self.folder.summary
        return {"status": self.folder.status, **self.words.so_far(self.series)}

    @property
    def words(self) -> Words:
        """How to speak of a run of its kind."""
        return words_of(self.folder.kind)

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

    @property
    def trouble(self) -> str | None:
        """One sentence on why the run did not end as it should; None if it did."""
        return trouble(self.folder.kind, self.folder.status, self.folder.summary or {})


def described(folders: Sequence[RunFolder]) -> list[Run]:
    """Name the runs: as their kind does; where that is ambiguous, by folder as well.

    Raises:
        InputError: there is no run.
    """
    if not folders:
        raise InputError("a report needs at least one run")
    short = [_short_name(folder) for folder in folders]
    times = Counter(short)
    leaf = Counter(folder.path.resolve().name for folder in folders)
    names = []
    for name, folder in zip(short, folders, strict=True):
        path = folder.path.resolve()
        place = path.name if leaf[path.name] == 1 else f"{path.parent.name}/{path.name}"
        names.append(name if times[name] == 1 else f"{name} ({place})")
    return [Run(*each, index) for index, each in enumerate(zip(folders, names, strict=True))]


def _short_name(folder: RunFolder) -> str:
    asked = folder.study.get(folder.kind or "")
    known = {**(asked if isinstance(asked, Mapping) else {}), **(folder.summary or {})}
    return words_of(folder.kind).name(known) or folder.path.resolve().name
