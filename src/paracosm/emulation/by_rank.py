"""The records of one real rank, out of those of all processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from paracosm.emulation.records import (
    Collective,
    Exchange,
    Group,
    Iteration,
    Note,
    Record,
    Wait,
)
from paracosm.timeline.analysis import Floats

__all__ = ["RankRecords", "by_rank", "spans_of"]

One = TypeVar("One", bound=Record)


@dataclass(frozen=True)
class RankRecords:
    """What one real rank did.

    Attributes:
        rank: which.
        collectives: in the order in which it asked for them.
        waits: when each began and ended, shape (m, 2), seconds.
        iterations: in order.
        groups: that it is a member of, in the order in which they came, each once.
    """

    rank: int
    collectives: tuple[Collective, ...]
    waits: Floats
    iterations: tuple[Iteration, ...]
    groups: tuple[Group, ...]

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
        ends = [each.end for each in self.iterations]
        return [*self.spans.ravel().tolist(), *self.waits.ravel().tolist(), *ends]


def by_rank(records: Sequence[Record], ranks: Iterable[int] = ()) -> list[RankRecords]:
    """Return the records of each rank that has any, and of the `ranks`, by number."""
    found = {each.rank for each in records if not isinstance(each, Note | Exchange)}
    return [_of_rank(rank, records) for rank in sorted(found | set(ranks))]


def spans_of(collectives: Sequence[Collective]) -> Floats:
    """Return when each was asked for and done, shape (n, 2), seconds."""
    return _pairs([(each.asked, each.done) for each in collectives])


def _of_rank(rank: int, records: Sequence[Record]) -> RankRecords:
    def own(kind: type[One]) -> list[One]:
        return [each for each in records if isinstance(each, kind) and each.rank == rank]

    groups = {each.name: each for each in own(Group)}
    return RankRecords(
        rank,
        tuple(sorted(own(Collective), key=lambda each: (each.asked, each.group, each.number))),
        _pairs(sorted((each.begin, each.end) for each in own(Wait))),
        tuple(sorted(own(Iteration), key=lambda each: each.number)),
        tuple(groups.values()),
    )


def _pairs(pairs: Sequence[tuple[float, float]]) -> Floats:
    return np.array(pairs, dtype=np.float64).reshape(-1, 2)
