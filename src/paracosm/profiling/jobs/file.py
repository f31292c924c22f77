"""Job profiles on disk: one Parquet file, or the packed JSON of measured TensorFlow jobs.

The Parquet file has a row for every op of every step: step, op (an index), resource, server, begin,
end (seconds from the step's begin) and bytes. The rest (names, dependencies, begins and ends of
steps, provenance) is in the file's metadata as JSON, under the key `METADATA`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from paracosm.columns import label_column, number_column, numbers_in
from paracosm.data_files import parse_json
from paracosm.errors import InputError, unknown
from paracosm.files import read_bytes, sealing
from paracosm.profiling.jobs.job_profile import (
    RESOURCES,
    SERVER,
    JobProfile,
    ProfiledOp,
    check_job_profile,
    job_profile_of,
)
from paracosm.tables import other_file, read_parquet

if TYPE_CHECKING:
    import pyarrow

Number = TypeVar("Number", int, float)

METADATA = b"paracosm job profile"
VERSION = 1

_NUMBERS = {
    "step": "int32", "op": "int32", "server": "int32", "begin": "float64", "end": "float64",
    "bytes": "int64",
}  # fmt: skip
_PARQUET = b"PAR1"


def save_job_profile(profile: JobProfile, path: str | Path) -> None:
    """Write a profile to a Parquet file.

    Raises:
        InputError: the file cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    steps, ops = profile.steps, profile.ops
    columns = {
        "step": number_column(np.repeat(np.arange(steps, dtype=np.int32), ops)),
        "op": number_column(np.tile(np.arange(ops, dtype=np.int32), steps)),
        "resource": label_column(np.tile(profile.resource, steps), RESOURCES),
        "server": number_column(np.tile(profile.server.astype(np.int32), steps)),
        "begin": number_column(profile.begin.ravel()),
        "end": number_column(profile.end.ravel()),
        "bytes": number_column(np.tile(profile.size, steps)),
    }
    metadata = {
        "version": VERSION,
        "ops": list(profile.names),
        "kinds": list(profile.kinds),
        "first_dependency": profile.first_dependency.tolist(),
        "dependencies": profile.dependencies.tolist(),
        "step_begin": profile.step_begin.tolist(),
        "step_end": profile.step_end.tolist(),
        "batch": profile.batch,
        "bandwidth": profile.bandwidth,
        "dropped": dict(profile.dropped),
        "provenance": dict(profile.provenance),
    }
    table = pa.table(columns).replace_schema_metadata({METADATA: json.dumps(metadata)})
    with sealing(path) as unfinished:
        parquet.write_table(table, unfinished, compression="zstd")


def load_job_profile(path: str | Path) -> JobProfile:
    """Return the profile in a file that `save_job_profile` wrote, or in the packed form.

    Raises:
        InputError: there is no such file, it is damaged or no job profile; which field is wrong.
    """
    path = Path(path)
    if is_packed(path):
        return load_packed(path)
    table, metadata = _read(path)
    where = f"{path}: a damaged job profile"
    lists = ("ops", "kinds", "first_dependency", "dependencies", "step_begin", "step_end")
    for key in (*lists, "dropped", "provenance"):
        _field(metadata, key, list if key in lists else dict, f"{where}: its metadata")
    try:
        names, steps = metadata["ops"], len(metadata["step_begin"])
        if not all(isinstance(name, str) for name in (*names, *metadata["kinds"])):
            raise ValueError("ops and their kinds are texts")
        shape = (steps, len(names))
        rows = {name: table[name].combine_chunks() for name in table.column_names}
        rows["resource"] = coded = rows["resource"].dictionary_encode()
        code = {name: number for number, name in enumerate(RESOURCES)}
        used = coded.dictionary.to_pylist()
        if strange := [name for name in used if name not in code]:
            raise unknown("resource", strange[0], RESOURCES)
        kinds = np.array([code[name] for name in used], np.int8)
        resource = kinds[numbers_in(coded.indices)]
        _check_rows(rows, shape)
        one = slice(0, len(names))
        profile = JobProfile(
            names=tuple(names),
            kinds=tuple(metadata["kinds"]),
            resource=resource[one],
            server=numbers_in(rows["server"])[one].astype(np.int64),
            size=numbers_in(rows["bytes"])[one].astype(np.int64),
            first_dependency=_array(metadata["first_dependency"], "first_dependency", int),
            dependencies=_array(metadata["dependencies"], "dependencies", int),
            begin=numbers_in(rows["begin"]).reshape(shape),
            end=numbers_in(rows["end"]).reshape(shape),
            step_begin=_array(metadata["step_begin"], "step_begin", float),
            step_end=_array(metadata["step_end"], "step_end", float),
            batch=_number(metadata.get("batch"), "batch", int),
            bandwidth=_number(metadata.get("bandwidth"), "bandwidth", float),
            dropped={
                str(why): _number(count, f"dropped, {why}", int) or 0
                for why, count in metadata["dropped"].items()
            },
            provenance=metadata["provenance"],
        )
    except KeyError as error:
        raise InputError(f"{where}: {error.args[0]}") from None
    except (LookupError, TypeError, ValueError, NotImplementedError) as error:
        raise InputError(f"{where}: {error}") from None
    return check_job_profile(profile, str(path))


