"""The records of one real rank, selected from those of all processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from paracosm.arrays import Floats
from paracosm.emulation.records import (
    Collective,
    Exchange,
    Group,
    Iteration,
    Note,
    Record,
    Wait,
)

One = TypeVar("One", bound=Record)


@dataclass(frozen=True)
class RankRecords:
    rank: int
    collectives: tuple[Collective, ...]  # in the order in which it asked for them
    waits: Floats  # when each began and ended, shape (m, 2), seconds
    iterations: tuple[Iteration, ...]
    groups: tuple[Group, ...]  # that it is a member of, in the order in which they came, each once

    @cached_property
    def spans(self) -> Floats:
        """When each collective was asked for and done, shape (n, 2), seconds."""
        return spans_of(self.collectives)

    @property
    def first(self) -> float:
        """The earliest instant of all; infinite where nothing was recorded."""
        return min(self._instants, default=np.inf)

    @property
    def last(self) -> float:
        """The latest instant of all; minus infinity where nothing was recorded."""
        return max(self._instants, default=-np.inf)

    @cached_property
    def _instants(self) -> list[float]:
        ends = [iteration.end for iteration in self.iterations]
        return [*self.spans.ravel().tolist(), *self.waits.ravel().tolist(), *ends]


def by_rank(records: Sequence[Record], ranks: Iterable[int] = ()) -> list[RankRecords]:
    numbers = {record.rank for record in records if not isinstance(record, Note | Exchange)}
    return [_of_rank(rank, records) for rank in sorted(numbers | set(ranks))]


def is_measured(records: Iterable[Record]) -> bool:
    """Whether collectives took no time, so that iterations are still to be composed."""
    return any(isinstance(record, Collective) and record.worker < 0 for record in records)


def spans_of(collectives: Sequence[Collective]) -> Floats:
    """Return when each was asked for and done, shape (n, 2), seconds."""
    return _pairs([(collective.asked, collective.done) for collective in collectives])


def _of_rank(rank: int, records: Sequence[Record]) -> RankRecords:
    def own(kind: type[One]) -> list[One]:
        return [record for record in records if isinstance(record, kind) and record.rank == rank]

    groups = {group.name: group for group in own(Group)}
    return RankRecords(
        rank,
        tuple(sorted(own(Collective), key=lambda each: (each.asked, each.group, each.number))),
        _pairs(sorted((wait.begin, wait.end) for wait in own(Wait))),
        tuple(sorted(own(Iteration), key=lambda each: each.number)),
        tuple(groups.values()),
    )


def _pairs(pairs: Sequence[tuple[float, float]]) -> Floats:
    return np.array(pairs, dtype=np.float64).reshape(-1, 2)


@dataclass(frozen=True)
class Iterations:
    number: NDArray[np.int64]  # of each, shape (k,)
    begin: Floats  # when, shape (k,), seconds
    end: Floats

    def __len__(self) -> int:
        return len(self.number)

    @cached_property
    def time(self) -> Floats:
        return self.end - self.begin

    @property
    def typical(self) -> int:
        """The number of the iteration whose time is nearest to the median, the first of such."""
        return int(self.number[np.argmin(np.abs(self.time - np.median(self.time)))])

    @property
    def middle(self) -> NDArray[np.bool_]:
        """Which belong to the middle half by time, shape (k,): no pause for a test or a file."""
        low, high = np.quantile(self.time, [0.25, 0.75], method="nearest")
        return np.asarray((self.time >= low) & (self.time <= high))


def measured_iterations(iterations: Sequence[Iteration]) -> Iterations:
    """Return the iterations whose beginning, the end of the one before, is known: not the first."""
    number = np.array([iteration.number for iteration in iterations], dtype=np.int64)
    end = np.array([iteration.end for iteration in iterations], dtype=np.float64)
    follows = np.flatnonzero(np.diff(number) == 1) + 1
    return Iterations(number[follows], end[follows - 1], end[follows])


def spread(times: Floats) -> dict[str, Any]:
    """Return the median of times, its standard error, the mean, p10, p90 and the number."""
    p10, median, p90 = np.quantile(times, [0.1, 0.5, 0.9]).tolist()
    return {
        "median": median,
        "p10": p10,
        "p90": p90,
        "mean": float(np.mean(times)),
        "error": error_of_median(times),
        "measured": len(times),
    }


def error_of_median(times: Floats) -> float:
    """Return the standard error of the median of times, from their median absolute deviation."""
    # For a normal distribution it is 0.6745 sigma, and the error sqrt(pi / 2) sigma / sqrt(k).
    deviation = float(np.median(np.abs(times - np.median(times))))
    return float(np.sqrt(np.pi / 2 / len(times)) * deviation / 0.6745)
