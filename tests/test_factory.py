"""Where an error of the user's code comes from."""

from pathlib import Path

import pyarrow
import pytest

from paracosm.factory import call_factory, named_function, users_place


def test_frames_of_a_compiled_library_are_not_the_users() -> None:
    """Cython names a file where PyArrow was compiled, which lies in no folder of libraries."""
    with pytest.raises(KeyError) as raised:
        _ = pyarrow.table({"a": [1]})["b"]
    assert str(raised.traceback[-1].path).endswith(".pxi")
    place = users_place(raised.value)
    assert place is not None
    assert place.file == __file__
    assert place.raises


def test_a_file_that_has_changed_is_run_again(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def make(): return 1\n")
    assert call_factory("model", f"{file}:make", {})[0] == 1
    first = named_function("model", f"{file}:make")
    assert named_function("model", f"{file}:make") is first
    file.write_text("def make(): return 200\n")
    assert call_factory("model", f"{file}:make", {})[0] == 200