def _array(values: Iterable[Any], key: str, kind: type[int] | type[float]) -> np.ndarray[Any, Any]:
    """Return numbers; NumPy would convert texts and truth values, and cut off fractions.

    Raises:
        ValueError: a value is no number, no whole one where `kind` is int, or too large.
    """
    kinds = {int, kind}
    if wrong := [value for value in values if type(value) not in kinds]:
        raise ValueError(
            f"{key}: {str(wrong[0])[:40]!r} is no {'' if float in kinds else 'whole '}number"
        )
    try:
        return np.array(values, np.int64 if kind is int else np.float64)
    except OverflowError as error:
        raise ValueError(f"{key}: {error}") from None


def _number(value: Any, key: str, kind: type[Number]) -> Number | None:
    numbers: list[Number] = [] if value is None else _array([value], key, kind).tolist()
    return numbers[0] if numbers else None


def _check_rows(rows: Mapping[str, pyarrow.Array], shape: tuple[int, int]) -> None:
    step, op = np.indices(shape)
    for name, expected in (("step", step), ("op", op)):
        if not np.array_equal(numbers_in(rows[name]).reshape(shape), expected):
            raise ValueError(f"{name}: the rows are not in the order of steps and ops")
    for name in ("resource", "server", "bytes"):
        column = rows[name].indices if name == "resource" else rows[name]
        values = numbers_in(column).reshape(shape)
        if (values != values[:1]).any():
            at = tuple(int(index) for index in np.argwhere(values != values[:1])[0])
            raise ValueError(f"step {at[0]}, op {at[1]}: {name} is not that of the first step")


def is_job_profile(path: str | Path) -> bool:
    """Return whether the content of a file is a job profile of either form."""
    path = Path(path)
    try:
        begins = read_bytes(path, 4)
    except InputError:
        return False
    if begins != _PARQUET:
        return is_packed(path)
    import pyarrow
    from pyarrow import parquet

    try:
        return METADATA in (parquet.read_schema(path).metadata or {})
    except (OSError, pyarrow.ArrowException):  # a damaged one
        return path.suffix == ".profile"


def profile_argument(path: Path) -> dict[str, Any] | None:
    """Return the argument that a job profile is in place of a study file; None for other files."""
    return {"profile": str(path)} if is_job_profile(path) else None


_WAY_OUT = "paracosm profile job writes one, profile import makes one of traces"


