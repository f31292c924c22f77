"""The flags of every verb that captures a model, worded as those of `paracosm predict`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from paracosm.errors import InputError
from paracosm.graphs.capture.options import parse_shape
from paracosm.prediction.config import PredictConfig
from paracosm.units import parse_duration

Value = TypeVar("Value")

BATCH: int = PredictConfig.model_fields["batch"].default
DATABASE: Path = PredictConfig.model_fields["db"].default


def _flag(name: str, *flags: str, **settings: Any) -> Any:
    return typer.Option(*flags, help=PredictConfig.model_fields[name].description, **settings)


def _switch(name: str) -> Any:
    return _flag(name, f"--{name}/--no-{name}")


Batch = Annotated[int, _flag("batch")]
Shape = Annotated[str | None, _flag("shape")]
Classes = Annotated[int | None, _flag("classes")]
Dtype = Annotated[str, _flag("dtype")]
Optimizer = Annotated[str, _flag("optimizer")]
Foreach = Annotated[bool, _switch("foreach")]
Dropout = Annotated[bool, _switch("dropout")]
Train = Annotated[bool, _switch("train")]

# Of the verbs that time ops, too.
Database = Annotated[Path, typer.Option(help="profile database to add to; made if it is not there")]
Device = Annotated[str, typer.Option(help="cpu, or cuda where PyTorch has it")]
Threads = Annotated[int, typer.Option(min=1, help="threads of one op, on the CPU")]
Precision = Annotated[float, typer.Option(help="relative standard error at which an op is done")]
Budget = Annotated[str, typer.Option(help="time for it all, such as 2min")]


def sizes(text: str | None) -> tuple[int, ...] | None:
    """Read --shape, "3x32x32"."""
    return None if text is None else named("--shape", parse_shape, text)


def duration(flag: str, text: str) -> float:
    """Return the seconds that a flag says."""
    return named(flag, parse_duration, text)


def named(flag: str, parse: Callable[[str], Value], text: str) -> Value:
    """Return what `parse` makes of a flag's text; an error names the flag."""
    try:
        return parse(text)
    except InputError as error:
        raise InputError(f"{flag}: {error}") from None
