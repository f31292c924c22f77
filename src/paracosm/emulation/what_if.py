"""What-ifs: changes of an emulated job, each written as a short line.

all_reduce +2ms               added latency of every collective of a kind; "collectives": of all
all_reduce x2                 its time, doubled; /2 halves it
link 0-3 bandwidth /4         of one link; "links": of all of them
link 0-3 latency +1ms         also latency x3
rank 5 x1.5                   a straggler that computes 1.5 times as long; "ranks 4..7": several
rank 5 +10ms                  late by that in every iteration; also +lognormal(10ms, 0.5)
all_gather algorithm ring     another algorithm of a collective
world 128                     another world size
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from paracosm.cluster.communication import COLLECTIVES as WITH_ALGORITHMS
from paracosm.cluster.communication import algorithms_of
from paracosm.emulation.random_delay import parse_random_delay
from paracosm.emulation.records import COLLECTIVES
from paracosm.errors import InputError, unknown
from paracosm.timing import Distribution
from paracosm.units import parse_duration, parse_number

if TYPE_CHECKING:
    from paracosm.emulation.config import EmulateConfig

__all__ = [
    "AddedDelay",
    "AnotherAlgorithm",
    "AnotherWorld",
    "LinkChange",
    "Straggler",
    "TimesAsLong",
    "WhatIf",
    "parse_what_if",
    "what_ifs_of",
    "with_world",
]


@dataclass(frozen=True)
class AddedDelay:
    """Every collective of these `kinds` takes `seconds` more."""

    text: str
    kinds: tuple[str, ...]
    seconds: float


@dataclass(frozen=True)
class TimesAsLong:
    """Every collective of these `kinds` takes `factor` times as long, without added delays."""

    text: str
    kinds: tuple[str, ...]
    factor: float


@dataclass(frozen=True)
class AnotherAlgorithm:
    """Collectives of one `kind` take another `algorithm`."""

    text: str
    kind: str
    algorithm: str


@dataclass(frozen=True)
class LinkChange:
    """The link of a `pair` of ranks, or every link, has `factor` times its value, and `added`."""

    text: str
    pair: tuple[int, int] | None
    value: Literal["bandwidth", "latency"]
    factor: float = 1.0
    added: float = 0.0


@dataclass(frozen=True)
class Straggler:
    """These `ranks` compute `factor` times as long, and are `late` once in an iteration."""

    text: str
    ranks: range
    factor: float = 1.0
    late: Distribution | None = None


@dataclass(frozen=True)
class AnotherWorld:
    """The job has `size` ranks."""

    text: str
    size: int


WhatIf = AddedDelay | TimesAsLong | AnotherAlgorithm | LinkChange | Straggler | AnotherWorld

_SUBJECTS = (*COLLECTIVES, "collectives", "link", "links", "rank", "ranks", "world")


def parse_what_if(text: str) -> WhatIf:
    """Return the what-if that `text` describes.

    Raises:
        InputError: one line with the text, what is wrong in it, and the form that is right.
    """
    words = text.split(maxsplit=1)
    subject, rest = words[0] if words else "", words[1].strip() if len(words) > 1 else ""
    try:
        if subject not in _SUBJECTS:
            raise unknown("subject", subject, _SUBJECTS)
        if subject in ("link", "links"):
            return _link_change(text, subject, rest)
        if subject in ("rank", "ranks"):
            return _straggler(text, subject, rest)
        if subject == "world":
            return AnotherWorld(text, _whole(rest, "write world 128"))
        return _of_collective(text, subject, rest)
    except InputError as error:
        raise InputError(f'what_if "{text}": {error}') from None


def what_ifs_of(config: EmulateConfig) -> tuple[WhatIf, ...]:
    """Return the what-ifs of a job, in its order, but for another world; see `with_world`.

    Raises:
        InputError: one that cannot be read, or that names a rank that the job does not have, or a
            real rank as a straggler.
    """
    found = tuple(map(parse_what_if, config.what_if))
    if not found:
        return ()
    world = config.world
    for each in found:
        for rank in _named_ranks(each):
            if rank >= world:
                raise InputError(
                    f'what_if "{each.text}": a world of {world:,} has ranks 0 to {world - 1:,}, '
                    f"not {rank:,}"
                )
        if isinstance(each, Straggler):
            for rank in config.rank:
                if rank in each.ranks:
                    raise InputError(
                        f'what_if "{each.text}": rank {rank} is real, it computes as fast as this '
                        f"machine does; only emulated ranks can be made stragglers"
                    )
    return tuple(each for each in found if not isinstance(each, AnotherWorld))


def with_world(config: EmulateConfig) -> EmulateConfig:
    """Return the job as it is in the other world that a what-if asks for, without that what-if.

    Raises:
        InputError: a what-if that cannot be read, two other worlds, or a world that is too small
            for the real rank, or too large for the cluster.
    """
    found = [parse_what_if(text) for text in config.what_if]
    worlds = [each for each in found if isinstance(each, AnotherWorld)]
    if not worlds:
        return config
    if len(worlds) > 1:
        raise InputError(f'what_if "{worlds[1].text}": another world is asked for already')
    rest = tuple(each.text for each in found if not isinstance(each, AnotherWorld))
    changed = config.model_copy(update={"world_size": worlds[0].size, "what_if": rest})
    try:
        _ = changed.world
        changed.resolve_cluster()
    except InputError as error:
        raise InputError(f'what_if "{worlds[0].text}": {error}') from None
    return changed


def _of_collective(text: str, subject: str, rest: str) -> WhatIf:
    kinds = COLLECTIVES if subject == "collectives" else (subject,)
    words = rest.split()
    if words[:1] == ["algorithm"]:
        return AnotherAlgorithm(text, subject, _algorithm(subject, words[1:]))
    sign, value = _change(rest, f"write {subject} +2ms, {subject} x2")
    if sign == "+":
        return AddedDelay(text, kinds, _delay(value))
    return TimesAsLong(text, kinds, _factor(sign, value))


def _algorithm(subject: str, words: list[str]) -> str:
    if subject not in WITH_ALGORITHMS:
        raise InputError(f"one algorithm cannot be said of {subject}: name one kind of collective")
    names = ("auto", *algorithms_of(subject))
    if len(words) != 1:
        raise InputError(f"write {subject} algorithm NAME, with one of {', '.join(names)}")
    if words[0] not in names:
        raise unknown(f"algorithm for {subject}", words[0], names)
    return words[0]


def _link_change(text: str, subject: str, rest: str) -> LinkChange:
    form = f"write {subject}{' 0-3' if subject == 'link' else ''} bandwidth /4, or latency +1ms"
    pair: tuple[int, int] | None = None
    if subject == "link":
        match = re.fullmatch(r"(\d+)-(\d+)\s+(.*)", rest)
        if not match:
            raise InputError(f"which link, and what of it? {form}")
        pair, rest = (int(match[1]), int(match[2])), match[3]
        if pair[0] == pair[1]:
            raise InputError("a link joins two different ranks")
    value, _, change = rest.partition(" ")
    if value not in ("bandwidth", "latency"):
        if not value:
            raise InputError(f"what of it? {form}")
        raise unknown("value of a link", value, ("bandwidth", "latency"))
    sign, number = _change(change, form)
    if sign != "+":
        return LinkChange(text, pair, value, factor=_factor(sign, number))  # type: ignore[arg-type]
    if value == "bandwidth":
        raise InputError(f"a bandwidth is multiplied or divided: {form}")
    return LinkChange(text, pair, "latency", added=_delay(number))


def _straggler(text: str, subject: str, rest: str) -> Straggler:
    form = "write rank 5 x1.5, rank 5 +10ms, ranks 4..7 x1.2"
    match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?\s+(.*)", rest)
    if not match or (match[2] is None) is (subject == "ranks"):
        raise InputError(f"which rank, and what of it? {form}")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise InputError(f"{first}..{last} are no ranks: the first comes first")
    sign, value = _change(match[3], form)
    ranks = range(first, last + 1)
    if sign == "+":
        return Straggler(text, ranks, late=parse_random_delay(value))
    return Straggler(text, ranks, factor=_factor(sign, value))


def _change(text: str, form: str) -> tuple[str, str]:
    """Split "x2", "/4" or "+1ms" after its sign."""
    match = re.fullmatch(r"([x/+])\s*(.+)", text.strip())
    if not match:
        raise InputError(f'cannot read "{text.strip()}": {form}' if text.strip() else form)
    return match[1], match[2]


def _factor(sign: str, text: str) -> float:
    factor = parse_number(text)
    if not (factor > 0 and math.isfinite(factor)):
        raise InputError(f"a factor is finite and above 0, not {text}")
    return factor if sign == "x" else 1 / factor


def _delay(text: str) -> float:
    seconds = parse_duration(text)
    if not math.isfinite(seconds):
        raise InputError(f"a delay is finite, not {text}")
    if seconds and re.fullmatch(r"[\d.eE+-]+", text):
        raise InputError(f"{text} of what? write a delay with its unit, such as {text}ms")
    return seconds


def _whole(text: str, form: str) -> int:
    if not re.fullmatch(r"[1-9]\d*", text):
        raise InputError(f'cannot read "{text}": {form}' if text else form)
    return int(text)


def _named_ranks(what_if: WhatIf) -> Iterable[int]:
    match what_if:
        case LinkChange(pair=(first, second)):
            return (first, second)
        case Straggler(ranks=ranks):
            return (ranks[-1],)
        case _:
            return ()