def _read(path: Path) -> tuple[pyarrow.Table, dict[str, Any]]:
    import pyarrow as pa

    columns = [(name, pa.type_for_alias(kind)) for name, kind in _NUMBERS.items()]
    schema = pa.schema([*columns, ("resource", pa.string())])
    table = read_parquet(path, "job profile", _WAY_OUT, schema)
    stored = table.schema.metadata or {}
    if METADATA not in stored:
        raise other_file(path, "a Parquet file", "job profile", _WAY_OUT)
    metadata = parse_json(stored[METADATA], f"{path}: a damaged job profile: its metadata")
    if not isinstance(metadata, dict):
        raise InputError(f"{path}: a damaged job profile: its metadata must be a mapping")
    version = metadata.get("version")
    if version != VERSION:
        raise InputError(
            f"{path}: a job profile of version {version}, not {VERSION}: write it again"
        )
    return table, metadata


_PACKED_COLUMNS = ("name", "type", "res", "ps", "size", "deps")
ABSENT = -1e-6  # seconds: begin and length of an op that was not traced in a step


def is_packed(path: Path) -> bool:
    try:
        begin = read_bytes(path, 4096).lstrip()
    except InputError:
        return path.name.endswith(".json.gz") and path.is_file()
    return begin.startswith(b"{") and b'"columns"' in begin


def load_packed(path: Path) -> JobProfile:
    where, packed = str(path), read_bytes(path)
    content = parse_json(packed, where)
    columns = _field(content, "columns", dict, where)
    lists = {name: _field(columns, name, list, f"{where}: columns") for name in _PACKED_COLUMNS}
    ops = len(lists["name"])
    for name, values in lists.items():
        if len(values) != ops:
            raise InputError(f"{where}: columns.{name} has {len(values)} values for {ops} ops")
    for name in ("type", "res", "ps", "size"):
        for op, value in enumerate(lists[name]):
            if type(value) is not int or value < 0:
                raise InputError(
                    f"{where}: columns.{name}[{op}] is {str(value)[:40]}, no number >= 0"
                )
    types = _field(content, "types", list, where)
    steps = len(_field(content, "step_start_us", list, where))
    for key in ("step_wall_us", "start_us", "dur_us"):
        if len(_field(content, key, list, where)) != steps:
            raise InputError(f"{where}: {key} has {len(content[key])} steps, step_start_us {steps}")
    begin, length = (_times(content, key, ops, where) for key in ("start_us", "dur_us"))
    begin[(begin == ABSENT) & (length == ABSENT)] = np.nan
    codes = {name: code for code, name in enumerate(RESOURCES)} | {"ps": SERVER}
    for given in (resources := _field(content, "resources", list, where)):
        if given not in codes:
            raise InputError(f"{where}: resources: {unknown('resource', str(given), RESOURCES)}")
    try:
        step_begin, walls = (
            _array(content[key], key, float) / 1e6 for key in ("step_start_us", "step_wall_us")
        )
        known = [
            ProfiledOp(
                *(str(name), str(types[kind]), codes[resources[resource]], server, size),
                _array(waits, name, int).tolist(),
            )
            for name, kind, resource, server, size, waits in zip(*lists.values(), strict=True)
        ]
        provenance = {"source": "TensorFlow step statistics", "file": path.name}
        profile = job_profile_of(
            known, begin, begin + length, step_begin, step_begin + walls, provenance=provenance
        )
    except (IndexError, TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where}: columns: {error}") from None
    return check_job_profile(profile, where)


def _times(columns: Any, key: str, ops: int, where: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return seconds, (steps, ops); NaN where the file has null."""
    rows = _field(columns, key, list, where)
    for step, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != ops:
            length = len(row) if isinstance(row, list) else "no"
            raise InputError(f"{where}: {key}[{step}] has {length} values for {ops} ops")
        for op, value in enumerate(row):
            if type(value) not in (int, float, NoneType):
                raise InputError(f"{where}: {key}[{step}][{op}] is not a number: {str(value)[:40]}")
    try:
        return np.array(rows, float) / 1e6
    except OverflowError as error:
        raise InputError(f"{where}: {key}: {error}") from None


def _field(columns: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(columns, dict) or not isinstance(columns.get(key), kind):
        word = "mapping" if kind is dict else "list"
        raise InputError(f'{where}: "{key}" is missing, or no {word}')
    return columns[key]
