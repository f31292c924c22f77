"""The packed form of measured TensorFlow jobs: `profile.json.gz`.

One gzipped JSON: `columns` describes each op (name, type, res, ps, size, deps), `types` and
`resources` are what their indices mean, `start_us[step][op]` and `dur_us[step][op]` are
microseconds from the step's begin, `step_start_us` and `step_wall_us` begin and length of steps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.errors import InputError, unknown
from paracosm.graphs.contents import contents
from paracosm.profiling.jobs.check import check_job_profile
from paracosm.profiling.jobs.dependencies import dependencies_of
from paracosm.profiling.jobs.job_profile import RESOURCES, JobProfile

__all__ = ["is_packed", "load_packed"]

_COLUMNS = ("name", "type", "res", "ps", "size", "deps")
ABSENT = -1e-6
"""Seconds: begin and length of an op that was not traced in a step."""

_SAME = {"ps": "server"}
"""What other names of resources mean."""


def is_packed(path: Path) -> bool:
    """Return whether a file looks like one of this form."""
    try:
        begin = contents(path, 4096).lstrip()
    except InputError:
        return path.name.endswith(".json.gz") and path.is_file()
    return begin.startswith(b"{") and b'"columns"' in begin


def load_packed(path: Path) -> JobProfile:
    """Return the profile in a packed file.

    Raises:
        InputError: damaged, a field is missing or has the wrong length; it is named.
    """
    where = str(path)
    packed = contents(path)
    try:
        found = json.loads(packed)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: JSON that is cut off or damaged: {error}") from None
    columns = _field(found, "columns", dict, where)
    lists = {name: _field(columns, name, list, f"{where}: columns") for name in _COLUMNS}
    ops = len(lists["name"])
    for name, values in lists.items():
        if len(values) != ops:
            raise InputError(f"{where}: columns.{name} has {len(values)} values for {ops} ops")
    for name in ("type", "res", "ps", "size"):
        for op, value in enumerate(lists[name]):
            if not isinstance(value, int) or value < 0:
                raise InputError(
                    f"{where}: columns.{name}[{op}] is {str(value)[:40]}, no number >= 0"
                )
    types = _field(found, "types", list, where)
    steps = len(_field(found, "step_start_us", list, where))
    for key in ("step_wall_us", "start_us", "dur_us"):
        if len(_field(found, key, list, where)) != steps:
            raise InputError(f"{where}: {key} has {len(found[key])} steps, step_start_us {steps}")
    begin = _times(found, "start_us", ops, where)
    begin[(begin == ABSENT) & (_times(found, "dur_us", ops, where) == ABSENT)] = np.nan
    resources = _codes(_field(found, "resources", list, where), where)
    try:
        first, dependencies = dependencies_of(lists["deps"])
        profile = JobProfile(
            names=tuple(map(str, lists["name"])),
            kinds=tuple(str(types[index]) for index in lists["type"]),
            resource=resources[lists["res"]],
            server=np.array(lists["ps"], np.int64),
            size=np.array(lists["size"], np.int64),
            first_dependency=first,
            dependencies=dependencies,
            begin=begin,
            end=begin + _times(found, "dur_us", ops, where),
            step_begin=_walls(found, "step_start_us", where),
            step_end=_walls(found, "step_start_us", where) + _walls(found, "step_wall_us", where),
            provenance={"source": "TensorFlow step statistics", "file": path.name},
        )
    except (IndexError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where}: columns: {error}") from None
    return check_job_profile(profile, where)


def _codes(resources: list[Any], where: str) -> np.ndarray[Any, np.dtype[np.int8]]:
    """Return our index for each of the file's resources."""
    codes = []
    for given in resources:
        name = _SAME.get(given, given)
        if name not in RESOURCES:
            raise InputError(f"{where}: resources: {unknown('resource', str(given), RESOURCES)}")
        codes.append(RESOURCES.index(name))
    return np.array(codes, np.int8)


def _times(found: Any, key: str, ops: int, where: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return seconds, (steps, ops); NaN where the file has null."""
    rows = _field(found, key, list, where)
    for step, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != ops:
            length = len(row) if isinstance(row, list) else "no"
            raise InputError(f"{where}: {key}[{step}] has {length} values for {ops} ops")
        for op, value in enumerate(row):
            if not isinstance(value, int | float | None):
                raise InputError(f"{where}: {key}[{step}][{op}] is no number: {str(value)[:40]}")
    return np.array(rows, float) / 1e6


def _walls(found: Any, key: str, where: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(_field(found, key, list, where), float) / 1e6


def _field(found: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(found, dict) or not isinstance(found.get(key), kind):
        word = "mapping" if kind is dict else "list"
        raise InputError(f'{where}: "{key}" is missing, or no {word}')
    return found[key]
