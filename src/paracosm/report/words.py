"""What is said of a run, by its kind: on the page, and by the command line on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from paracosm.report import (
    emulate_words,
    predict_words,
    relax_words,
    replay_words,
    train_words,
)
from paracosm.report.figure import Ending, Figure
from paracosm.report.table import Table

if TYPE_CHECKING:
    from paracosm.study.series import Series

__all__ = ["SUCCESSES", "Words", "trouble", "words_of"]

SUCCESSES = frozenset({"done", "converged"})
"""The statuses of runs that ended as they should."""


class Words(Protocol):
    """What a module of words gives.

    Attributes:
        FIGURES: label -> key figure, in the order in which they are shown.
        ENDINGS: status -> a sentence, from the summary, on why a run ended so.
    """

    FIGURES: Mapping[str, Figure]
    ENDINGS: Mapping[str, Ending]

    def subject(self, known: Mapping[str, Any]) -> str | None:
        """Say what the run is about, from its arguments and its summary."""

    def name(self, known: Mapping[str, Any]) -> str | None:
        """Name the run, from its arguments and its summary."""

    def so_far(self, series: Callable[[str], Series]) -> dict[str, Any]:
        """Return what a summary would say, from the metrics of an unfinished run."""

    def origins(self, summary: Mapping[str, Any]) -> dict[str, str]:
        """Return where the durations, and other numbers, come from: measured, modelled, ..."""

    def remarks(self, summary: Mapping[str, Any]) -> dict[str, str]:
        """Return what else is worth a line, by what it is about."""

    def tables(self, summary: Mapping[str, Any]) -> list[Table]:
        """Return what is worth a table."""


WORDS: Mapping[str, Words] = {
    "train": train_words,
    "relax": relax_words,
    "predict": predict_words,
    "emulate": emulate_words,
    "replay": replay_words,
}


def words_of(kind: str | None) -> Words:
    """Return the words for a kind of run; those of training for one that has none."""
    return WORDS.get(kind or "", train_words)


def trouble(kind: str | None, status: str, summary: Mapping[str, Any]) -> str | None:
    """Return one sentence on why a run did not end as it should; None if it did."""
    if status in SUCCESSES:
        return None
    if (ending := words_of(kind).ENDINGS.get(status)) is not None:
        return ending(summary)
    match status:
        case "unfinished":
            return (
                "The run is not finished: it is still going on, or it was killed. "
                "This is what it had written."
            )
        case "interrupted":
            return "The run was interrupted before its end."
    return f"The run ended as: {status}."
