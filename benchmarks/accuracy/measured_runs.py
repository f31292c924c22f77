"""The measured runs that answers from the catalogue show, as `stacks.py --write` stores them.

A row has what it takes to predict it again, so that a test can say whether the stored predictions
are those of this version.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import TYPE_CHECKING, Any

from paracosm.files import replacing
from paracosm.graphs.transformer import Transformer
from paracosm.jobs.strategies.strategy import parse_strategy
from paracosm.prediction.measured_runs import FILE

if TYPE_CHECKING:
    from published_steps import Row

DIGITS = 4  # of a predicted time
TESTS = ("megatron_core_ci",)
"""Tables of a framework's own tests: models of 512 columns in deterministic mode."""
LEFT_OUT = ("source", "stack_name", "says_recompute")
"""What a row is not predicted by, and `software` says."""


def write_measured_runs(predicted: Mapping[Row, float]) -> None:
    """Write training steps with their predictions in seconds, in place of those of the package."""
    rows = [
        _written(row, seconds)
        for row, seconds in predicted.items()
        if row.task == "step" and row.source not in TESTS
    ]
    with replacing(FILE) as temporary, temporary.open("w", encoding="utf-8", newline="") as lines:
        table = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def read_measured_runs() -> list[tuple[Row, float]]:
    """Return the runs of the package, with the seconds that are stored as their predictions."""
    with FILE.open(encoding="utf-8", newline="") as lines:
        return [(_row(entry), float(entry["predicted"])) for entry in csv.DictReader(lines)]


def _written(row: Row, predicted: float) -> dict[str, Any]:
    return {
        **{
            field.name: getattr(row, field.name)
            for field in fields(row)
            if field.name not in LEFT_OUT
        },
        "seconds": f"{row.seconds:.6g}",
        "model": _sizes(row.model),
        "predicted": f"{predicted:.{DIGITS}g}",
        "device": row.device,
        "devices": row.strategy.ranks,
        "parameters": row.model.parameters,
        "sequence": row.model.sequence,
        "experts": row.model.experts,
    }


def _sizes(model: Transformer) -> str:
    """Return "layers=32 width=4096 ...": what is not as usual."""
    known = {field: getattr(model, field.name) for field in fields(model)}
    return " ".join(
        f"{field.name}={value}" for field, value in known.items() if value != field.default
    )


def _row(entry: Mapping[str, str]) -> Row:
    from published_steps import Row

    values = {
        field.name: _value(field, entry[field.name])
        for field in fields(Row)
        if field.name not in LEFT_OUT
    }
    sizes = dict(re.findall(r"(\w+)=(.*?)(?= \w+=|$)", entry["model"]))  # loss=in place
    values["model"] = Transformer(
        **{
            field.name: _value(field, sizes[field.name])
            for field in fields(Transformer)
            if field.name in sizes
        }
    )
    values["strategy"] = parse_strategy(entry["strategy"], int(entry["devices"]))
    return Row(**values)


def _value(field: Field[Any], text: str) -> Any:
    """Return a value as a field has it, by its type or that of its default."""
    kind = field.type if field.default is MISSING else type(field.default).__name__
    match getattr(kind, "__name__", kind):
        case "int":
            return int(text)
        case "float":
            return float(text)
        case "bool":
            return text == "True"
    return text
