"""Faults: what goes wrong, in which data, where and when."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields
from math import inf, isfinite
from typing import Annotated, Any, Literal, cast, get_args

import numpy as np
from pydantic import PlainSerializer, PlainValidator

from paracosm.arrays import Ints
from paracosm.errors import InputError, unknown
from paracosm.faults.models import MODELS, DataFault, FaultModel, Lose, ProcessorFault, Slow
from paracosm.quantities import read_duration
from paracosm.timing.distribution import inside
from paracosm.units import format_duration, format_number, parse_number


@dataclass(frozen=True)
class Share:
    """`percent` of the components, chosen at random, rounded to a whole number, at least one."""

    percent: float

    def __post_init__(self) -> None:
        if not 0 < self.percent <= 100:
            raise InputError(
                f"on: a share must be above 0% and at most 100%, not {self.percent:g}%"
            )

    def __str__(self) -> str:
        return f"{format_number(self.percent)}%"


@dataclass(frozen=True)
class Count:
    """`number` components, chosen at random."""

    number: int

    def __post_init__(self) -> None:
        if self.number < 1:
            raise InputError(f"on: at least 1 component, not {self.number}")

    def __str__(self) -> str:
        return f"{self.number} component{'s' if self.number > 1 else ''}"


@dataclass(frozen=True)
class Rows:
    """The components of the rows `first` to `last`, both included, counted from 0."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.first < 0:
            raise InputError(f"on: rows count from 0, not from {self.first}")
        if self.last < self.first:
            raise InputError(f"on: write the lower row first, rows {self.last}-{self.first}")

    def __str__(self) -> str:
        if self.first == self.last:
            return f"row {self.first}"
        return f"rows {self.first}-{self.last}"


@dataclass(frozen=True)
class OnProcessor:
    """The processor `index`, counted from 0; for a data fault the components of its block."""

    index: int

    def __post_init__(self) -> None:
        if self.index < 0:
            raise InputError(f"on: processors count from 0, not from {self.index}")

    def __str__(self) -> str:
        return f"processor {self.index}"


Node = Literal["worker", "server"]


@dataclass(frozen=True)
class OnNode:
    """The worker or server `index` of a training, counted from 0; of messages, its own."""

    kind: Node
    index: int

    def __str__(self) -> str:
        return f"{self.kind} {self.index}"


Where = Share | Count | Rows | OnProcessor | OnNode


@dataclass(frozen=True)
class At:
    """Once, at `time` seconds of virtual time."""

    time: float

    def __post_init__(self) -> None:
        if not 0 <= self.time < inf:
            raise InputError(f"at: a time must be finite and 0 or more, not {self.time}")

    def times(self, horizon: float | None, rng: np.random.Generator) -> Iterator[float]:
        yield self.time

    def __str__(self) -> str:
        return f"at {format_duration(self.time, exact=True)}"


@dataclass(frozen=True)
class AtRandom:
    """Once, uniformly between `low` and `high` seconds; without them, over the fault-free run time.

    The latter is the paper's "random iteration number before convergence" (section 6.1).
    """

    low: float = 0.0
    high: float | None = None

    def __post_init__(self) -> None:
        if self.high is None:
            if self.low:
                raise InputError("at random: an earliest time needs a latest one")
        elif not (isfinite(self.low) and isfinite(self.high) and self.low >= 0):
            raise InputError("at random: times must be finite and 0 or more")
        elif not self.low < self.high:
            raise InputError(
                f"at random: the earliest time ({self.low:g} s) must be below the latest "
                f"({self.high:g} s)"
            )

    def times(self, horizon: float | None, rng: np.random.Generator) -> Iterator[float]:
        """Yield one time below `high`, or below the `horizon` (seconds) where there is none."""
        high = self.high
        if high is None:
            if horizon is None or not 0 < horizon < inf:
                raise InputError(
                    "at random: the fault-free run time is not known here; "
                    'give bounds, such as "at random(0s, 100s)"'
                )
            high = horizon
        yield self.low + (high - self.low) * float(inside(rng.random(1))[0])

    def __str__(self) -> str:
        if self.high is None:
            return "at random"
        low, high = (format_duration(time, exact=True) for time in (self.low, self.high))
        return f"at random({low}, {high})"


