"""Numbers of workers as text: "16", "1,2,4,8..1024", "1..16", "16,24..64"."""

import re
from typing import Any

from paracosm.errors import InputError, shown
from paracosm.units import in_digits, is_too_wide

MOST_NODES = 1_000_000
"""Nodes of one cluster."""

MOST = 2048
"""Numbers of workers in one sweep."""

EXAMPLE = "write 16, or 1,2,4..64, or 1..16"


def parse_workers(value: Any) -> tuple[int, ...]:
    """Return the numbers that a text, a number, or a list of both represents.

    `a..b` continues from a to b. The two numbers before the dots define the steps: by a factor if
    the second is a multiple of the first (1,2..8 is 1, 2, 4, 8); else by their difference
    (16,24..48); a single number continues by ones. The number after the dots is always the last.
    """
    parts = value if isinstance(value, list | tuple) else [value]
    counts: list[int] = []
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, int | str):
            raise InputError(f"a number of workers is a whole number, not {part!r}: {EXAMPLE}")
        if isinstance(part, int):
            _append(counts, part)
            continue
        for piece in part.split(","):
            _parse_piece(piece.strip(), counts)
    if not counts:
        raise InputError(f"missing number of workers: {EXAMPLE}")
    return tuple(counts)


def _parse_piece(piece: str, counts: list[int]) -> None:
    match = re.fullmatch(r"(\d{1,18})(?:\s*\.\.\s*(\d{1,18}))?", piece)
    if match is None:
        digits = in_digits(piece)
        example = EXAMPLE if digits is None else f"write {digits}"
        raise InputError(f'cannot read "{piece}" as numbers of workers: {example}')
    first = int(match[1])
    _append(counts, first)
    if match[2] is not None:
        last = int(match[2])
        if last <= first:
            raise InputError(f'"{piece}" is not a range: the number after the dots must be larger')
        before = counts[-2] if len(counts) > 1 else 0
        factor, rest = divmod(first, before) if before else (1, 1)
        step = first - before if before else 1
        number = first
        while number < last:
            number = min(number + step if rest else number * factor, last)
            _append(counts, number)


def _append(counts: list[int], number: int) -> None:
    if number < 1:
        raise InputError(f"a job has at least 1 worker, not {shown(number)}")
    if number > MOST_NODES:
        written = shown(number) if is_too_wide(number) else f"{number:,}"
        raise InputError(f"a job has at most {MOST_NODES:,} workers, not {written}")
    if counts and number <= counts[-1]:
        raise InputError(f"numbers of workers must increase: {number} comes after {counts[-1]}")
    if len(counts) == MOST:
        raise InputError(f"more than {MOST:,} numbers of workers: take larger steps")
    counts.append(number)
