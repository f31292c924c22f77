"""Job profiles on disk, in both forms."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from small_job_profile import small_job_profile

from paracosm.errors import InputError
from paracosm.profiling.jobs.file import (
    METADATA,
    is_job_profile,
    load_job_profile,
    save_job_profile,
)

PACKED: dict[str, Any] = {
    "columns": {
        "name": ["pull", "forward", "push", "update"],
        "type": [0, 1, 0, 2],
        "res": [0, 1, 2, 3],
        "ps": [0, 0, 0, 0],
        "size": [8, 0, 8, 0],
        "deps": [[], [0], [1], [2]],
    },
    "types": ["RecvTensor", "MatMul", "Apply"],
    "resources": ["downlink", "worker", "uplink", "ps"],
    "step_start_us": [0, 1000],
    "step_wall_us": [900, 950],
    "start_us": [[100, 200, 400, 700], [100, 200, -1, 700]],
    "dur_us": [[100, 200, 300, 100], [100, 200, -1, 150]],
}


def packed(path: Path, **changes: Any) -> Path:
    path.write_bytes(gzip.compress(json.dumps(PACKED | changes).encode()))
    return path


def test_a_profile_comes_back_as_it_was(tmp_path: Path) -> None:
    profile = small_job_profile(dropped={"no end": 3})
    save_job_profile(profile, tmp_path / "job.profile")
    again = load_job_profile(tmp_path / "job.profile")
    for name in ("names", "kinds", "batch", "bandwidth", "dropped", "provenance"):
        assert getattr(again, name) == getattr(profile, name)
    for name in ("resource", "server", "size", "first_dependency", "dependencies"):
        np.testing.assert_array_equal(getattr(again, name), getattr(profile, name))
    for name in ("begin", "end", "step_begin", "step_end"):
        np.testing.assert_array_equal(getattr(again, name), getattr(profile, name))


def test_the_file_is_a_table_that_others_read(tmp_path: Path) -> None:
    from pyarrow import parquet

    save_job_profile(small_job_profile(), tmp_path / "job.profile")
    rows = parquet.read_table(tmp_path / "job.profile").to_pylist()
    assert len(rows) == 10
    assert rows[8] == {
        "step": 1,
        "op": 3,
        "resource": "uplink",
        "server": 0,
        "begin": 4.2,
        "end": 5.2,
        "bytes": 1000,
    }


def test_the_packed_form(tmp_path: Path) -> None:
    profile = load_job_profile(packed(tmp_path / "profile.json.gz"))
    assert profile.kinds == ("RecvTensor", "MatMul", "RecvTensor", "Apply")
    assert profile.resource.tolist() == [0, 1, 2, 3]
    assert profile.waits_for(2).tolist() == [1]
    assert profile.end[0].tolist() == pytest.approx([2e-4, 4e-4, 7e-4, 8e-4])
    # A transfer without times is known by its bytes: the step stays.
    assert np.isnan(profile.begin[1]).tolist() == [False, False, True, False]
    assert profile.step_end.tolist() == pytest.approx([9e-4, 1.95e-3])
    assert profile.batch is None


def test_what_is_a_profile_is_seen_by_content(tmp_path: Path) -> None:
    save_job_profile(small_job_profile(), tmp_path / "any.name")
    packed(tmp_path / "packed")
    (tmp_path / "study.yaml").write_text("predict:\n  profile: job.profile\n")
    assert is_job_profile(tmp_path / "any.name")
    assert is_job_profile(tmp_path / "packed")
    assert not is_job_profile(tmp_path / "study.yaml")
    assert not is_job_profile(tmp_path / "nothing")


def test_a_computation_without_times_drops_its_step(tmp_path: Path) -> None:
    start = [[100, 200, 400, 700], [100, -1, 400, 700]]
    length = [[100, 200, 300, 100], [100, -1, 300, 150]]
    profile = load_job_profile(packed(tmp_path / "p", start_us=start, dur_us=length))
    assert profile.steps == 1
    assert profile.dropped == {"no begin": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"types": None}, '"types" is missing, or no list'),
        ({"columns": {**PACKED["columns"], "deps": [[]]}}, "columns.deps has 1 values for 4 ops"),
        ({"columns": {**PACKED["columns"], "deps": [[], 0, [1], [2]]}}, "not iterable"),
        ({"resources": ["downlink", "worker", "uplnk", "ps"]}, 'did you mean "uplink"'),
        ({"start_us": [[100, 200, 400, 700], [1]]}, r"start_us\[1\] has 1 values for 4 ops"),
        ({"dur_us": [[100, 200, 300, 100]]}, "dur_us has 1 steps, step_start_us 2"),
        ({"types": ["RecvTensor"]}, "columns: list index out of range"),
        ({"columns": {**PACKED["columns"], "res": [0, -3, 2, 3]}}, r"columns.res\[1\] is -3"),
        ({"columns": {**PACKED["columns"], "ps": [0, 0, 0, 0.5]}}, r"columns.ps\[3\] is 0.5"),
        ({"columns": {**PACKED["columns"], "ps": [0, 0, 0, 9]}}, "update belongs to a server that"),
        (
            {"start_us": [[100, 200, 400, 700], [1, 2, "x", 4]]},
            r"start_us\[1\]\[2\] is not a number: x",
        ),
        ({"columns": {**PACKED["columns"], "ps": [0, 0, 10**30, 0]}}, "larger than 64 bits hold"),
        (
            {"columns": {**PACKED["columns"], "deps": [[], [0.5], [1], [2]]}},
            "'0.5' is no whole number",
        ),
        ({"dur_us": [[100, 200, 300, 10**400]] * 2}, "larger than 64 bits hold"),
        ({"step_wall_us": [1000, "1000"]}, "step_wall_us: '1000' is no number"),
    ],
)
def test_damaged_packed_files(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_job_profile(packed(tmp_path / "profile.json.gz", **changes))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda said: said.pop("ops"), 'a damaged job profile: its metadata: "ops" is missing'),
        (
            lambda said: said.update(dropped="many"),
            '"dropped" is missing, or no mapping',
        ),
        (lambda said: said.update(batch="many"), "batch: 'many' is no whole number"),
        (lambda said: said.update(batch=1.5), "batch: '1.5' is no whole number"),
        (
            lambda said: said.update(batch=2**70),
            "its metadata: the whole number .* is larger than 64 bits hold",
        ),
        (lambda said: said.update(bandwidth=True), "bandwidth: 'True' is no number"),
        (lambda said: said.update(bandwidth=10**400), "is larger than 64 bits hold"),
        (lambda said: said.update(dropped={"no end": 1.7}), "dropped, no end: '1.7' is no whole"),
        (lambda said: said["dependencies"].append(2**70), "is larger than 64 bits hold"),
        (lambda said: said["dependencies"].append(0.5), "dependencies: '0.5' is no whole number"),
        (lambda said: said["step_end"].append("1"), "step_end: '1' is no number"),
    ],
)
def test_damaged_metadata(tmp_path: Path, change: Callable[[Any], None], message: str) -> None:
    path = tmp_path / "job.profile"
    save_job_profile(small_job_profile(), path)
    table = parquet.read_table(path)
    said = json.loads(table.schema.metadata[METADATA])
    change(said)
    parquet.write_table(table.replace_schema_metadata({METADATA: json.dumps(said)}), path)
    with pytest.raises(InputError, match=message):
        load_job_profile(path)
    parquet.write_table(table.replace_schema_metadata({METADATA: "{"}), path)
    with pytest.raises(InputError, match="a damaged job profile: its metadata"):
        load_job_profile(path)


def test_rows_that_somebody_changed(tmp_path: Path) -> None:
    path = tmp_path / "job.profile"
    save_job_profile(small_job_profile(), path)
    table = parquet.read_table(path)
    parquet.write_table(table.take(list(range(9, -1, -1))), path)
    with pytest.raises(InputError, match="the rows are not in the order of steps and ops"):
        load_job_profile(path)
    sizes = table.column("bytes").to_pylist()
    sizes[8] = 999
    place = table.schema.get_field_index("bytes")
    parquet.write_table(table.set_column(place, "bytes", [sizes]), path)
    with pytest.raises(InputError, match="step 1, op 3: bytes is not that of the first step"):
        load_job_profile(path)
    place = table.schema.get_field_index("resource")
    parquet.write_table(table.set_column(place, "resource", [["wroker"] * 10]), path)
    with pytest.raises(InputError, match='unknown resource "wroker": did you mean "worker"'):
        load_job_profile(path)


def test_files_that_are_cut_off(tmp_path: Path) -> None:
    whole = packed(tmp_path / "profile.json.gz").read_bytes()
    (tmp_path / "profile.json.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cut off or damaged"):
        load_job_profile(tmp_path / "profile.json.gz")
    save_job_profile(small_job_profile(), tmp_path / "job.profile")
    whole = (tmp_path / "job.profile").read_bytes()
    (tmp_path / "job.profile").write_bytes(whole[:-40])
    with pytest.raises(InputError, match="the job profile is cut off"):
        load_job_profile(tmp_path / "job.profile")
    with pytest.raises(InputError, match="no such file"):
        load_job_profile(tmp_path / "nothing")


def test_other_parquet_files_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"step": [1]}), tmp_path / "other.parquet")
    assert not is_job_profile(tmp_path / "other.parquet")
    with pytest.raises(InputError, match='without a column "op"'):
        load_job_profile(tmp_path / "other.parquet")


@pytest.mark.parametrize("column", ["step", "server", "begin", "end", "bytes", "resource"])
def test_a_column_of_another_type_is_refused(column: str, tmp_path: Path) -> None:
    path = tmp_path / "job.profile"
    save_job_profile(small_job_profile(), path)
    table = parquet.read_table(path)
    times = pa.array(np.full(len(table), 1, "datetime64[us]"))
    parquet.write_table(table.set_column(table.column_names.index(column), column, times), path)
    with pytest.raises(InputError, match=r"job\.profile: "):
        load_job_profile(path)


def test_bytes_with_a_fraction_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.profile"
    save_job_profile(small_job_profile(), path)
    table = parquet.read_table(path)
    sizes = pa.array(table["bytes"].to_numpy() + 0.5)
    parquet.write_table(table.set_column(6, "bytes", sizes), path)
    with pytest.raises(InputError, match='"bytes" has values that are no int64'):
        load_job_profile(path)
