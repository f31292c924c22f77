"""Read faults from a string or from a study file.

    fault  = model ["in" ("x" | "halo" | "A" | "b")] ["on" where] [when]
    model  = name ["(" argument {"," argument} ")"]
    where  = percent "%" | number "components" | "rows" first "-" last | "row" index
           | "processor" index
    when   = "at" time | "at random" ["(" earliest "," latest ")"] | "every" mean

Several faults in one string are separated by ";". The clauses after the model may come in any
order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any, cast

from paracosm.errors import InputError, unknown
from paracosm.faults.bits import BitFlip, ExponentFlip, SignFlip
from paracosm.faults.fault import TARGETS, Fault, Target
from paracosm.faults.model import FaultModel, ProcessorFault
from paracosm.faults.perturbation import UniformPerturbation
from paracosm.faults.processor import Stale, Stop
from paracosm.faults.shuffle import Shuffle
from paracosm.faults.when import At, AtRandom, Every, When
from paracosm.faults.where import Count, OnProcessor, Rows, Share, Where
from paracosm.units import parse_duration, parse_number

__all__ = ["parse_fault", "parse_faults"]

_MODELS: dict[str, type[FaultModel]] = {
    model.name: model
    for model in (UniformPerturbation, BitFlip, SignFlip, ExponentFlip, Shuffle, Stop, Stale)
}
_FAULT = re.compile(r"\s*(?P<name>[^\s()]+)\s*(?:\((?P<arguments>[^()]*)\))?(?P<clauses>.*)", re.S)
_CLAUSE = re.compile(r"\b(in|on|at|every)\b")
_SUBJECTS = {"in": "target", "on": "place", "at": "time", "every": "time"}


def parse_faults(value: str | Fault | Iterable[str | Fault] | None) -> tuple[Fault, ...]:
    """Return the faults of a flag ("...; ..."), or of a study file's string or list of strings.

    Raises:
        InputError: as `parse_fault`.
    """
    if value is None:
        return ()
    if isinstance(value, Fault):
        return (value,)
    if isinstance(value, str):
        return tuple(parse_fault(text) for text in value.split(";"))
    if not isinstance(value, list | tuple):
        raise InputError(f"write a fault as text, or a list of them, not {value!r}")
    return tuple(fault for part in value for fault in parse_faults(part))


def parse_fault(text: str | Fault) -> Fault:
    """Return the fault that `text` describes: "uniform(-100, 100) in x on 10% at random".

    Without clauses a data fault strikes all of x, a processor fault a random processor, once, at a
    random time.

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
    if name not in _MODELS:
        error, valid = unknown("model", name, _MODELS), ", ".join(_MODELS)
        raise error if valid in str(error) else InputError(f"{error} (of {valid})")
    model = _MODELS[name]
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
            values[field.name] = _argument(model, key, written[key])
        elif field.default is MISSING:
            raise InputError(f"{name}: {key} is missing; {usage}")
    return model(**values)


def _argument(model: type[FaultModel], key: str, text: str) -> Any:
    try:
        return model.parameters[key].parse(text)
    except InputError as error:
        raise InputError(f"{model.name}: {key}: {error}") from None


def _with_clauses(model: FaultModel, text: str) -> Fault:
    before, *rest = _CLAUSE.split(text)
    if before.strip():
        raise InputError(f'unexpected "{before.strip()}"; after the model come in, on, at or every')
    target: Target = "x"
    where: Where | None = None
    when: When = AtRandom()
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
                target = _read_target(value)
                if isinstance(model, ProcessorFault):
                    raise InputError(
                        f'{model.name} strikes a processor, not data: drop "in {target}"'
                    )
            case "on":
                where = _read_where(value)
            case _:
                when = _read_when(word, value)
    return Fault(model, target, where, when)


def _read_target(text: str) -> Target:
    for target in TARGETS:
        if text == target:
            return target
    raise InputError(f'unknown target "{text}": choose from {", ".join(TARGETS)}')


def _read_where(text: str) -> Where:
    if text.endswith("%"):
        return Share(parse_number(text[:-1], signed=True))
    if match := re.fullmatch(r"(-?\d+)\s+components?", text):
        return Count(int(match[1]))
    if match := re.fullmatch(r"rows?\s+(\d+)(?:\s*-\s*(\d+))?", text):
        return Rows(int(match[1]), int(match[2] or match[1]))
    if match := re.fullmatch(r"processor\s+(\d+)", text):
        return OnProcessor(int(match[1]))
    raise InputError(
        f'cannot read "on {text}": write on 10%, on 5 components, on rows 3-7 or on processor 3'
    )


def _read_when(word: str, text: str) -> When:
    if word == "every":
        return Every(parse_duration(text))
    if text == "random":
        return AtRandom()
    if match := re.fullmatch(r"random\s*\(([^,]*),([^,]*)\)", text):
        return AtRandom(parse_duration(match[1]), parse_duration(match[2]))
    if text.startswith("random"):
        raise InputError(f'cannot read "at {text}": write at random or at random(0s, 100s)')
    return At(parse_duration(text))
