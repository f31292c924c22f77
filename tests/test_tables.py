"""Tables in files: what is read, and what is said of files that are none."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from paracosm.errors import InputError
from paracosm.tables import read_csv, read_parquet

SCHEMA = pa.schema([("step", pa.int32()), pa.field("begin", pa.float64(), nullable=False)])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.parquet"
    columns = {"begin": [0.5, 1.5], "more": ["a", "b"], "step": [1, 2]}
    parquet.write_table(pa.table(columns).replace_schema_metadata({"key": "value"}), path)
    return path


def said_of(content: bytes, folder: Path) -> str:
    path = folder / "file"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_parquet(path, "job profile", "paracosm profile job writes one", SCHEMA)
    return str(caught.value).removeprefix(f"{path}: ")


def test_the_columns_of_a_schema_are_read_in_its_order_and_types(table: Path) -> None:
    read = read_parquet(table, "job profile", schema=SCHEMA)
    assert read.to_pydict() == {"step": [1, 2], "begin": [0.5, 1.5]}
    assert read.schema.field("step").type == pa.int32()
    assert read.schema.metadata == {b"key": b"value"}
    assert read_parquet(table, "x", only=("more", "b")).to_pydict()["step"] == [2]


def test_other_files_are_named_with_the_command_that_writes_the_right_one(
    table: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "a.npz", a=np.eye(2))
    way_out = "and no job profile: paracosm profile job writes one"
    files = {
        "an empty file": b"",
        "no Parquet file": b"step,begin\n1,2\n",
        "arrays of NumPy or SciPy (.npz)": (tmp_path / "a.npz").read_bytes(),
        "an Arrow file": b"ARROW1\0\0",
    }
    for kind, content in files.items():
        assert said_of(content, tmp_path) == f"{kind}, {way_out}"
    packed = gzip.compress(table.read_bytes())
    assert said_of(packed, tmp_path) == ("packed with gzip, and no job profile: unpack it (gunzip)")


def test_what_is_cut_off_or_damaged_is_said_without_words_of_arrow(
    table: Path, tmp_path: Path
) -> None:
    whole = table.read_bytes()
    cut = "the job profile is cut off: copy it or write it again"
    for length in (4, len(whole) // 2, len(whole) - 1):
        assert said_of(whole[:length], tmp_path) == cut
    damaged = "a damaged job profile: copy it or write it again"
    assert said_of(whole[:-8] + b"\xff\xff\xff\x7f" + whole[-4:], tmp_path) == damaged
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    assert said_of(whole[:footer] + b"\0" * 20 + whole[footer + 20 :], tmp_path) == damaged


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"begin": [0.5]}, 'a table without a column "step" (it has begin), and no job profile'),
        ({"step": ["a"], "begin": [0.5]}, '"step" has values that are no int32'),
        ({"step": [2**40], "begin": [0.5]}, '"step" has values that are no int32'),
        ({"step": [1, 2], "begin": [0.5, None]}, '"begin" has empty fields'),
    ],
)
def test_columns_that_do_not_fit_are_named(
    columns: dict[str, list[object]], reason: str, tmp_path: Path
) -> None:
    parquet.write_table(pa.table(columns), tmp_path / "columns")
    assert reason in said_of((tmp_path / "columns").read_bytes(), tmp_path)


def test_a_csv_file_says_which_line_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "clients.csv"
    path.write_text("client,speed\n007,1.5\n8,NA\n")
    read = read_csv(path, "table of clients", ("client", "speed"))
    assert read.to_pydict() == {"client": ["007", "8"], "speed": ["1.5", "NA"]}
    cases = {
        b"client,speed\n1,2\n3,4,5\n": "line 3: 3 values, where the first line names 2 columns",
        b"": "an empty file, and no table of clients",
        b"client\n\xff\xfe\xfd\n": "no text in UTF-8, and no table of clients",
        b"PAR1....PAR1": "a Parquet file, and no table of clients",
        b"client,client\n1,2\n": 'two columns have the name "client"',
    }
    for content, reason in cases.items():
        path.write_bytes(content)
        with pytest.raises(InputError) as caught:
            read_csv(path, "table of clients", ("client",))
        assert str(caught.value) == f"{path}: {reason}"