@dataclass(frozen=True)
class Every:
    """A Poisson process: intervals are exponential, with the mean `mean` seconds, without end."""

    mean: float

    def __post_init__(self) -> None:
        if not 0 < self.mean < inf:
            raise InputError(
                f"every: the mean interval must be above 0 and finite, not {self.mean}"
            )

    def times(self, horizon: float | None, rng: np.random.Generator) -> Iterator[float]:
        time = 0.0
        while True:
            time += float(rng.exponential(self.mean))
            yield time

    def __str__(self) -> str:
        return f"every {format_duration(self.mean, exact=True)}"


When = At | AtRandom | Every


Target = Literal["x", "halo", "A", "b"]
TARGETS: tuple[Target, ...] = get_args(Target)
_AT_RANDOM = AtRandom()


@dataclass(frozen=True)
class Fault:
    """One source of faults; `str(fault)` is its shortest spelling, which parses back equal.

    Raises:
        InputError: parts that do not go together.
    """

    model: FaultModel
    # of a data fault: the iterate, a halo message, the non-zeros of A, the right side b
    target: Target = "x"
    # which components (None: all), which processor, worker or server (None: a random processor or
    # worker), or whose messages (None: everybody's)
    where: Where | None = None
    when: When = _AT_RANDOM

    def __post_init__(self) -> None:
        name = self.model.name
        if self.target not in TARGETS:
            raise unknown("target", self.target, TARGETS)
        if isinstance(self.model, ProcessorFault):
            if self.target != "x":
                raise InputError(f'{name} strikes a processor, not data: drop "in {self.target}"')
            if not isinstance(self.where, OnProcessor | OnNode | None):
                raise InputError(
                    f'{name} strikes a processor: write "on processor 3", not "on {self.where}"'
                )
        if isinstance(self.model, Lose):
            if self.target != "x":
                raise InputError(f'{name} strikes messages: drop "in {self.target}"')
            if not isinstance(self.where, OnNode | None):
                raise InputError(
                    f'{name} strikes messages: write "on worker 3", not "on {self.where}"'
                )
        if isinstance(self.model, DataFault) and isinstance(self.where, OnNode):
            raise InputError(f'{name} strikes data of a processor: drop "on {self.where}"')
        if isinstance(self.model, DataFault) and self._most_components() < (
            least := self.model.least_components
        ):
            raise InputError(
                f"{name} on {self.where} changes nothing: it needs {least} components or more"
            )

    @property
    def needs_horizon(self) -> bool:
        """Whether `fault_times` needs the run time of the same run without faults."""
        return isinstance(self.when, AtRandom) and self.when.high is None

    def _most_components(self) -> float:
        match self.where:
            case Count(number):
                return number
            case Rows(first, last) if self.target != "A":  # a row of A has several non-zeros
                return last - first + 1
        return float("inf")

    def __str__(self) -> str:
        parts = [str(self.model)]
        if self.target != "x":
            parts.append(f"in {self.target}")
        if self.where is not None:
            parts.append(f"on {self.where}")
        return " ".join([*parts, str(self.when)])


def fault_times(fault: Fault, horizon: float | None, rng: np.random.Generator) -> Iterator[float]:
    """Return the instants of `fault`, in seconds of virtual time, ascending; maybe without end.

    The instants come from a child of `rng` (the fault's own generator), which itself is used at
    them: how many numbers a fault draws does not move the next one. `horizon` is the run time
    without faults in seconds, needed for `at random` alone (`needs_horizon`).

    Raises:
        InputError: at the first instant, if the horizon is needed and not given.
    """
    return fault.when.times(horizon, rng.spawn(1)[0])


def mean_time_between_faults(faults: Iterable[Fault]) -> float | None:
    """Return the mean interval, in seconds, of all Poisson processes together; None if none."""
    rate = sum(1 / fault.when.mean for fault in faults if isinstance(fault.when, Every))
    return 1 / rate if rate else None


