"""The ranks of a job whose timelines are shown: "0,8..15", or one of each class."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from paracosm.errors import InputError

if TYPE_CHECKING:
    from paracosm.simulation.static import JobSchedule

MOST = 16  # ranks shown by default: a trace viewer holds some million spans


def parse_ranks(text: str) -> tuple[range, ...] | None:
    """Read "0,8..15" as ranges; None for "all"."""
    if text.strip() == "all":
        return None
    ranks: list[range] = []
    for piece in text.split(","):
        match = re.fullmatch(r"(\d{1,18})(?:\s*\.\.\s*(\d{1,18}))?", piece.strip())
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise InputError(f'cannot read "{piece.strip()}" as ranks: write 0,8..15, or all')
        ranks.append(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(ranks)


def check_ranks(text: str, count: int) -> None:
    """Raise InputError if the text names a rank outside a job of `count`."""
    for ranks in parse_ranks(text) or ():
        if ranks.stop > count:
            raise InputError(
                f"timeline_ranks: there is no rank {ranks.stop - 1}: ranks are 0 to {count - 1}"
            )


def shown_ranks(schedule: JobSchedule, wanted: str | None) -> tuple[int, ...]:
    """Return the requested ranks, or one of each class: at most `MOST`, evenly spread."""
    count = schedule.job.ranks
    if wanted is None:
        representatives = sorted(schedule.representative.tolist())
        step = max((len(representatives) - 1) / (MOST - 1), 1.0)
        return tuple(
            representatives[round(place * step)] for place in range(min(len(representatives), MOST))
        )
    check_ranks(wanted, count)
    ranks = parse_ranks(wanted)
    if ranks is None:
        return tuple(range(count))
    return tuple(dict.fromkeys(rank for part in ranks for rank in part))
