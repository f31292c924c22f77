"""What is taken for values that nobody can know, since nothing is computed: rules with names.

`--assume "SUBJECT: VALUE"` changes those that move an answer:

    experts: zipf(1.2)     how unevenly a router loads experts: a routing as `predict` has it,
                           uniform, zipf(1.2), dirichlet(0.5), or measured loads, 40+30+20+10
    masks: density 0.5     the share of the elements of a mask that are true; 1 by default
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from paracosm.errors import InputError, unknown
from paracosm.graphs.transformer.share import expert_loads
from paracosm.units import parse_number

LOSS = "losses of 1"
NUMBER = "numbers of 1"
FLAG = "truth values false"
FINITE = "checks of numbers without overflow or NaN"
CLASSES = "predicted classes spread evenly"
DIFFERENT = "sets of numbers without repetition"
CAUSAL = "masks of flex attention causal"

_SINGULAR = {
    "losses": "loss",
    "numbers": "number",
    "truth values": "truth value",
    "checks": "check",
    "predicted classes": "prediction of classes",
    "sets": "set",
    "masks": "mask",
    "expert splits": "expert split",
}

BALANCED = "uniform"
_EXAMPLES = '"experts: zipf(1.2)", "masks: density 0.5"'


@dataclass(frozen=True, slots=True)
class Assumption:
    """One of `--assume`."""

    subject: str  # "experts" or "masks"
    value: str  # a routing, or "density 0.5"

    def __str__(self) -> str:
        return f"{self.subject}: {self.value}"


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What holds of experts and masks."""

    routing: str = BALANCED  # of tokens to experts
    density: float = 1.0  # of masks

    @property
    def experts(self) -> str:
        """The name of the rule by which experts are loaded."""
        how = "balanced" if self.routing == BALANCED else f"by {self.routing}"
        return f"expert splits {how}"

    @property
    def masks(self) -> str:
        """The name of the rule by which masks are filled."""
        return "masks true" if self.density == 1 else f"masks of density {self.density:g}"


def parse_assumption(text: str) -> Assumption:
    """Return what a text of `--assume` says; an InputError names what can be assumed."""
    subject, colon, value = (part.strip() for part in str(text).partition(":"))
    try:
        if not colon or not value:
            raise InputError(f"write SUBJECT: VALUE, as in {_EXAMPLES}")
        if subject not in ("experts", "masks"):
            raise unknown("subject", subject, ("experts", "masks"))
        assumption = Assumption(subject, " ".join(value.split()))
        _applied(Assumptions(), assumption)
    except InputError as error:
        raise InputError(f'assume "{text}": {error}') from None
    return assumption


def assumptions_of(given: Iterable[Assumption]) -> Assumptions:
    """Return what holds with some of `--assume`; a later one takes the place of an earlier one."""
    whole = Assumptions()
    for assumption in given:
        whole = _applied(whole, assumption)
    return whole


def _applied(whole: Assumptions, assumption: Assumption) -> Assumptions:
    if assumption.subject == "experts":
        routing = assumption.value
        expert_loads(routing, routing.count("+") + 1, 0, 0)
        return Assumptions(routing, whole.density)
    word, _, number = assumption.value.partition(" ")
    density = parse_number(number) if word == "density" and number else -1.0
    if not 0 <= density <= 1:
        raise InputError("write masks: density 0.5, a share from 0 to 1 of elements that are true")
    return Assumptions(whole.routing, density)


def without_effect(given: Sequence[Assumption], assumed: Iterable[str]) -> Assumption | None:
    """Return one of `--assume` that nothing of a recording follows, by the names of its rules."""
    rules, names = assumptions_of(given), set(assumed)
    used = {"experts": rules.experts in names, "masks": rules.masks in names}
    return next((assumption for assumption in given if not used[assumption.subject]), None)


def assumed_in_words(assumed: Iterable[Mapping[str, Any]]) -> str:
    """Return what was assumed, by rule: "2 losses of 1, 64 expert splits balanced"."""
    counts: dict[str, int] = {}
    for entry in assumed:
        counts[entry["text"]] = counts.get(entry["text"], 0) + entry["count"]
    return ", ".join(_counted(count, text) for text, count in counts.items())


def _counted(count: int, text: str) -> str:
    if count == 1:
        for plural, singular in _SINGULAR.items():
            if text.startswith(plural):
                return f"1 {singular}{text.removeprefix(plural)}"
    return f"{count:,} {text}"


def _read(value: Any) -> Any:
    parts = (value,) if isinstance(value, str | Assumption) else value
    if not isinstance(parts, list | tuple):
        return parts
    return tuple(p if isinstance(p, Assumption) else parse_assumption(p) for p in parts)


AssumptionField = Annotated[
    tuple[Assumption, ...],
    BeforeValidator(_read),
    PlainSerializer(lambda assumptions: [str(assumption) for assumption in assumptions]),
]
"""The field `assume` of a configuration."""