def check_fault(
    fault: Fault, *, unknowns: int, entries: int, processors: int, distributed: bool
) -> None:
    """Check that the run has what `fault` names.

    Args:
        unknowns, entries: rows and non-zeros of A.
        distributed: whether halo values travel as messages.

    Raises:
        InputError: a row, processor or number of components that the run does not have; a halo
            message in shared memory; what strikes a training alone.
    """
    if isinstance(fault.model, Slow | Lose) or isinstance(fault.where, OnNode):
        raise InputError(
            f'fault "{fault}": workers, servers and their messages are those of a training; here '
            "write one such as stop(30s) on processor 3 at 12s"
        )
    if fault.target == "halo" and not distributed:
        raise InputError(f'fault "{fault}": shared memory has no halo messages; write "in x"')
    match fault.where:
        case OnProcessor(index) if index >= processors:
            raise InputError(
                f'fault "{fault}": no processor {index}; there are {processors}, from 0'
            )
        case Rows(_, last) if last >= unknowns:
            raise InputError(f'fault "{fault}": no row {last}; there are {unknowns}, from 0')
        case Count(number) if number > (size := entries if fault.target == "A" else unknowns):
            raise InputError(f'fault "{fault}": {fault.target} has only {size} components')


def choose_components(
    where: Where | None,
    size: int,
    rng: np.random.Generator,
    *,
    rows: Ints | None = None,
    owned: Ints | None = None,
) -> Ints | None:
    """Return the indices of the values that a data fault strikes, ascending; None: all `size`.

    If a fault strikes more components than there are, it strikes all: a halo message may be short.
    The result is empty if none of the values belongs to the given rows or processor.

    Args:
        where: as in `Fault.where`.
        size: how many values there are: n for x and b, the non-zeros for A, a message's length.
        rng: the fault's own generator.
        rows: the row of each value, shape (size,); None if value i belongs to row i.
        owned: the rows of the processor of an `OnProcessor`.
    """
    match where:
        case None:
            return None
        case Share() | Count():
            part = where.number if isinstance(where, Count) else round(size * where.percent / 100)
            number = min(max(1, part), size)
            return np.sort(rng.choice(size, number, replace=False, shuffle=False))
        case Rows(first, last):
            if rows is None:
                return np.arange(min(first, size), min(last + 1, size), dtype=np.int64)
            return np.flatnonzero((rows >= first) & (rows <= last))
        case OnProcessor() | OnNode():
            if owned is None:
                raise TypeError("the rows of the processor are needed: owned=")
            return np.sort(owned) if rows is None else np.flatnonzero(np.isin(rows, owned))


def choose_processor(where: Where | None, processors: int, rng: np.random.Generator) -> int:
    """Return the named or a random processor; for halo messages, their receiver."""
    if isinstance(where, OnProcessor | OnNode):
        return where.index
    return int(rng.integers(processors))


_FAULT = re.compile(r"\s*(?P<name>[^\s()]+)\s*(?:\((?P<arguments>[^()]*)\))?(?P<clauses>.*)", re.S)
_CLAUSE = re.compile(r"\b(in|on|at|every)\b")
_SUBJECTS = {"in": "target", "on": "place", "at": "time", "every": "time"}


def parse_faults(value: str | Fault | Iterable[str | Fault] | None) -> tuple[Fault, ...]:
    """Return the faults of a flag ("...; ..."), or of a study file's string or list of strings."""
    if value is None:
        return ()
    if isinstance(value, Fault):
        return (value,)
    if isinstance(value, str):
        return tuple(parse_fault(text) for text in value.split(";"))
    if not isinstance(value, list | tuple):
        raise InputError(f"write a fault as text, or a list of them, not {value!r}")
    return tuple(fault for part in value for fault in parse_faults(part))


Faults = Annotated[
    tuple[Fault, ...],
    PlainValidator(parse_faults),
    PlainSerializer(lambda faults: [str(fault) for fault in faults]),
]
"""The field `fault` of a configuration."""


def parse_fault(text: str | Fault) -> Fault:
    """Read a fault such as "uniform(-100, 100) in x on 10% at random"::

        fault  = model ["in" ("x" | "halo" | "A" | "b")] ["on" where] [when]
        model  = name ["(" argument {"," argument} ")"]
        where  = percent "%" | number "components" | "rows" first "-" last | "row" index
               | ("processor" | "worker" | "server") index
        when   = "at" time | "at random" ["(" earliest "," latest ")"] | "every" mean

    The clauses after the model may come in any order. By default a data fault strikes all of x, a
    processor fault a random processor, once, at a random time; messages are lost from the start.

    Raises:
        InputError: one line that names the unknown model, target or clause and a valid one, or the
            value that cannot be.
    """
    if isinstance(text, Fault):
        return text
    if not isinstance(text, str):
        raise InputError(f"write a fault as text, not {text!r}")
    match = _FAULT.fullmatch(text)
    if match is None:
        raise InputError(
            f'cannot read the fault "{text}": write one such as uniform(-100, 100) at random'
        )
    try:
        if match["clauses"].lstrip().startswith("("):
            raise InputError('a ")" is missing')
        model = _read_model(match["name"], match["arguments"])
        return _with_clauses(model, match["clauses"])
    except InputError as error:
        raise InputError(f'fault "{text.strip()}": {error}') from None


