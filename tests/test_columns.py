"""Columns of Arrow tables from and to NumPy, against Arrow's own conversions; no pandas."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from paracosm.columns import (
    label_column,
    number_column,
    numbers_in,
    numpy_type,
    rows_with,
    text_column,
)


@pytest.mark.parametrize("kind", [np.float64, np.int64, np.int32, np.int8, np.uint8, np.bool_])
@pytest.mark.parametrize("length", [0, 1, 11])
def test_numbers_are_those_of_arrow(kind: type, length: int) -> None:
    values = (np.arange(2 * length) * 3 % 7 % 5).astype(kind)[::2]  # not contiguous
    column = number_column(values)
    column.validate(full=True)
    assert column.equals(pa.array(values))
    assert numbers_in(column).dtype == kind
    np.testing.assert_array_equal(numbers_in(column), values)
    sliced = pa.chunked_array([column[length // 2 :], column[:3]])
    expected = sliced.to_numpy()
    np.testing.assert_array_equal(numbers_in(sliced), expected)


def test_texts_and_labels_are_those_of_arrow() -> None:
    words = ["a", "", "Zürich", "東京"]
    assert text_column(words).equals(pa.array(words, pa.string()))
    assert text_column([]).equals(pa.array([], pa.string()))
    codes = np.array([3, 0, 0, 1], np.int32)
    labels = label_column(codes, words)
    labels.validate(full=True)
    assert labels.to_pylist() == ["東京", "a", "a", ""]
    table = pa.table({"name": labels, "place": [0, 1, 2, 3]})
    assert rows_with(table, "name", "a")["place"].to_pylist() == [1, 2]
    assert not len(rows_with(table, "name", "b"))


def test_empty_fields_are_refused_or_stood_for() -> None:
    column = pa.array([1.5, None, 2.0])
    with pytest.raises(ValueError, match="1 fields of a column are empty"):
        numbers_in(column)
    np.testing.assert_array_equal(numbers_in(column, empty=np.nan), [1.5, np.nan, 2.0])


def test_columns_of_something_else_are_refused() -> None:
    assert numpy_type(pa.float16()) == pa.float16().to_pandas_dtype()
    with pytest.raises(pa.ArrowInvalid, match="a column of string, not of numbers"):
        numbers_in(pa.array(["1"]))


def test_a_run_and_its_report_import_no_pandas(tmp_path: Path) -> None:
    pandas = tmp_path / "pandas"
    pandas.mkdir()
    (pandas / "__init__.py").write_text(
        f"open({str(tmp_path / 'imported')!r}, 'w')\nraise ImportError\n"
    )
    run = tmp_path / "run"
    train = ["train", "--timing-only", "--updates", "20", "--workers", "2", "--out", str(run)]
    program = (
        "import sys; from paracosm.cli import main; from paracosm import open as opened; "
        f"code = main({train}); result = opened({str(run)!r}); "
        "assert len(result.timeline.spans) and len(result.metrics); sys.exit(code)"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, check=True
    )
    assert (run / "report.html").exists()
    assert not (tmp_path / "imported").exists()
