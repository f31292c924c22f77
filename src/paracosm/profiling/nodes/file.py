"""The calibration file (YAML): `docs/calibration.md` describes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from paracosm.errors import InputError
from paracosm.profiling.nodes.calibration import QUANTITIES, Found, NodeCalibration
from paracosm.units import (
    format_bandwidth,
    format_duration,
    format_size,
    parse_bandwidth,
    parse_duration,
    parse_size,
)
from paracosm.validation import validated

__all__ = ["load_calibration", "save_calibration"]

_PER_BYTE = "/B"


def _parse_seconds_a_byte(value: Any) -> float:
    """Read "0.3ns/B", or a number of seconds a byte.

    Raises:
        InputError: it is none.
    """
    if isinstance(value, str) and value.strip().endswith(_PER_BYTE):
        return parse_duration(value.strip().removesuffix(_PER_BYTE))
    try:
        return parse_duration(value) if not isinstance(value, str) else float(value)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f'seconds a byte are written as "0.3ns/B", not "{value}"') from None


Bandwidth = Annotated[float, BeforeValidator(parse_bandwidth), Field(gt=0, allow_inf_nan=False)]
Duration = Annotated[float, BeforeValidator(parse_duration), Field(allow_inf_nan=False)]
SecondsAByte = Annotated[
    float, BeforeValidator(_parse_seconds_a_byte), Field(ge=0, allow_inf_nan=False)
]
Size = Annotated[float, BeforeValidator(parse_size), Field(allow_inf_nan=False)]
Window = Annotated[float, BeforeValidator(parse_size), Field(gt=0)]


class _Found(BaseModel):
    model_config = ConfigDict(extra="forbid")
    how: Literal["measured", "estimated"]
    by: str
    when: str
    spread: float | None = None
    loopback: bool = False


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    bandwidth_out: Bandwidth | None = None
    bandwidth_in: Bandwidth | None = None
    duplex: float | None = Field(None, gt=0, allow_inf_nan=False)
    round_trip: Duration | None = None
    uneven: float | None = Field(None, ge=0, allow_inf_nan=False)
    burst: Size | None = None
    alpha: SecondsAByte | None = None
    beta: Duration | None = None
    window: Window | None = None
    found: dict[str, _Found] = {}
    environment: dict[str, str] = {}


def load_calibration(path: str | Path) -> NodeCalibration:
    """Return the calibration that the YAML file at `path` holds.

    Raises:
        InputError: there is no such file, or it is none; the key that is wrong is named, and for
            an unknown one the nearest.
    """
    try:
        mapping = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f'no calibration at "{path}": paracosm calibrate --out {path} makes one'
        ) from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f'cannot read the calibration "{path}": {reason}') from None
    if not isinstance(mapping, Mapping):
        raise InputError(f"{path}: a calibration has keys and values, such as alpha: 0.3ns/B")
    file = validated(_File, mapping, str(path))
    for name in file.found:
        if name not in QUANTITIES or getattr(file, name) is None:
            raise InputError(f"{path}: found.{name}: there is no {name} that was found")
    return NodeCalibration(
        **{name: getattr(file, name) for name in QUANTITIES},
        found={
            name: Found(each.how, each.by, each.when, each.spread, each.loopback)
            for name, each in file.found.items()
        },
        environment=file.environment,
    )


def save_calibration(calibration: NodeCalibration, path: str | Path) -> None:
    """Write a calibration to a YAML file, from which it is read back equal.

    Raises:
        InputError: the file cannot be written.
    """
    mapping: dict[str, Any] = {
        name: _WRITTEN[name](value)
        for name in QUANTITIES
        if (value := getattr(calibration, name)) is not None
    }
    if calibration.found:
        mapping["found"] = {
            name: {
                "how": found.how,
                "by": found.by,
                "when": found.when,
                **({} if found.spread is None else {"spread": found.spread}),
                **({"loopback": True} if found.loopback else {}),
            }
            for name, found in calibration.found.items()
        }
    if calibration.environment:
        mapping["environment"] = dict(calibration.environment)
    try:
        Path(path).write_text(yaml.safe_dump(mapping, sort_keys=False), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def _bandwidth(value: float) -> str:
    return format_bandwidth(value, exact=True)


def _duration(value: float) -> str:
    return format_duration(value, exact=True)


def _size(value: float) -> str:
    return format_size(value, exact=True)


_WRITTEN: Mapping[str, Callable[[float], Any]] = {
    "bandwidth_out": _bandwidth,
    "bandwidth_in": _bandwidth,
    "duplex": float,
    "round_trip": _duration,
    "uneven": float,
    "burst": _size,
    "alpha": lambda value: _duration(value) + _PER_BYTE,
    "beta": _duration,
    "window": _size,
}
