"""A run as the report speaks of it: its name, its key numbers, what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.errors import InputError

if TYPE_CHECKING:
    from paracosm.study.run_folder import RunFolder
    from paracosm.study.series import Series

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
        so_far: dict[str, Any] = {"status": self.folder.status}
        newest = [series for name in ("staleness", "loss") if len(series := self.series(name))]
        if newest:
            so_far["updates"] = max(int(series.step[-1]) for series in newest)
            so_far["virtual_time"] = max(float(series.virtual_time[-1]) for series in newest)
            so_far["wall_time"] = max(float(series.wall_time[-1]) for series in newest)
        for key, name in (("final_loss", "loss"), ("final_accuracy", "accuracy")):
            if len(series := self.series(name)):
                so_far[key] = float(series.value[-1])
        if len(staleness := self.series("staleness")):
            so_far["mean_staleness"] = float(np.mean(staleness.value))
        return so_far

    def series(self, name: str) -> Series:
        """Return one metric; empty if the run has none of that name."""
        if name not in self._read:
            self._read[name] = self.folder.series(name)
        return self._read[name]

    @property
    def trouble(self) -> str | None:
        """One sentence on why the run did not end as it should; None if it did."""
        divergence = (self.folder.summary or {}).get("divergence")
        match self.folder.status:
            case "done":
                return None
            case "diverged" if isinstance(divergence, Mapping):
                return _diverged(divergence)
            case "diverged":
                return "The loss exploded."
            case "unfinished":
                return (
                    "The run is not finished: it is still going on, or it was killed. "
                    "This is what it had written."
                )
            case "interrupted":
                return "The run was interrupted before its end."
            case status:
                return f"The run ended as: {status}."


def described(folders: Sequence[RunFolder]) -> list[Run]:
    """Name the runs: by algorithm and workers; where that is ambiguous, by folder as well.

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
    what = known.get("algorithm")
    if what is None:
        return folder.path.resolve().name
    workers = known.get("workers")
    plural = "" if workers == 1 else "s"
    return str(what) if workers is None else f"{what}, {workers} worker{plural}"


def _diverged(divergence: Mapping[str, Any]) -> str:
    loss = divergence.get("loss")
    became = "was not a finite number" if loss is None else f"was {loss:.4g}"
    return (
        f"The run diverged at update {divergence.get('update')}: the minibatch loss {became}, on a "
        f"gradient of {divergence.get('worker')} with staleness {divergence.get('staleness')}."
    )