def _read_model(name: str, inside: str | None) -> FaultModel:
    if name not in MODELS:
        error, valid = unknown("model", name, MODELS), ", ".join(MODELS)
        raise error if valid in str(error) else InputError(f"{error} (of {valid})")
    model = MODELS[name]
    names = list(model.parameters)
    usage = f"write {name}({', '.join(names)})" if names else f"write {name} alone"
    written: dict[str, str] = {}
    for argument in inside.split(",") if inside is not None and inside.strip() else []:
        key, equals, value = (part.strip() for part in argument.rpartition("="))
        if not equals:
            if len(written) >= len(names):
                raise InputError(f"{name}: too many arguments; {usage}")
            key = names[len(written)]
        if key not in names:
            raise InputError(f'{name}: no parameter "{key}"; {usage}')
        if key in written:
            raise InputError(f"{name}: {key} is given twice; {usage}")
        written[key] = value
    values = {}
    for field, key in zip(fields(cast(Any, model)), names, strict=True):
        if key in written:
            try:
                values[field.name] = model.parameters[key].parse(written[key])
            except InputError as error:
                raise InputError(f"{name}: {key}: {error}") from None
        elif field.default is MISSING:
            raise InputError(f"{name}: {key} is missing; {usage}")
    return model(**values)


def _with_clauses(model: FaultModel, text: str) -> Fault:
    before, *rest = _CLAUSE.split(text)
    if before.strip():
        raise InputError(f'unexpected "{before.strip()}"; after the model come in, on, at or every')
    target: Target = "x"
    where: Where | None = None
    when: When = At(0.0) if isinstance(model, Lose) else AtRandom()
    seen: set[str] = set()
    for word, value in zip(rest[::2], map(str.strip, rest[1::2]), strict=True):
        subject = _SUBJECTS[word]
        if subject in seen:
            raise InputError(f"the {subject} is given twice")
        seen.add(subject)
        if not value:
            raise InputError(f'nothing follows "{word}"')
        match word:
            case "in":
                target = cast(Target, value)  # which `Fault` checks
                if isinstance(model, ProcessorFault | Lose):
                    victim = "messages" if isinstance(model, Lose) else "a processor"
                    raise InputError(f'{model.name} strikes {victim}, not data: drop "in {target}"')
            case "on":
                where = _read_where(value)
            case _:
                when = _read_when(word, value)
    return Fault(model, target, where, when)


def _read_where(text: str) -> Where:
    if text.endswith("%"):
        return Share(parse_number(text[:-1], signed=True))
    if match := re.fullmatch(r"(-?\d{1,18})\s+components?", text):
        return Count(int(match[1]))
    if match := re.fullmatch(r"rows?\s+(\d{1,18})(?:\s*-\s*(\d{1,18}))?", text):
        return Rows(int(match[1]), int(match[2] or match[1]))
    if match := re.fullmatch(r"processor\s+(\d{1,18})", text):
        return OnProcessor(int(match[1]))
    if match := re.fullmatch(r"(worker|server)\s+(\d{1,18})", text):
        return OnNode(cast(Node, match[1]), int(match[2]))
    raise InputError(
        f'cannot read "on {text}": write on 10%, on 5 components, on rows 3-7, on processor 3 or '
        "on worker 3"
    )


def _read_when(word: str, text: str) -> When:
    if word == "every":
        return Every(read_duration(text))
    if text == "random":
        return AtRandom()
    if match := re.fullmatch(r"random\s*\(([^,]*),([^,]*)\)", text):
        return AtRandom(read_duration(match[1]), read_duration(match[2]))
    if text.startswith("random"):
        raise InputError(f'cannot read "at {text}": write at random or at random(0s, 100s)')
    return At(read_duration(text))
