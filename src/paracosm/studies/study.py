"""A study: one question with its arguments and a seed, or a grid of them.

    seed: 0
    train:                      # or another kind of run, with its arguments
      model: mlp
      algorithm: asgd
    over:                       # every combination; a list of such grids is their union
      workers: [1, 4, 16]
      seed: [0, 1, 2]

The command line builds the same mapping from its flags, so that both can express the same studies.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from paracosm.cluster.hardware.catalogue import hardware_names
from paracosm.cluster.worker_counts import parse_workers
from paracosm.data_files import MOST_LEVELS, read_yaml
from paracosm.errors import InputError, shown, unknown
from paracosm.expression import split_list
from paracosm.price import check_prices, parse_prices
from paracosm.studies.kinds import KINDS
from paracosm.units import WIDEST, is_too_wide
from paracosm.validation import validated

Grid = dict[str, list[Any]]

MOST_RUNS = 1_000_000
"""Of one study."""

NAMES = ("hardware", "stack")
"""Arguments whose lists compare what could be bought or installed."""

_COUNTS = ("workers", "processors", "world_size")
_LISTED = ("algorithm", "lr", *NAMES)


class Study(BaseModel):
    """A study as written in a file: one kind of run with its arguments."""

    model_config = ConfigDict(extra="allow", frozen=True)

    __pydantic_extra__: dict[str, dict[str, Any]]  # the key of a kind, with its arguments

    seed: int = Field(0, ge=0, le=WIDEST, description="seed of all random streams")
    over: Grid | list[Grid] = Field(
        default_factory=list, description="arguments to vary: a grid, or a list of grids"
    )

    def with_arguments(self, seed: int | None, arguments: Mapping[str, Any]) -> Study:
        """Return the study with some arguments overridden.

        Raises:
            InputError: one that the study varies, or what is no seed.
        """
        overridden = [*arguments, *([] if seed is None else ["seed"])]
        for key in overridden:
            if any(key in grid for grid in self._over()):
                raise InputError(
                    f"{key} is varied by the study (over.{key}): leave out "
                    f"--{key.replace('_', '-')}, or change the study"
                )
        content = {key: value for key, value in self if value is not None}
        content |= {} if seed is None else {"seed": seed}
        return validated(Study, {**content, self.kind: {**self.arguments, **arguments}}, self.kind)

    @property
    def lists(self) -> Grid:
        """The lists of values of which each run takes one: `1,2,4..64` workers, `asgd, ssgd`,
        `h100-sxm, h200-sxm`.

        That is a sweep in every kind of run that does not itself compare such values.

        Raises:
            InputError: a list that cannot be read.
        """
        model = KINDS[self.kind].model(self.arguments)
        synonyms: dict[str, str] = getattr(model, "SYNONYMS", {})
        lists: Grid = {}
        for key, value in self.arguments.items():
            name = synonyms.get(key, key)
            field = model.model_fields.get(name)
            if field is None or get_origin(field.annotation) is tuple:
                continue
            if name in _LISTED:
                parts = split_list(value) if isinstance(value, str) else value
                if name == "hardware" and isinstance(value, str) and not _names_hardware(parts):
                    continue  # commas of a description of timed hardware
                if isinstance(parts, list | tuple) and len(parts) > 1:
                    lists[key] = list(parts)
            if name not in _COUNTS or not _is_one_number(field.annotation):
                continue
            if isinstance(value, list) or (isinstance(value, str) and re.search(r",|\.\.", value)):
                try:
                    numbers = parse_workers(value)
                except InputError as error:
                    raise InputError(f"{key}: {error}") from None
                if len(numbers) > 1:
                    lists[key] = list(numbers)
        return lists

    @property
    def kind(self) -> str:
        """The kind of run: "train", "emulate", ..."""
        return next(kind for kind in KINDS if kind in (self.model_extra or {}))

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of its runs."""
        arguments: dict[str, Any] = getattr(self, self.kind)
        return arguments

    def as_written(self) -> dict[str, Any]:
        """Return the content of this study's file."""
        return {"seed": self.seed, self.kind: self.arguments, "over": self.over}

    @model_validator(mode="after")
    def _one_kind(self) -> Study:
        arguments = self.model_extra or {}
        if len(arguments) != 1:
            got = f", got {' and '.join(arguments)}" if arguments else ""
            raise ValueError(
                f"a study has one of the keys {', '.join(KINDS)}, with the arguments of the "
                f"run{got}"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _flat(cls, content: Any) -> Any:
        level = [content]
        for _ in range(MOST_LEVELS):
            level = list({id(part): part for value in level for part in _parts(value)}.values())
        if level:  # or a list that contains itself
            raise ValueError(f"nested deeper than {MOST_LEVELS} levels")
        keys = [*KINDS, *cls.model_fields]
        for key in content if isinstance(content, Mapping) else ():
            if isinstance(key, str) and key not in keys:
                raise unknown("key", key, keys)
        return _plain(content)

    @field_validator("over", mode="before")
    @classmethod
    def _lists(cls, over: Any) -> Any:
        grids = over if isinstance(over, list) else [over]
        for grid in grids:
            if not isinstance(grid, Mapping):
                raise ValueError("write arguments and lists of their values, as in workers: [1, 4]")
            for key, values in grid.items():
                if not isinstance(values, list):
                    value = "..." if isinstance(values, Mapping) or values is None else values
                    raise ValueError(f"{key} takes a list of values: write {key}: [{value}]")
        return over

    @property
    def is_comparison(self) -> bool:
        """Whether each run takes one of a list of hardware or software, and nothing else varies."""
        return not self.over and bool(self.lists) and self.lists.keys() <= {*NAMES}

    @property
    def is_sweep(self) -> bool:
        """Whether the study has a grid, or a list of values."""
        return bool(self.over or self.lists)

    def points(self, where: str) -> list[Point]:
        """Return each run of the study once, in the order of the file.

        Args:
            where: the study's origin, for error messages.

        Raises:
            InputError: the first invalid argument.
        """
        kind = KINDS[self.kind]
        points: dict[tuple[int, str, tuple[int, ...]], Point] = {}
        names: set[str] = set()
        combinations = self._combinations(where)
        field = kind.model(self.arguments).model_fields.get("hardware")
        hardware = list[str]()
        if field is not None and get_origin(field.annotation) is not tuple:  # of a run, one
            given = ({**self.arguments, **varied}.get("hardware") for varied, _ in combinations)
            hardware = list(dict.fromkeys(name for name in given if isinstance(name, str)))
        for varied, name in combinations:
            seed = varied.get("seed", self.seed)
            if type(seed) is not int or not 0 <= seed <= WIDEST:
                raise InputError(
                    f"{where}: over.seed: a seed is a whole number, got {seed!r}: 0 to {WIDEST}"
                )
            arguments = {key: value for key, value in varied.items() if key != "seed"}
            place = f"{where}: {name}" if name else where
            try:
                complete = _priced({**self.arguments, **arguments}, hardware)
            except InputError as error:
                raise InputError(f"{where}: {error}") from None
            config = kind.configured(complete, place)
            try:
                identity = (seed, config.model_dump_json(), _objects(varied.values()))
            except ValueError:  # of pydantic_core, which Paracosm does not import itself
                raise InputError(f"{place}: a text has half a surrogate pair") from None
            if identity not in points:
                points[identity] = Point(self.kind, _unique(name, names), seed, config, varied)
        return list(points.values())

    def _grids(self) -> list[Grid]:
        lists = self.lists
        return [{**lists, **grid} for grid in self._over() or [{}]]

    def _over(self) -> list[Grid]:
        return self.over if isinstance(self.over, list) else [self.over]

    def _combinations(self, where: str) -> list[tuple[dict[str, Any], str]]:
        try:
            grids = self._grids()
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        for grid in grids:
            for key, values in grid.items():
                if not values:
                    raise InputError(f"{where}: over.{key}: give it at least one value")
        if not self.is_sweep:
            return [({}, "")]
        runs = sum(math.prod(map(len, grid.values())) for grid in grids)
        if runs > MOST_RUNS:
            raise InputError(f"{where}: over: {runs:,} runs; a study has at most {MOST_RUNS:,}")
        return [
            (
                {key: value for key, (_, value) in zip(grid, choice, strict=True)},
                _name(grid, choice),
            )
            for grid in grids
            for choice in itertools.product(*(enumerate(v, start=1) for v in grid.values()))
        ]


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _plain(value: Any, path: str = "") -> Any:
    """Return a value with Python's numbers and lists in place of NumPy's; from Python, a whole
    number may have any number of digits.
    """
    if isinstance(value, Mapping):
        return {key: _plain(part, f"{path}{key}: ") for key, part in value.items()}
    if isinstance(value, list | tuple):
        plain = (_plain(part, path) for part in value)
        return type(value)(plain) if type(value) in (list, tuple) else value
    if isinstance(value, int) and is_too_wide(value):
        raise ValueError(f"{path}{shown(value)} is larger than 64 bits hold ({WIDEST})")
    if isinstance(value, np.generic | np.ndarray):
        if isinstance(value, np.ma.MaskedArray):
            raise ValueError("a masked array is no argument: give numbers")
        if value.dtype.kind in "mM":  # whose numbers count a unit, which would be lost
            raise ValueError('a time span of NumPy is no argument: give seconds, or "20ms"')
        return value.tolist()
    return value


def _is_one_number(annotation: Any) -> bool:
    """Whether a field takes a whole number, not a tuple of them."""
    parts = () if get_origin(annotation) is tuple else get_args(annotation)
    return annotation is int or any(map(_is_one_number, parts))


def _names_hardware(parts: Sequence[str]) -> bool:
    """Whether one of these is a name of the catalogue, or a datasheet file."""
    files = any(part.endswith((".yaml", ".yml")) for part in parts)
    return files or (len(parts) > 1 and not {*hardware_names()}.isdisjoint(parts))


def _priced(arguments: dict[str, Any], hardware: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of a run with the price of its own hardware.

    Raises:
        InputError: prices by hardware that are not those of what is compared.
    """
    price, own = arguments.get("price"), arguments.get("hardware")
    if price is None or not isinstance(own, str) or own not in hardware:
        return arguments
    if not (":" in str(price) or len(hardware) > 1):
        return arguments
    try:
        prices = parse_prices(price)
    except InputError as error:
        raise InputError(f"price: {error}") from None
    check_prices(prices, hardware)
    return {**arguments, "price": str(prices[own])}


@dataclass(frozen=True)
class Point:
    """One run of a study."""

    kind: str  # kind of run: "train", "relax", "predict", "emulate", "plan"
    name: str  # names the varied arguments, fit for a folder; empty when nothing is varied
    seed: int  # its seed
    config: Any  # its arguments, checked and complete: a TrainConfig, ..., a PlanConfig
    varied: Mapping[str, Any]  # the arguments that the study varies, as written

    def as_study(self) -> dict[str, Any]:
        """Return the complete study of this run, as in `study.yaml`.

        Arguments without effect on the run are left out, since a study refuses them.
        """
        arguments = self.config.model_dump(exclude=self.config.without_effect())
        return {"seed": self.seed, self.kind: arguments}

    def defaults(self) -> dict[str, str]:
        """Return the arguments at their defaults that the answer may depend on, as texts.

        They are the same whether somebody has written them out, so that a run's own study gives its
        summary again. What has no value by default is not used, or is found from others, which the
        summary says.
        """
        config = self.config
        unused = {*config.without_effect(), *OF_NO_ANSWER}
        names = [
            name
            for name, about in type(config).model_fields.items()
            if name not in unused and getattr(config, name) == about.get_default()
        ]
        values = config.model_dump(mode="json", include=set(names))
        return {
            name: "; ".join(map(_text, value)) if isinstance(value, list) else _text(value)
            for name in names
            if (value := values[name]) is not None and value not in ([], {}, "")
        }


def is_same_study(one: Any, other: Any) -> bool:
    """Whether two complete studies ask for the same; None says as little as no argument.

    Study files of version 0.1 have None for the arguments of other forms.
    """
    return bool(_without_none(one) == _without_none(other))


def _without_none(study: Any) -> Any:
    if not isinstance(study, Mapping):
        return study
    return {key: _without_none(value) for key, value in study.items() if value is not None}


OF_NO_ANSWER = frozenset(
    {
        *("db", "data_dir", "output", "timeline", "timeline_ranks", "port", "keep_going"),
        *("lookahead", "loss_limit", "evaluate_every", "evaluate_examples", "alone"),
        *("limit", "storage"),
    }
)
"""Arguments that say where things are, what is shown, and when a run gives up."""


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def load_study(path: Path) -> Study:
    """Read a study file; `Study.points` checks the arguments of its runs.

    Raises:
        InputError: it cannot be read, is not YAML, or has an unknown key.
    """
    content = read_yaml(path, "study file")
    if not isinstance(content, dict) or not content.keys() & KINDS.keys():
        raise InputError(
            f"{path}: a study has one of the keys {', '.join(KINDS)}, with the arguments of the run"
        )
    return validated(Study, content, str(path))


def _name(keys: Iterable[str], choice: Iterable[tuple[int, Any]]) -> str:
    """Name a point by its varied arguments, fit for a folder; `choice` has position and value."""
    parts = [
        f"{key}={_word(value) or position}"
        for key, (position, value) in zip(keys, choice, strict=True)
    ]
    return ",".join(parts)[:_LONGEST] or "base"


_LONGEST = 200  # characters of a name; file systems take 255 bytes


def _objects(values: Iterable[Any]) -> tuple[int, ...]:
    """Return which objects there are that a text does not tell apart: functions, problems, ..."""
    plain = (str, int, float, list, tuple, Mapping, Path, type(None))
    return tuple(id(value) for value in values if not isinstance(value, plain))


def _word(value: Any) -> str:
    if isinstance(value, Mapping | list):
        return ""
    word = re.sub(r"[^\w.,=()+-]", "", str(value))
    return word if len(word) <= 60 else ""


def _unique(name: str, taken: set[str]) -> str:
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    unique = next(n for n in itertools.chain([name], numbered) if n not in taken)
    taken.add(unique)
    return unique
