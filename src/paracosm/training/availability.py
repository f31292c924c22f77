"""The availability of clients: times listed in a file, or random periods."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from math import inf
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from paracosm.errors import InputError
from paracosm.quantities import read_duration
from paracosm.rng import TrainingStream, generator
from paracosm.tables import read_csv, read_parquet
from paracosm.timing import Distribution, parse_distribution
from paracosm.units import format_duration, parse_duration


class Availability(Protocol):
    """The availability of each client. `now`, in seconds, never decreases."""

    def there_until(self, client: int, now: float) -> float | None:
        """Return when a client that is available now leaves; None if it is away."""

    def comes_at(self, client: int, now: float) -> float:
        """Return when a client that is away returns; infinity if never."""

    @property
    def end(self) -> tuple[float, int]:
        """The last known instant, and a client that is available until then."""


class Always:
    """Every client is always available."""

    end = (inf, 0)

    def there_until(self, client: int, now: float) -> float | None:
        return inf

    def comes_at(self, client: int, now: float) -> float:
        return now


class Trace:
    """Clients are available in the intervals of a file, again in each period; see `read_trace`."""

    def __init__(self, intervals: Sequence[tuple[int, float, float]], period: float = inf) -> None:
        """Take intervals (client, begin, end) in order, of which no two of a client overlap."""
        self._period = period
        self._begins: dict[int, list[float]] = {}
        self._ends: dict[int, list[float]] = {}
        for client, begin, end in intervals:
            begins = self._begins.setdefault(client, [])
            ends = self._ends.setdefault(client, [])
            if ends and ends[-1] == begin:
                ends[-1] = end
            else:
                begins.append(begin)
                ends.append(end)
        last = max((end, client) for client, _, end in intervals)
        self.end = last if period == inf else (inf, 0)

    def there_until(self, client: int, now: float) -> float | None:
        begins, ends, (this, following) = *self._of(client), self._periods(now)
        place = bisect_right(begins, now, key=lambda begin: this + begin) - 1
        if place < 0 or now >= this + ends[place]:
            return None
        if ends[place] < self._period or begins[0] > 0:
            return this + ends[place]
        return inf if ends[0] == self._period else following + ends[0]

    def comes_at(self, client: int, now: float) -> float:
        begins, (this, following) = self._of(client)[0], self._periods(now)
        place = bisect_right(begins, now, key=lambda begin: this + begin)
        if place < len(begins):
            return this + begins[place]
        return following + begins[0] if begins else inf

    def _of(self, client: int) -> tuple[list[float], list[float]]:
        return self._begins.get(client, []), self._ends.get(client, [])

    def _periods(self, now: float) -> tuple[float, float]:
        """Return when the period began that it is now, and when the next one does."""
        if self._period == inf:
            return 0.0, inf
        number = now // self._period
        if (number + 1) * self._period <= now:  # by rounding
            number += 1
        return number * self._period, (number + 1) * self._period


@dataclass(frozen=True)
class Repeated:
    """The intervals of a file, which begin again after each period."""

    path: Path
    period: float | None = None  # seconds; None: until the end of the last interval

    def __str__(self) -> str:
        period = "" if self.period is None else f", {format_duration(self.period, exact=True)}"
        return f"repeat({self.path}{period})"


def read_trace(path: Path, clients: int, repeated: Repeated | None = None) -> Trace:
    """Read the intervals in which clients are available from a CSV or Parquet file.

    It has the columns client (from 0), begin and end: seconds, or texts with a unit. A client that
    is not listed is never available. They may be `repeated`.
    """
    columns = read_columns(path, ("begin", "end"), clients)
    rows = []
    for client, begin, end in zip(columns["client"], columns["begin"], columns["end"], strict=True):
        rows.append((client, _seconds(path, client, begin), _seconds(path, client, end)))
    rows.sort()
    before = None
    for row in rows:
        client, begin, end = row
        if not begin < end < inf:
            raise InputError(
                f"{path}: client {client} is available from {begin:g} s to {end:g} s: intervals "
                "must be finite and end after they begin"
            )
        if before is not None and before[0] == client and before[2] > begin:
            raise InputError(f"{path}: intervals of client {client} overlap at {begin:g} s")
        before = row
    if not rows:
        raise InputError(f"{path}: it has no intervals")
    if repeated is None:
        return Trace(rows)
    last = max(end for _, _, end in rows)
    period = last if repeated.period is None else repeated.period
    if min(begin for _, begin, _ in rows) < 0:
        raise InputError(f"{path}: a trace that is repeated begins at 0 s or later")
    if not max(last, _SHORTEST) <= period < inf:
        raise InputError(
            f"availability: {repeated}: the period must be {format_duration(max(last, _SHORTEST))} "
            f"or more, as the trace is, not {format_duration(period)}"
        )
    return Trace(rows, period)


def _seconds(path: Path, client: int, value: Any) -> float:
    try:
        return parse_duration(value)
    except InputError as error:
        raise InputError(f"{path}: client {client}: {error}") from None


_SHORTEST = 1e-3  # seconds of a period of being there and one of being away, on average
_RAREST = 1e-6
_MOST_TURNS = 1_000_000  # of one client, passed at a time: seconds on a processor


@dataclass(frozen=True)
class OnOff:
    """Each client alternates between available and away, independently of others."""

    on: Distribution  # how long it is there
    off: Distribution  # how long it is away

    def __post_init__(self) -> None:
        for name, distribution in (("there", self.on), ("away", self.off)):
            if not 0 < distribution.mean() < inf or distribution.in_order:
                raise InputError(
                    f"availability: the time that clients are {name} must be a distribution with "
                    f"a finite mean above 0, not a recording, got {distribution}"
                )
        on, off = self.on.mean(), self.off.mean()
        if on + off < _SHORTEST or on / (on + off) < _RAREST:
            raise InputError(
                f"availability: a client comes once in {format_duration(_SHORTEST)} or more, for "
                f"{_RAREST:g} of the time or more, not as in {self}"
            )

    def __str__(self) -> str:
        return f"onoff({self.on}, {self.off})"


Presence = OnOff | Repeated | Path
"""When clients are available: by turns, or in the intervals of a file, once or repeated."""


def parse_presence(text: str) -> Presence:
    """Read a file, `repeat(trace.csv)`, `repeat(trace.csv, 24h)` or `onoff(...)`.

    Raises:
        InputError: it is none of these.
    """
    if is_table(text):
        return Path(text)
    match = re.fullmatch(r"\s*repeat\((.+?)(?:,([^,]*))?\)\s*", text)
    if match is None:
        return parse_on_off(text)
    if not is_table(match[1]):
        raise InputError(
            f'availability: "{text}" repeats no .csv or .parquet file: write repeat(trace.csv), or '
            "with a period repeat(trace.csv, 24h)"
        )
    return Repeated(Path(match[1].strip()), None if match[2] is None else read_duration(match[2]))


def parse_on_off(text: str) -> OnOff:
    """Read `onoff(exponential(1h), exponential(2h))`: the times that clients are available and
    away.
    """
    inside = text.strip().removeprefix("onoff(")
    if inside == text.strip() or not inside.endswith(")"):
        raise InputError(
            f'availability: "{text}" is neither a .csv or .parquet file, nor repeat(trace.csv), '
            'nor "onoff(exponential(1h), exponential(2h))": the times that clients are available '
            "and away"
        )
    inside, depth = inside[:-1], 0
    for place, sign in enumerate(inside):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and not depth:
            on, off = inside[:place], inside[place + 1 :]
            return OnOff(parse_distribution(on.strip()), parse_distribution(off.strip()))
    raise InputError(f'availability: "{text}" lacks the time that clients are away: onoff(1h, 2h)')


_QUANTILES = 4096  # of a distribution, for the remainder of a current period


class Turns:
    """Alternating clients in equilibrium at the start of the run.

    A client is available at the start with probability E[on] / (E[on] + E[off]); what is left of
    its period then has the density (1 - F(x)) / mean (Cox, "Renewal Theory", 1962, section 5.1).
    That is drawn as a uniform share of a period that is chosen in proportion to its length, of
    4096 quantiles. Periods of a client are drawn on demand.
    """

    end = (inf, 0)

    def __init__(self, turns: OnOff, seed: int) -> None:
        self._turns = turns
        self._seed = seed
        uniform = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        self._lengths = [
            distribution.from_uniform(uniform) for distribution in (turns.off, turns.on)
        ]
        self._longer = [np.cumsum(lengths) for lengths in self._lengths]
        self._share = turns.on.mean() / (turns.on.mean() + turns.off.mean())
        self._clients: dict[int, _Turn] = {}

    def there_until(self, client: int, now: float) -> float | None:
        turn = self._at(client, now)
        return turn.until if turn.is_there else None

    def comes_at(self, client: int, now: float) -> float:
        turn = self._at(client, now)
        return now if turn.is_there else turn.until

    def _at(self, client: int, now: float) -> "_Turn":
        turn = self._clients.get(client)
        if turn is None:
            turn = self._clients[client] = self._first(client)
        for _ in range(_MOST_TURNS):
            if turn.until > now:
                return turn
            turn.is_there = not turn.is_there
            period = self._turns.on if turn.is_there else self._turns.off
            turn.until += period.sample(turn.rng)
        raise InputError(
            f"availability: client {client} comes and goes {_MOST_TURNS:,} times before somebody "
            f"looks for it, at {format_duration(now)}: let it stay longer than in {self._turns}"
        )

    def _first(self, client: int) -> "_Turn":
        rng = generator(self._seed, TrainingStream.AVAILABILITY, client)
        is_there = bool(rng.random() < self._share)
        longer = self._longer[is_there]
        place = int(np.searchsorted(longer, rng.random() * longer[-1], side="right"))
        left = rng.random() * self._lengths[is_there][place]
        return _Turn(is_there, float(left), rng)


@dataclass(slots=True)
class _Turn:
    is_there: bool
    until: float
    rng: np.random.Generator


def make_availability(what: Presence | None, clients: int, seed: int) -> Availability:
    """Return the availability of clients: always, alternating, or from a file."""
    match what:
        case None:
            return Always()
        case OnOff():
            return Turns(what, seed)
        case Repeated():
            return read_trace(what.path, clients, what)
    return read_trace(what, clients)


def absences(
    availability: Availability, workers: Sequence[str]
) -> Iterator[tuple[float, str, float]]:
    """Yield worker, begin and end (infinity: forever) of absences, by begin."""

    def of(number: int) -> Iterator[tuple[float, str, float]]:
        now = 0.0
        while now < inf:
            until = availability.there_until(number, now)
            begin = now if until is None else until
            now = inf if begin == inf else availability.comes_at(number, begin)
            if begin < inf:
                yield begin, workers[number], now

    return merge(*map(of, range(len(workers))))


def check_known(availability: Availability, until: float, who: str = "client") -> None:
    """Raise InputError if the trace ends before the run."""
    end, client = availability.end
    if until > end:
        when = format_duration(end)
        raise InputError(
            f"availability: the trace ends at {when}, with {who} {client}, before the run: give a "
            f"longer trace, or end the run there with --until {when.replace(' ', '')}"
        )


SUFFIXES = (".csv", ".parquet")


def is_table(text: str) -> bool:
    """Whether a text is a table file of clients instead of a distribution."""
    return text.strip().lower().endswith(SUFFIXES)


def read_columns(path: Path, names: Sequence[str], clients: int) -> dict[str, list[Any]]:
    """Return the column "client" of a table and those called `names`.

    Cells of a CSV file stay texts.
    """
    if path.suffix.lower() == ".csv":
        table = read_csv(path, "table of clients", ("client", *names))
    else:
        table = read_parquet(path, "table of clients")
    columns = table.column_names
    for name in ("client", *names):
        if name not in columns:
            raise InputError(f"{path}: the column {name} is missing: it has {', '.join(columns)}")
    by_name = {name: table[name].to_pylist() for name in ("client", *names)}
    by_name["client"] = [_client(path, value, clients) for value in by_name["client"]]
    for name in names:
        for client, value in zip(by_name["client"], by_name[name], strict=True):
            if value is None or value == "":
                raise InputError(f"{path}: client {client} has no {name}")
    return by_name


def _client(path: Path, value: Any, clients: int) -> int:
    try:
        client = int(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f'{path}: "{value}" is no client\'s number') from None
    if not isinstance(value, str) and client != value:
        raise InputError(f'{path}: "{value}" is no client\'s number')
    if not 0 <= client < clients:
        raise InputError(
            f"{path}: there is no client {client}: the {clients} clients have the numbers 0 to "
            f"{clients - 1}"
        )
    return client
