"""What runs differ in, and how it is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paracosm.studies import RunFolder

NAMES = ("algorithm", "model", "data", "method", "problem", "strategy")
"""Arguments whose values say what they are."""

FIRST = ("algorithm", "workers")


def asked_of(folder: RunFolder) -> dict[str, Any]:
    """Return the arguments of a run, the seed among them; those that are no scalars as texts."""
    given = {**arguments_of(folder)}
    given.setdefault("seed", folder.study.get("seed"))
    return {name: _scalar(value) for name, value in given.items() if value is not None}


def arguments_of(folder: RunFolder) -> Mapping[str, Any]:
    """Return the arguments of a run, without the name of its kind around them."""
    asked = folder.study.get(folder.kind or "")
    return asked if isinstance(asked, Mapping) else {}


def _scalar(value: Any) -> str | int | float:
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return value if isinstance(value, str | int | float) else str(value)


def differing(asked: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return of each run the arguments in which runs differ, of those that have them.

    Algorithm and number of workers come first, as they do in the name of a run.
    """
    values: dict[str, set[Any]] = {}
    for each in asked:
        for name, value in each.items():
            values.setdefault(name, set()).add(value)
    names = [name for name, found in values.items() if len(found) > 1]
    names.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    return [{name: each[name] for name in names if name in each} for each in asked]


def design_name(design: Iterable[tuple[str, Any]]) -> str:
    """Return "asgd, 16 workers, lr 0.1"."""
    return ", ".join(argument(name, value) for name, value in design)


def argument(name: str, value: Any) -> str:
    """Return "16 workers", "lr 0.1", "asgd"."""
    if name == "workers":
        return f"{value:,} worker{'' if value == 1 else 's'}"
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return str(value) if name in NAMES else f"{words} {value}"
