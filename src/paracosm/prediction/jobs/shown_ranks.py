"""Which ranks' timelines are written."""

from __future__ import annotations

import re
from collections.abc import Sequence

from paracosm.errors import InputError
from paracosm.simulation import JobSchedule

MOST = 16
"""Ranks that are shown where nobody chooses: a trace viewer holds some million spans."""


def parse_ranks(text: str) -> tuple[range, ...] | None:
    """Return the ranks in a text such as "0,8..15", as ranges; None for "all".

    Raises:
        InputError: it cannot be read.
    """
    if text.strip() == "all":
        return None
    ranks: list[range] = []
    for piece in text.split(","):
        match = re.fullmatch(r"(\d+)(?:\s*\.\.\s*(\d+))?", piece.strip())
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise InputError(f'cannot read "{piece.strip()}" as ranks: write 0,8..15, or all')
        ranks.append(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(ranks)


def check_ranks(text: str, count: int) -> None:
    """Raise InputError if a text such as "0,8..15" names a rank that a job of `count` has not."""
    for ranks in parse_ranks(text) or ():
        if ranks.stop > count:
            raise InputError(f"timeline_ranks: no rank {ranks.stop - 1}: they are 0 to {count - 1}")


def shown_ranks(schedule: JobSchedule, wanted: str | None) -> tuple[int, ...]:
    """Return the ranks to show: those that are wanted, or one of each class, at most `MOST`.

    Raises:
        InputError: the job has no such rank.
    """
    count = schedule.job.ranks
    if wanted is None:
        return tuple(_spread(sorted(schedule.representative.tolist())))
    check_ranks(wanted, count)
    ranks = parse_ranks(wanted)
    if ranks is None:
        return tuple(range(count))
    return tuple(dict.fromkeys(rank for each in ranks for rank in each))


def _spread(ranks: Sequence[int]) -> list[int]:
    """Return at most `MOST` of them, evenly spread, the first and the last among them."""
    if len(ranks) <= MOST:
        return list(ranks)
    step = (len(ranks) - 1) / (MOST - 1)
    return [ranks[round(place * step)] for place in range(MOST)]
