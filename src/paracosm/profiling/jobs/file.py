"""Job profiles on disk: one Parquet file, or the packed JSON of measured TensorFlow jobs.

The Parquet file has a row for every op of every step: step, op (an index), resource, server, begin,
end (seconds from the step's begin) and bytes. What is said once (names, dependencies, begins and
ends of steps, provenance) stands in the file's metadata as JSON, under the key `METADATA`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.errors import InputError
from paracosm.profiling.jobs.check import check_job_profile
from paracosm.profiling.jobs.job_profile import RESOURCES, JobProfile
from paracosm.profiling.jobs.packed import is_packed, load_packed

if TYPE_CHECKING:
    import pyarrow

__all__ = ["METADATA", "is_job_profile", "load_job_profile", "save_job_profile"]

METADATA = b"paracosm job profile"
VERSION = 1

_COLUMNS = ("step", "op", "resource", "server", "begin", "end", "bytes")
_PARQUET = b"PAR1"


def save_job_profile(profile: JobProfile, path: str | Path) -> None:
    """Write a profile to a Parquet file.

    Raises:
        InputError: the file cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    steps, ops = profile.steps, profile.ops
    resource = pa.DictionaryArray.from_arrays(
        pa.array(np.tile(profile.resource, steps)), pa.array(RESOURCES)
    )
    columns = {
        "step": np.repeat(np.arange(steps, dtype=np.int32), ops),
        "op": np.tile(np.arange(ops, dtype=np.int32), steps),
        "resource": resource,
        "server": np.tile(profile.server.astype(np.int32), steps),
        "begin": profile.begin.ravel(),
        "end": profile.end.ravel(),
        "bytes": np.tile(profile.size, steps),
    }
    said = {
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
    table = pa.table(columns).replace_schema_metadata({METADATA: json.dumps(said)})
    try:
        parquet.write_table(table, path, compression="zstd")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def load_job_profile(path: str | Path) -> JobProfile:
    """Return the profile in a file that `save_job_profile` wrote, or in the packed form.

    Raises:
        InputError: there is no such file, it is damaged or no job profile; which field is wrong.
    """
    path = Path(path)
    if is_packed(path):
        return load_packed(path)
    table, said = _read(path)
    try:
        names, steps = said["ops"], len(said["step_begin"])
        shape = (steps, len(names))
        rows = {name: table.column(name).combine_chunks() for name in _COLUMNS}
        code = {name: number for number, name in enumerate(RESOURCES)}
        kinds = np.array([code[name] for name in rows["resource"].dictionary.to_pylist()], np.int8)
        resource = kinds[rows["resource"].indices.to_numpy()]
        _check_rows(rows, shape)
        one = slice(0, len(names))
        profile = JobProfile(
            names=tuple(names),
            kinds=tuple(said["kinds"]),
            resource=resource[one],
            server=rows["server"].to_numpy()[one].astype(np.int64),
            size=rows["bytes"].to_numpy()[one].astype(np.int64),
            first_dependency=np.array(said["first_dependency"], np.int64),
            dependencies=np.array(said["dependencies"], np.int64),
            begin=rows["begin"].to_numpy().reshape(shape),
            end=rows["end"].to_numpy().reshape(shape),
            step_begin=np.array(said["step_begin"], float),
            step_end=np.array(said["step_end"], float),
            batch=said["batch"],
            bandwidth=said["bandwidth"],
            dropped={str(why): int(count) for why, count in said["dropped"].items()},
            provenance=said["provenance"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path}: a damaged job profile: {type(error).__name__}: {error}"
        ) from None
    return check_job_profile(profile, str(path))


def _check_rows(rows: Mapping[str, pyarrow.Array], shape: tuple[int, int]) -> None:
    """Refuse rows in another order, and ops that are not the same in all steps.

    Raises:
        ValueError: which column shows it.
    """
    step, op = np.indices(shape)
    for name, expected in (("step", step), ("op", op)):
        if not np.array_equal(rows[name].to_numpy().reshape(shape), expected):
            raise ValueError(f"{name}: the rows are not in the order of steps and ops")
    for name in ("resource", "server", "bytes"):
        column = rows[name].indices if name == "resource" else rows[name]
        values = column.to_numpy().reshape(shape)
        if (values != values[:1]).any():
            at = tuple(int(index) for index in np.argwhere(values != values[:1])[0])
            raise ValueError(f"step {at[0]}, op {at[1]}: {name} is not that of the first step")


def is_job_profile(path: str | Path) -> bool:
    """Return whether a file is a job profile of either form, by its content."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            begins = file.read(4)
    except OSError:
        return False
    if begins != _PARQUET:
        return is_packed(path)
    try:
        return METADATA in (_schema(path).metadata or {})
    except InputError:
        return path.suffix == ".profile"


def _schema(path: Path) -> pyarrow.Schema:
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.read_schema(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"{path}: a damaged job profile: {error}") from None


def _read(path: Path) -> tuple[pyarrow.Table, dict[str, Any]]:
    import pyarrow
    from pyarrow import parquet

    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        table = parquet.read_table(path)
    except (OSError, pyarrow.ArrowException):
        raise InputError(
            f"{path}: no job profile, or a damaged one: paracosm profile job or profile import "
            "writes them"
        ) from None
    metadata = table.schema.metadata or {}
    if METADATA not in metadata:
        raise InputError(f"{path}: a Parquet file, but no job profile")
    try:
        said = json.loads(metadata[METADATA])
    except ValueError as error:
        raise InputError(f"{path}: a damaged job profile: its metadata: {error}") from None
    if not isinstance(said, dict):
        raise InputError(f"{path}: a damaged job profile: its metadata are no mapping")
    if said.get("version") != VERSION:
        raise InputError(
            f"{path}: a job profile of version {said.get('version')}, not {VERSION}: write it again"
        )
    return table, said
