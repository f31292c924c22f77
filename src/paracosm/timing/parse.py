"""Read a distribution from a string or from a study file.

    expression = name "(" [argument {"," argument}] ")" | value
    argument   = [name "="] expression
    value      = anything without ( ) , = or between double quotes

A value alone is a constant. A study file may write the call as a mapping instead:
`{lognormal: {median: 20ms, sigma: 0.1}}`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from paracosm.data_files import MOST_LEVELS, read_json
from paracosm.errors import InputError, shown, unknown
from paracosm.quantities import LONGEST, read_duration
from paracosm.timing.distribution import (
    DISTRIBUTION,
    DURATION,
    Distribution,
    Parameter,
    Scaled,
    Slowdown,
)
from paracosm.timing.families import FAMILIES, Constant, SampleDistribution

_CLASSES: dict[str, type[Distribution]] = FAMILIES | {"scaled": Scaled, "slowdown": Slowdown}
_TOKEN = re.compile(r'\s*(?:"(?P<quoted>[^"]*)"|(?P<mark>[(),=])|(?P<word>[^"(),=\s][^"(),=]*))')


def parse_distribution(
    value: str | float | Mapping[str, Any] | Distribution, quantity: Parameter = DURATION
) -> Distribution:
    """Return the distribution that `value` describes.

    It is of durations, or of another `quantity`, which then reads the values;
    `Distribution.written` writes it with the same one.

    `value` is a string ("lognormal(20ms, 0.1)", "gamma(mean=20ms, shape=4)", "20ms"), a number of
    seconds (a constant), a mapping from a study file, or a distribution, which is returned as is.

    Raises:
        InputError: one line that names the unknown distribution or parameter and the nearest valid
            one, the argument that is missing or too many, or the value that cannot be.
    """
    if isinstance(value, Distribution):
        return value
    if isinstance(value, str):
        value = _Reader(value).read()
    if isinstance(value, Mapping):
        return _build(_call_of(value), quantity)
    if isinstance(value, str):
        return _constant(value, quantity)
    return Constant(quantity.parse(value))


class _Call(NamedTuple):
    name: str
    positional: list[Any]
    named: dict[str, Any]

    def __repr__(self) -> str:
        return f"{self.name}(...)"


class _Reader:
    """Recursive descent over the tokens of one string."""

    def __init__(self, text: str) -> None:
        self.text = text
        if text.count("(") > MOST_LEVELS:
            raise self.error(f"more than {MOST_LEVELS} parentheses")
        self.tokens: list[tuple[str, str]] = []
        position, stripped = 0, text.rstrip()
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            if not match:
                raise self.error("a quote is not closed")
            kind = str(match.lastgroup)
            self.tokens.append((kind, match[kind].rstrip() if kind == "word" else match[kind]))
            position = match.end()
        self.next = 0

    def read(self) -> str | dict[str, _Call]:
        """Return a single value as it is, and a call in the form of a study file."""
        if not self.tokens:
            raise InputError("an empty string is not a distribution; write one such as 20ms")
        value = self.expression()
        if self.next < len(self.tokens):
            raise self.error(f'unexpected "{self.tokens[self.next][1]}" after its end')
        return value

    def expression(self) -> str | dict[str, _Call]:
        kind, text = self.tokens[self.next] if self.next < len(self.tokens) else ("mark", "the end")
        if kind == "mark":
            raise self.error(f'a value is missing before "{text}"')
        self.next += 1
        return {text: self.arguments(_Call(text, [], {}))} if self.skip("(") else text

    def arguments(self, call: _Call) -> _Call:
        while not self.skip(")"):
            if (call.positional or call.named) and not self.skip(","):
                raise self.error('a "," or ")" is missing')
            value = self.expression()
            if isinstance(value, str) and self.skip("="):
                if value in call.named:
                    raise self.error(f"{value} is given twice")
                call.named[value] = self.expression()
            elif call.named:
                raise self.error("an argument without a name follows one with a name")
            else:
                call.positional.append(value)
        return call

    def skip(self, mark: str) -> bool:
        is_mark = self.next < len(self.tokens) and self.tokens[self.next] == ("mark", mark)
        self.next += is_mark
        return is_mark

    def error(self, reason: str) -> InputError:
        return InputError(f'cannot read the distribution "{self.text}": {reason}')


def _constant(text: str, quantity: Parameter) -> Distribution:
    """Read a string without parentheses: a duration, or a name whose arguments are missing."""
    if re.match(r"(?!inf\b)[A-Za-z_]", text):
        return _build(_Call(text, [], {}), quantity)
    # Between parentheses numbers without a unit are in seconds; alone they are refused.
    return Constant(read_duration(text) if quantity is DURATION else quantity.parse(text))


def _call_of(mapping: Mapping[str, Any]) -> _Call:
    if len(mapping) != 1:
        keys = ", ".join(map(str, mapping)) or "none"
        raise InputError(f"a distribution is one name with its parameters, not the keys {keys}")
    name, arguments = next(iter(mapping.items()))
    if isinstance(arguments, _Call):
        return arguments
    if isinstance(arguments, Mapping):
        return _Call(name, [], dict(arguments))
    return _Call(name, list(arguments) if isinstance(arguments, list) else [arguments], {})


def _build(call: _Call, quantity: Parameter) -> Distribution:
    cls = _CLASSES.get(call.name)
    if cls is None:
        raise unknown("distribution", str(call.name), _CLASSES)
    if issubclass(cls, SampleDistribution):
        return _build_from_samples(cls, call, quantity)
    names = list(cls.parameters)
    usage = f"write {cls.name}({', '.join(names)})"
    if len(call.positional) > len(names):
        raise InputError(f"{cls.name}: {len(call.positional)} arguments are too many; {usage}")
    named = dict(zip(names, call.positional, strict=False))
    for name, value in call.named.items():
        if name in named:
            raise InputError(f"{cls.name}: {name} is given twice; {usage}")
        named[name] = value
    values = _parse_parameters(cls, named, quantity)
    for name in names:
        if name not in values:
            raise InputError(f"{cls.name}: {name} is missing; {usage}")
    return cls(*(values[name] for name in names))


def _build_from_samples(
    cls: type[SampleDistribution], call: _Call, quantity: Parameter
) -> Distribution:
    named = dict(call.named)
    series = named.pop("series", None)
    positional = list(call.positional)
    if "file" in named:
        positional.append(named.pop("file"))
    options = _parse_parameters(cls, named, quantity)
    if len(positional) == 1 and str(positional[0]).endswith(".json"):
        samples = load_durations(positional[0], series)
    elif series is not None:
        raise InputError(
            f"{cls.name}: a series is part of a file; write {cls.name}(file.json, ...)"
        )
    else:
        samples = tuple(_parse_one(cls, "a sample", quantity.parse, value) for value in positional)
    return cls(samples, **options)


def _parse_parameters(
    cls: type[Distribution], named: Mapping[str, Any], quantity: Parameter
) -> dict[str, Any]:
    values = {}
    for name, value in named.items():
        if name not in cls.parameters:
            raise unknown(f"parameter of {cls.name}", str(name), cls.parameters)
        kind = cls.parameters[name]
        parse = quantity.parse if kind is DURATION else kind.parse
        if kind is DISTRIBUTION:
            parse = partial(parse_distribution, quantity=quantity)
        values[name] = _parse_one(cls, name, parse, value)
    return values


def _parse_one(cls: type[Distribution], name: str, parse: Callable[[Any], Any], value: Any) -> Any:
    try:
        return parse(value)
    except InputError as error:
        raise InputError(f"{cls.name}: {name}: {error}") from None


_ONLY = "durations"  # the name of the series in a file that holds a plain list


def save_recording(path: str | Path, durations: Mapping[str, Sequence[float]]) -> None:
    """Write the series of `durations` (seconds), each under its name."""
    series = {name: [float(value) for value in values] for name, values in durations.items()}
    text = json.dumps({"clock": "perf_counter", "durations": series})
    Path(path).write_text(text, encoding="utf-8")


def load_recording(path: str | Path) -> dict[str, tuple[float, ...]]:
    """Return every series of durations (seconds) of the file at `path`, by name."""
    content = read_json(path, "recording")
    durations = content.get("durations") if isinstance(content, dict) else content
    if isinstance(durations, list):
        durations = {_ONLY: durations}
    if not isinstance(durations, dict):
        raise InputError(f'"{path}" is not a recording: it holds no "durations"')
    return {name: _checked(path, name, values) for name, values in durations.items()}


def load_durations(path: str | Path, series: str | None = None) -> tuple[float, ...]:
    """Return the named `series` of the file at `path`, or its only one."""
    recording = load_recording(path)
    if series is None:
        if len(recording) != 1:
            names = ", ".join(recording) or "none"
            raise InputError(f'name one series of "{path}", such as series=worker0; it has {names}')
        return next(iter(recording.values()))
    if series not in recording:
        raise unknown(f'series of "{path}"', series, recording)
    return recording[series]


def _checked(path: str | Path, name: str, values: Any) -> tuple[float, ...]:
    if not isinstance(values, list):
        raise InputError(f'"{path}": the series "{name}" is not a list of seconds')
    for position, value in enumerate(values):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 <= value <= LONGEST:
            raise InputError(
                f'"{path}": {name}[{position}] is {shown(value)}, not a duration in seconds, of '
                f"{LONGEST:.0e} at most"
            )
    return tuple(map(float, values))
