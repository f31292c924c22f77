"""A study: one question with its arguments and a seed, or a grid of them.

    seed: 0
    train:
      model: mlp
      algorithm: asgd
    over:                       # every combination; a list of such grids is their union
      workers: [1, 4, 16]
      seed: [0, 1, 2]

The command line builds the same mapping from its flags, so that whatever one can say the other can.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from paracosm.errors import InputError
from paracosm.training import TrainConfig
from paracosm.validation import validated

__all__ = ["Point", "Study", "load_study"]

Grid = dict[str, list[Any]]


class Study(BaseModel):
    """A study as it is written in a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = Field(0, ge=0, description="decides everything that is random")
    train: dict[str, Any] = Field(description="the arguments of `paracosm train`")
    over: Grid | list[Grid] = Field(
        default_factory=list, description="arguments to vary: a grid, or a list of grids"
    )

    def with_arguments(self, seed: int | None, arguments: Mapping[str, Any]) -> Study:
        """Return the study with other arguments, which take the place of its own."""
        return self.model_copy(
            update={
                "seed": self.seed if seed is None else seed,
                "train": {**self.train, **arguments},
            }
        )

    @property
    def is_sweep(self) -> bool:
        """Whether the study has a grid."""
        return bool(self.over)

    def points(self, where: str) -> list[Point]:
        """Return every run of the study, each once, in the order in which they are written.

        Args:
            where: what an error message names as the study's origin.

        Raises:
            InputError: for the first argument that is wrong.
        """
        points: dict[tuple[int, TrainConfig], Point] = {}
        for varied in self._combinations(where):
            seed = varied.get("seed", self.seed)
            if type(seed) is not int or seed < 0:
                raise InputError(f"{where}: over.seed: a seed is a whole number, got {seed!r}")
            arguments = {key: value for key, value in varied.items() if key != "seed"}
            config = validated(TrainConfig, {**self.train, **arguments}, where)
            point = Point(_name(varied), seed, config, varied)
            points.setdefault((seed, config), point)
        return list(points.values())

    def _combinations(self, where: str) -> list[dict[str, Any]]:
        grids = self.over if isinstance(self.over, list) else [self.over]
        for grid in grids:
            for key, values in grid.items():
                if not values:
                    raise InputError(f"{where}: over.{key}: give it at least one value")
        return [
            dict(zip(grid, values, strict=True))
            for grid in grids or [{}]
            for values in itertools.product(*grid.values())
        ]


@dataclass(frozen=True)
class Point:
    """One run of a study.

    Attributes:
        name: says what it varies, fit for a folder's name; empty when nothing is varied.
        seed: its seed.
        config: its arguments, checked and complete.
        varied: the arguments that the study varies, as written.
    """

    name: str
    seed: int
    config: TrainConfig
    varied: Mapping[str, Any]

    def as_study(self) -> dict[str, Any]:
        """Return the study of this one run, complete, as `study.yaml` keeps it."""
        return {"seed": self.seed, "train": self.config.model_dump()}


def load_study(path: Path) -> Study:
    """Read a study file.

    Raises:
        InputError: if it cannot be read, is not YAML, or has a key that no study has.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or "train" not in content:
        raise InputError(f"{path}: a study has the key train, with the arguments of the run")
    study = validated(Study, content, str(path))
    # What is varied may complete what is not, so arguments are checked at the study's points.
    study.points(str(path))
    return study


def _name(varied: Mapping[str, Any]) -> str:
    text = ",".join(f"{key}={value}" for key, value in varied.items())
    return re.sub(r"[^\w.,=()+-]", "", text)
