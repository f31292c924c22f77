"""The arguments of `replay`."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, field_validator

from paracosm.cluster.changes import parse_change
from paracosm.configuration import Configuration
from paracosm.errors import InputError
from paracosm.files import check_name
from paracosm.units import parse_whole

MOST_STEPS = 100_000  # more are a typing error


def _several(value: Any) -> Any:
    return [value] if isinstance(value, str | Path) else value


def _steps(value: Any) -> Any:
    """Return the steps that "5", "5..9" or "5,7" names, or several numbers."""
    if value is None:
        return None
    if isinstance(value, str):
        numbers = _written(value)
    else:
        numbers = list(value) if isinstance(value, Iterable) else [value]
        if not numbers or not all(isinstance(number, Integral) for number in numbers):
            raise InputError("give numbers, or a text such as 5..9")
    first = int(numbers[0])
    if numbers != list(range(first, first + len(numbers))):
        raise InputError(f"write consecutive steps, such as 5..9, not {value}")
    return tuple(map(int, numbers))


def _written(text: str) -> list[int]:
    first, dots, last = text.partition("..")
    ends = [parse_whole(number.strip()) for number in ((first, last) if dots else text.split(","))]
    numbers = [number for number in ends if number is not None]
    if dots and len(numbers) == 2:
        numbers = list(range(numbers[0], min(numbers[1], numbers[0] + MOST_STEPS) + 1))
    if not numbers or None in ends:
        raise InputError(f'write 5 or 5..9, not "{text}"')
    if len(numbers) > MOST_STEPS:
        raise InputError(f"{text} has more than {MOST_STEPS:,} steps")
    return numbers


class ReplayConfig(Configuration):
    """A replay: the traces, what of them, and the changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    traces: Annotated[tuple[Path, ...], BeforeValidator(_several)] = Field(
        min_length=1, description="Kineto traces, one for each rank: .json or .json.gz"
    )
    what_if: Annotated[tuple[str, ...], BeforeValidator(_several)] = Field(
        (),
        description='a change, repeatable: "links: bandwidth 2x", "worker 3: compute 1.5x '
        'faster", "data loading: none", "kernel *gemm*: 2x slower"',
    )
    steps: Annotated[tuple[int, ...] | None, BeforeValidator(_steps)] = Field(
        None, description="of the profiler, such as 5..9 (all)"
    )
    alone: bool = Field(
        False,
        description="replay one rank of several; its collectives keep their recorded durations",
    )
    communication: Annotated[tuple[str, ...], BeforeValidator(_several)] = Field(
        (),
        description="kernels that communicate, beside those of known libraries; repeatable: "
        '"my_ring*", with a kind "my_ring*=all_reduce", or "ring_norm*=none" if they do not',
    )

    @field_validator("traces")
    @classmethod
    def _names(cls, traces: tuple[Path, ...]) -> tuple[Path, ...]:
        for trace in traces:
            check_name(trace)
        return traces

    def check(self) -> None:
        """Raise InputError for a change that cannot be read."""
        for text in self.what_if:
            parse_change(text)
