"""What could be different, in words: "link bandwidth x2", "rank 3 compute x1.5".

    [rank R] WHAT xF        WHAT is F times as fast: its durations are divided by F
    [rank R] without WHAT   it takes no time
    link latency +T, -T     every collective takes T longer, or less

WHAT is one of

    compute             kernels that do not communicate
    copies              copies and memsets of the device
    host                work of the host's threads between and in calls, data loading left out
    data loading        the training loop's waiting for its data loader
    link bandwidth      collectives, from when all ranks are there
    collective KIND     those of one kind: all_reduce, all_gather, ...
    kernel PATTERN      kernels whose names match, "*" for anything
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from paracosm.errors import InputError, unknown
from paracosm.units import parse_duration

__all__ = ["TARGETS", "WhatIf", "parse_what_if"]

TARGETS = (
    *("compute", "copies", "host", "data loading", "link bandwidth"),
    *("collective KIND", "kernel PATTERN", "link latency"),
)
_RANK = re.compile(r"rank\s+(\S+)\s+(.*)$", re.IGNORECASE)
_FASTER = re.compile(r"(.*?)\s+[x*]\s*([^x*\s]\S*)$", re.IGNORECASE)
_LATER = re.compile(r"link\s+latency\s*([+-])\s*(.+)$", re.IGNORECASE)
_COMMUNICATION = ("link bandwidth", "collective KIND", "link latency")
_EXAMPLES = '"link bandwidth x2", "rank 3 compute x1.5", "without data loading"'


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One thing that is different.

    Attributes:
        text: as it was asked.
        target: one of `TARGETS`.
        pattern: of a kernel's name, or a kind of collective; "" for other targets.
        rank: the one that it is about; None for all.
        faster: by how much durations are divided; infinite for what takes no time.
        later: seconds that are added to each duration.
    """

    text: str
    target: str
    pattern: str = ""
    rank: int | None = None
    faster: float = 1.0
    later: float = 0.0


def parse_what_if(text: str) -> WhatIf:
    """Return what a text asks for.

    Raises:
        InputError: it is none of the module's forms; the nearest target is named.
    """
    rest, rank = " ".join(text.split()), None
    if match := _RANK.match(rest):
        rank, rest = _rank(match[1], text), match[2]
    rest = re.sub(r"^all\s+", "", rest, flags=re.IGNORECASE)
    if match := _LATER.match(rest):
        later = _duration(match[2], text) * (1 if match[1] == "+" else -1)
        return _checked(WhatIf(text, "link latency", "", rank, 1.0, later))
    if rest.lower().startswith("without "):
        target, pattern = _target(rest[len("without ") :], text)
        return _checked(WhatIf(text, target, pattern, rank, float("inf")))
    if match := _FASTER.match(rest):
        target, pattern = _target(match[1], text)
        return _checked(WhatIf(text, target, pattern, rank, _factor(match[2], text)))
    raise InputError(f'--what-if "{text}": says no change: write {_EXAMPLES}')


def _target(words: str, text: str) -> tuple[str, str]:
    """Return the target that words name, and its pattern."""
    head, _, tail = words.partition(" ")
    for word, target in (("kernel", "kernel PATTERN"), ("collective", "collective KIND")):
        if head.lower() == word:
            if not tail:
                raise InputError(f'--what-if "{text}": which {word}? write {target} xF')
            return target, tail
    name = words.lower()
    if name == "communication":
        name = "link bandwidth"
    if name not in TARGETS[:5]:
        raise InputError(f'--what-if "{text}": {unknown("target", words, TARGETS)}')
    return name, ""


def _checked(asked: WhatIf) -> WhatIf:
    if asked.faster == 1 and asked.later == 0:
        raise InputError(f'--what-if "{asked.text}": would change nothing')
    if asked.rank is not None and asked.target in _COMMUNICATION:
        raise InputError(
            f'--what-if "{asked.text}": a collective is one for all its ranks: leave out the rank'
        )
    return asked


def _factor(word: str, text: str) -> float:
    try:
        factor = float(word)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise InputError(
            f'--what-if "{text}": "{word}" is no factor above 0: x2 is twice as fast, x0.5 takes '
            "twice as long, and without WHAT takes no time"
        )
    return factor


def _rank(word: str, text: str) -> int:
    if not word.isdecimal():
        raise InputError(f'--what-if "{text}": "{word}" is no rank: write rank 3 compute x1.5')
    return int(word)


def _duration(word: str, text: str) -> float:
    try:
        return parse_duration(word)
    except InputError as error:
        raise InputError(f'--what-if "{text}": {error}') from None
